"""What is known of the recorded sequences themselves: what is amiss in them, how much of it and where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ptt.diagnostics.statistics.mixture import Mixture
from ptt.diagnostics.statistics.sampled import PairSample


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much of the records something concerns; `example` is one of the files."""

    tokens: int  # of the model
    sequences: int
    first_step: int | None
    last_step: int | None
    files: int
    example: str | None


@dataclass(frozen=True, kw_only=True)
class AnomalyCount:
    """Values of one logprob column that are no logprobs, of one kind (see statistics.anomalies)."""

    column: str
    kind: str
    tokens: int
    sequences: int
    first_step: int
    last_step: int
    files: int
    example: str  # one of the files


@dataclass(frozen=True)
class ColumnFacts:
    """Of one logprob column's sampled values: share with four decimals at most, commonest value, its share."""

    rounded_share: float
    common_value: float
    common_share: float


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """What is there twice, or not at all."""

    repeated: Extent  # sequences whose (step, sample_id) was there before
    step_gaps: tuple[tuple[int, int], ...]  # (last step before, first step after)
    ranks: int  # known ranks, 0 where none are recorded
    missing_ranks: tuple[int, ...]
    steps_missing_ranks: int
    first_step_missing_rank: int
    last_step_missing_rank: int
    usual_sequences: float  # of a rank (of all, where ranks are not known) at a step, in the median
    usual_tokens: float


@dataclass(frozen=True, kw_only=True)
class MissingLogprobs:
    """Model tokens of the pair in use without a finite log-ratio, placeholders not counted."""

    pair: str
    tokens: int
    finite_tokens: int
    sequences: int
    first_step: int | None
    last_step: int | None
    files: int
    example: str | None
    dead_since: int | None  # first step from which on no token is finite, up to the last recorded step


@dataclass(frozen=True, kw_only=True)
class MixedColumn:
    """What the recorded `temperature` says: steps at which it differs between sequences."""

    temperatures: tuple[float, ...]  # seen at these steps, ascending
    steps: int
    share: float  # of these steps' sequences: not at the run's commonest temperature
    extent: Extent  # of these sequences


@dataclass(frozen=True, kw_only=True)
class MixedPair:
    """What the logprobs of one pair say: sequences of two kinds, in the sample."""

    mixture: Mixture
    sampled: int  # sequences
    extent: Extent  # of the scaled ones among the sampled


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Steps that two segments of a run both recorded, the second after the first: a run that was resumed."""

    first_step: int
    last_step: int
    steps: int
    sources: tuple[str, ...]  # one file that goes back, or the two that overlap


@dataclass(frozen=True, kw_only=True)
class Segments:
    """What of a run was recorded twice by itself resumed; None where nothing was."""

    metrics: tuple[Overlap, ...]
    sequences: Overlap | None
    extent: Extent | None  # of the sequences at these steps, both segments' together


@dataclass(frozen=True, kw_only=True)
class Validity:
    """What there is to say about the recorded logprobs themselves."""

    anomalies: tuple[AnomalyCount, ...]
    pairs: Mapping[str, tuple[PairSample | None, PairSample | None]]  # over the run, and early in it
    columns: Mapping[str, ColumnFacts]
    extent: Extent  # of all that is recorded
    observed_share: float  # of sequences with at least one observation
    missing: MissingLogprobs
    coverage: Coverage
    mixed_column: MixedColumn | None = None
    mixed_pairs: Mapping[str, MixedPair] = field(default_factory=dict)

    @property
    def sequences(self) -> int:
        """How many sequences are recorded."""
        return self.extent.sequences

    @property
    def model_tokens(self) -> int:
        """How many model tokens they hold."""
        return self.extent.tokens
