"""What the recorded tokens tell of the cause of a mismatch: the first pattern of `PATTERNS` that they follow.

The patterns are in order: one that is known by exact numbers (copies, neighbours' logprobs) explains what a later one
would see of it, so no two of them name the same tokens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.audited_steps import rows_of_steps
from ptt.diagnostics.evidence.mismatch_causes import Sign, sign
from ptt.diagnostics.evidence.validity import with_ranks
from ptt.diagnostics.statistics.mismatch_fingerprint import MismatchFingerprint, mismatch_fingerprint
from ptt.diagnostics.statistics.scored_tokens import ScoredTokens, lay_out_scored
from ptt.diagnostics.statistics.staleness import add_lags
from ptt.diagnostics.statistics.token_weights import score_bounds
from ptt.diagnostics.wording import pct, sig

TRAINER: Final = "old_logp"  # before any update on the batch
ENGINE: Final = "rollout_logp"
ID_TOKENS: Final = 1 << 17  # whose ids are read: the identity of a token shows in some ten thousand
NOTICED: Final = 0.01  # nats of mean |r|: twice what two engines in bfloat16 usually leave
FAINT: Final = 0.003  # from here on a pattern is worth a note: healthy arithmetic leaves more, but follows none
GROWING: Final = {"grows_apart", "grows", "falls", "by_lag"}
NO_TEMPERATURE: Final = GROWING | {
    "neighbours", "by_rank", "is_reference", "partly_reference", "at_boundaries", "set_apart", "from_one_token",
    "by_prompt", "few_sequences_off", "follows_update", "behind", "all_fade", "some_fade", "fades_from_start",
    "in_rows", "later_turns", "by_token_growing", "by_token",
}  # fmt: skip
ONE_SCALE: Final = 0.8  # of the variance of u: a line through all sequences
NOISY: Final = 0.03  # nats of mean |r| that follow nothing: half as much again as healthy kernels leave at most
KNOWN_TEMPERATURE: Final = 0.005  # from 1: what is recorded is rounded


@dataclass(frozen=True, kw_only=True)
class MismatchPattern:
    """The pattern that the recorded tokens follow, its sign, and how large the differences are."""

    name: str
    sign: Sign
    mean: float  # |r|, nats
    r_squared: float = math.nan  # of the differences on the logits
    beyond: float = math.nan  # share of the gradient's weight on tokens whose ratio the correction cuts; NaN: no cap

    @property
    def noticed(self) -> bool:
        """Whether the differences are large enough to be said, though below the limits of mere size."""
        least = {
            "partly_copied": 0.0,
            "noise": NOISY,
            "smooth": NOISY,
            "behind": NOISY,
            "later_turns": NOTICED,
            "rounded": NOTICED,
        }.get(self.name, FAINT)
        return self.mean >= least

    @property
    def no_mixture(self) -> bool:
        """Whether it takes some tokens or sequences and leaves others without two temperatures being mixed."""
        return self.noticed and (self.name in NO_TEMPERATURE or self.r_squared > ONE_SCALE)


def gather_pattern(tokens: Tokens | None, *, cap: float) -> MismatchPattern | None:
    """Return the pattern of the differences between the trainer's old logprobs and the engine's, if they follow one.

    cap: of the engine's importance weights; infinite where there is none.
    """
    if tokens is None or not {TRAINER, ENGINE} <= set(tokens.scan.columns):
        return None
    scored = _scored(tokens)
    if scored is None:
        return None
    found = mismatch_fingerprint(scored)
    if found is None:
        return None
    name = name_pattern(found, temperature=_temperature(tokens))
    if name is None:
        return None
    told = sign(name, **_numbers(found))
    beyond = _beyond(scored, cap)
    return MismatchPattern(name=name, sign=told, mean=found.mean, r_squared=found.r_squared, beyond=beyond)


def _beyond(scored: ScoredTokens, cap: float) -> float:
    """Return the share of the gradient's weight beyond the cap; a token weighs its capped ratio times 1 - p."""
    if math.isinf(cap):
        return math.nan
    r = scored.trainer - scored.engine
    weight = np.exp(np.minimum(r, math.log(cap))) * score_bounds(scored.trainer)[0]
    return float(weight[r > math.log(cap)].sum() / weight.sum())


def name_pattern(found: MismatchFingerprint, *, temperature: float = math.nan) -> str | None:
    """Return the first of `PATTERNS` that is followed; temperature: that of sampling, NaN where unknown."""
    name = next((name for name, follows in PATTERNS.items() if follows(found)), None)
    return _scaled(found, temperature) if name == "scaled" else name


