"""What is known of evaluations: each figure over the steps, and the protocol it was taken under."""

from __future__ import annotations

from dataclasses import dataclass

from ptt.diagnostics.evidence.series import Series


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure of an evaluation that says how good the policy is; higher is better."""

    name: str  # what is measured, without the name of the split: env/accuracy
    split: str  # as the writer calls it: eval, test, validation, ...; the suite, where a suite is all that is named
    outcome: bool  # whether it says that the task was done; a reward does not
    series: Series
    twin: Series | None = None  # the same figure of training

    @property
    def title(self) -> str:
        """Name it as a sentence does."""
        return self.series.raw_name


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of an evaluation, point by point."""

    suite: str
    name: str  # temperature, max_tokens, samples, ...
    points: tuple[tuple[int, float], ...]  # step and setting, in the order of steps
    exact: bool = True  # False: worked out from rounded figures


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is known of evaluations: each figure over the steps, and the protocol it was taken under."""

    figures: tuple[Figure, ...] = ()
    slices: tuple[Series, ...] = ()  # of single capabilities, where the writer names them so
    settings: tuple[Setting, ...] = ()