def _temperature(tokens: Tokens) -> float:
    if "temperature" not in tokens.scan.columns:
        return math.nan
    mean = tokens.scalars["temperature"].drop_nulls().mean()
    return float(mean) if isinstance(mean, (int, float)) else math.nan


def _scored(tokens: Tokens) -> ScoredTokens | None:
    """Lay the model tokens of the sampled sequences end to end, with what is known of each."""
    length = pl.col("model_mask").list.len()
    whole = [pl.col(name).list.len() == length for name in (TRAINER, ENGINE)]
    rows = tokens.tables.samples.drop_nulls(["step", "model_mask", TRAINER, ENGINE]).filter(length > 0, *whole)
    if rows.is_empty():
        return None
    known = _identity(tokens, _with_ids(tokens, rows).sort("step", "seq"))
    return lay_out_scored(
        known.rename({TRAINER: "trainer", ENGINE: "engine", "ref_logp": "reference", "policy_logp": "policy"})
    )


def _identity(tokens: Tokens, rows: pl.DataFrame) -> pl.DataFrame:
    """Add sample, prompt, rank and lag of each sequence; a sequence without a name is a sample of its own."""
    named = [name for name in ("sample_id", "group_id", "policy_version") if name in tokens.scan.columns]
    known = with_ranks(tokens, rows)
    known = known.join(tokens.scalars.select("seq", *named), on="seq", how="left", maintain_order="left")
    known = add_lags(known)[0] if "policy_version" in named else known.with_columns(lag=pl.lit(None, pl.Int64))
    own = pl.col("sample_id").cast(pl.String) if "sample_id" in named else pl.lit(None, pl.String)
    group = pl.col("group_id").rank("dense") if "group_id" in named else pl.lit(None, pl.Int64)
    return known.with_columns(sample=pl.coalesce(own, pl.col("seq").cast(pl.String)).rank("dense"), prompt=group)


def _with_ids(tokens: Tokens, rows: pl.DataFrame) -> pl.DataFrame:
    """Add token ids to the sequences of steps spread over the run, null to the others."""
    nothing = pl.lit(None, pl.List(pl.Int64)).alias("token_ids")
    if "token_ids" not in tokens.scan.columns:
        return rows.with_columns(nothing)
    steps, every = rows["step"].unique().sort(), tokens.sound_rows
    a_step = max(float(every["length"].cast(pl.Int64).sum()) / max(every["step"].n_unique(), 1), 1.0)
    most = min(len(steps), max(2, int(ID_TOKENS / a_step)))
    chosen = np.unique(np.linspace(0, len(steps) - 1, most).round().astype(np.int64))
    read = rows_of_steps(tokens, steps.gather(chosen).to_list())
    if not isinstance(read.schema["token_ids"], pl.List):
        return rows.with_columns(nothing)
    return rows.join(read.select("seq", pl.col("token_ids").cast(pl.List(pl.Int64))), on="seq", how="left")


# ---- patterns

# Each limit lies between dumps with that cause put in and dumps with another, or with healthy noise (docs/mismatch.md
# shows how well they part); where nothing else is said, it is a share, a correlation or a ratio of mean |u|.
SOME: Final = 0.02  # of the sequences
FEW: Final = 0.01  # enough where no arithmetic makes it
ALL: Final = 0.98
NEIGHBOURS: Final = 0.25  # of the tokens that are off: with the logprob of one neighbour
ONE_NEIGHBOUR: Final = 1.8  # times that of the other: where the logprobs repeat, both are
ONE_SIDED: Final = 0.9
SIDED: Final = 0.78
CUT: Final = 0.05  # of the tokens are certain to the engine alone
SCALED: Final = 0.4  # of the variance of u
ONE_FACTOR: Final = 0.8  # of the tokens that are off: logprobs divided in some sequences, or from a step on
RANK_LOGS: Final = 1.0
RANK_SHARE: Final = 0.3
NEAR_REFERENCE: Final = 0.9
AGAINST_REFERENCE: Final = -0.4
OF_REFERENCE: Final = 0.05  # from 1, the slope that an engine with the reference's weights has whatever its noise
SOME_AT_REFERENCE: Final = 0.3  # of the sequences
SOME_AT_TRAINER: Final = 0.1
NO_THIRD: Final = 0.6  # of the sequences are at one of the two
BEHIND: Final = -0.35  # correlation with the way from the reference that is left
BY_UPDATE: Final = 0.4
BY_PROMPT: Final = 12.0  # prompts that differ by their text alone reach 6
SET_APART: Final = 0.09  # of the tokens: heavy-tailed noise sets 0.06 apart
STAYS: Final = 0.55  # of what follows the first far token: a sequence that went off, and no pieces of it
AT_STARTS: Final = 0.3  # their mean place: of tokens anywhere it is 0.5
IN_ROWS: Final = 2.8  # standard deviations
FADES_PLAINLY: Final = 0.95  # nats: sequences whose start is not off would lie apart
QUIET_STARTS: Final = 0.07  # of the sequences: the first documents of packed rows
FAR_OFF: Final = 1.4  # nats between the log-levels of sequences that are off and those that agree; of one class 1.25
FEW_OFF: Final = 0.42  # of the sequences; in packed rows more than half are
AT_BOUNDARY: Final = 1.7
BOUNDARY_SIDED: Final = -0.5  # of mean |u|
MIN_FIRSTS: Final = 20
PERSISTS: Final = 0.45
INSIDE: Final = 0.95
FROM_THERE: Final = 12.0
STEEP: Final = 0.37
AWAY: Final = -0.25  # of mean |u|: the trainer is less sure of what the engine drew than the engine is
SAME_AT_ALL: Final = 0.3  # of the levels' variance between steps
TOKEN_SHARE: Final = 0.06  # of the variance of u: noise, by chance, to 0.02
WITH_LAG: Final = 0.3
FALL: Final = 0.7
FALL_SHARE: Final = 0.5
FELL_FAR: Final = 2.0  # whatever the tokens tell
BY_STEP: Final = 0.3  # of the levels' variance between steps: all sequences of a step have the same weights
RISE: Final = 0.75
RISE_BY_TOKEN: Final = 0.5
GREW: Final = 1.2
GREW_FAR: Final = 1.5  # whatever the tokens tell
FROM_NOTHING: Final = 0.4  # of its later size was there in the first quarter of the steps
FROM_START: Final = 0.62
LATER: Final = 1.2  # nats of the log-level
SMOOTH: Final = 0.1  # rounding is drawn anew at each token
ROUNDED: Final = 0.95
PLAIN: Final = 0.02  # nats of mean |r|: noise below it is nobody's fault


def _goes_with_tokens(one: MismatchFingerprint) -> bool:
    sure = one.signed < AWAY / 2 or one.token_share > RANK_SHARE
    return sure and one.token_share > TOKEN_SHARE


def _grows(one: MismatchFingerprint) -> bool:
    if one.token_share > TOKEN_SHARE and one.token_start < FROM_NOTHING:
        return one.rise > RISE_BY_TOKEN and one.step_share > BY_STEP / 2
    return (
        one.rise > RISE
        and one.step_share > BY_STEP
        and one.spread > (GREW_FAR if one.token_share > TOKEN_SHARE else GREW)
    )


def _fades(one: MismatchFingerprint) -> bool:
    return (
        one.start > STEEP
        and one.start_signed < AWAY
        and one.step_share < SAME_AT_ALL
        and not one.body_token_share > TOKEN_SHARE
    )


def _rows(one: MismatchFingerprint) -> float:
    """Return how plainly the order in the file tells of rows: one document agrees, and the next ones do not."""
    return one.spaced + max(one.climbs, 0.0) if one.off_gap > FAR_OFF and one.off_share > FEW_OFF else -math.inf


PATTERNS: Final[dict[str, Callable[[MismatchFingerprint], bool]]] = {
    "copied": lambda one: one.copied >= ALL,
    "partly_copied": lambda one: one.copied > SOME or one.copied_reference > FEW,
    "by_rank": lambda one: one.rank_share > RANK_SHARE and one.one_rank > RANK_LOGS,
    "is_reference": lambda one: (
        abs(one.reference_slope - 1) < OF_REFERENCE
        and one.reference_gap < NEAR_REFERENCE
        and one.reference_gap * one.mean < NOISY  # what is left beside it is noise
        and one.reference_follows < AGAINST_REFERENCE
    ),
    "partly_reference": lambda one: (
        one.at_reference > SOME_AT_REFERENCE
        and one.at_trainer > SOME_AT_TRAINER
        and one.at_reference + one.at_trainer > NO_THIRD
        and abs(one.near_slope - 1) < OF_REFERENCE
    ),
    "neighbours": lambda one: one.shifted > NEIGHBOURS and one.shifted > ONE_NEIGHBOUR * one.unshifted,
    "cut": lambda one: one.negative > ONE_SIDED and one.certain > CUT and one.signed < -ONE_SIDED,
    "scaled": lambda one: (
        (one.r_squared > SCALED and not 1 - SIDED < one.negative < SIDED) or one.one_factor > ONE_FACTOR
    ),
    "at_boundaries": lambda one: one.boundary > AT_BOUNDARY and one.boundary_signed < BOUNDARY_SIDED,
    "set_apart": lambda one: (
        one.apart > SET_APART
        and one.apart_negative > SIDED
        and not (one.apart_place < AT_STARTS or one.persists > STAYS)
        and not (one.by_lag > WITH_LAG or one.step_share > BY_STEP or _grows(one))
    ),
    "from_one_token": lambda one: (
        one.firsts >= MIN_FIRSTS
        and one.persists > PERSISTS
        and one.inside > INSIDE
        and one.far_negative > ONE_SIDED
        and one.after > FROM_THERE
    ),
    "by_lag": lambda one: one.by_lag > WITH_LAG,
    "follows_update": lambda one: one.follows_update > BY_UPDATE,
    "by_prompt": lambda one: one.by_prompt > BY_PROMPT and one.off_share < FEW_OFF,
    "falls": lambda one: (
        one.step_share > BY_STEP
        and one.fall > max(FALL if one.token_share > TOKEN_SHARE else FELL_FAR, FALL_SHARE * one.spread)
    ),
    "grows_apart": lambda one: _grows(one) and math.isfinite(one.reference_gap),
    "grows": _grows,
    "some_fade": lambda one: _fades(one) and (one.quiet_starts > QUIET_STARTS or _rows(one) > IN_ROWS),
    "all_fade": lambda one: _fades(one) and one.start > FADES_PLAINLY,
    "fades_from_start": _fades,
    "in_rows": lambda one: _rows(one) > IN_ROWS,
    "few_sequences_off": lambda one: one.off_share < FEW_OFF and one.off_gap > FAR_OFF,
    "by_token_growing": lambda one: _goes_with_tokens(one) and one.token_start < FROM_START,
    "by_token": _goes_with_tokens,
    "behind": lambda one: one.reference_follows < BEHIND,
    "later_turns": lambda one: one.later_turns > LATER,
    "smooth": lambda one: one.memory > SMOOTH,
    "rounded": lambda one: one.rounded > ROUNDED,
    "noise": lambda one: one.mean > PLAIN and one.spread < GREW and not one.token_share > TOKEN_SHARE,
    "by_step": lambda one: one.mean > NOISY and one.step_share > SAME_AT_ALL,
    "unexplained": lambda one: one.mean > NOISY,
}
"""By the name of its sign; NaN follows none."""


def _scaled(one: MismatchFingerprint, temperature: float) -> str:
    """Say which side's temperature is missing, the trainer's or the engine's.

    The raw side is at 1. Sampling at T < 1 is sharper than that, so a sharper trainer has the temperature.
    """
    if not abs(temperature - 1) > KNOWN_TEMPERATURE:
        return "scaled"
    return "scaled_raw_engine" if (one.slope > 0) == (temperature < 1) else "scaled_raw_trainer"


def _numbers(one: MismatchFingerprint) -> dict[str, str]:
    """Return the numbers that the signs' texts name."""
    return dict(_shares(one)) | {
        "mean": sig(one.mean),
        "slope": f"{one.slope:+.2g}",
        "rank_factor": _factor(one.one_rank),
        "after": sig(one.after),
        "start": _factor(one.start),
        "boundary": sig(one.boundary),
        "spread": _factor(one.spread),
        "fall": _factor(one.fall),
        "gap": sig(one.reference_gap),
        "correlation": sig(one.by_lag),
        "behind": sig(-one.reference_follows),
        "by_prompt": sig(one.by_prompt),
        "follows_update": sig(one.follows_update),
        "in_rows": sig(one.spaced + max(one.climbs, 0.0)),
        "later": _factor(one.later_turns),
        "off_gap": _factor(one.off_gap),
    }


def _shares(one: MismatchFingerprint) -> Iterator[tuple[str, str]]:
    names = "copied", "copied_reference", "shifted", "negative", "certain", "r_squared"
    for name in (
        *names,
        "persists",
        "token_share",
        "step_share",
        "rounded",
        "at_reference",
        "at_trainer",
        "apart",
        "off_share",
        "memory",
    ):
        value: float = getattr(one, name)
        yield name, pct(value) if math.isfinite(value) else "?"


def _factor(log: float) -> str:
    return sig(math.exp(log)) if math.isfinite(log) else "?"
