"""What a comparison is of and what it says: arms of one or more runs, the first of them the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ptt.diagnostics.model import Diagnosis
from ptt.diagnostics.statistics.tail_curves import Profile

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, kw_only=True)
class Member:
    """One run of a comparison."""

    name: str  # unique among all members
    diagnosis: Diagnosis
    profile: Profile | None  # None: findings.json alone, or no pair of logprobs
    why_no_profile: str = ""
    source: str = ""  # sha256 of what it was made from: two with the same hold the same run


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Runs of one setting, seeds of each other; most arms have one."""

    name: str
    members: tuple[Member, ...]


@dataclass(frozen=True, kw_only=True)
class NotCompared:
    """A question that these runs cannot answer side by side, and why."""

    what: str
    reason: str
    enable: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Arms side by side; every table is long, with `arm` as its first column, arms in their order.

    Values of tails are |r| in nats, intervals (`lo`, `hi`) 95%; `axis` is `steps` (matched trainer steps) or `tokens`
    (matched model tokens trained on); `window` is early, mid or late third of what the arms share on that axis.

    curves: arm, axis, slice, q, x_first, x_last, x_mid, value, lo, hi, n_tokens, runs.
    windows: arm, axis, slice, q, window, value, lo, hi, n_tokens, runs, x_first, x_last.
    differences: arm (not the baseline), axis, slice, q, window (or `all`), ratio (baseline over arm: above 1 is
        suppressed), lo, hi, p_value, detectable.
    growth: arm, axis, slice, q, growth (late over early), lo, hi, suppression (baseline's growth over the arm's; null
        for the baseline), suppression_lo, suppression_hi.
    ecdf: arm, slice, window, x, cdf, n_tokens.
    ess: arm, slice, step_first, step_last, step_mid, ess_fraction, n.
    aggregates: arm, metric (canonical), window (early, mid, late), mean, lo, hi, n, runs.
    aggregate_differences: arm, metric, window, difference (arm minus baseline), lo, hi, words (higher, lower, alike,
        cannot_say).
    settings: key, arm, value (as JSON text, null where not recorded), differs.
    divergence: arm, what, slice, step, low, high, words: the first step from which on the arm left the baseline, for
        each figure that did; sorted by step. step is null where its interval is too wide to date anything.
    """

    arms: tuple[Arm, ...]
    pair: str | None
    headline: str  # one sentence
    sentences: tuple[str, ...]  # what each arm shows against the baseline, most telling first
    tables: Mapping[str, pl.DataFrame]
    not_compared: tuple[NotCompared, ...]
    matched: Mapping[str, tuple[float, float] | None]  # axis -> the range that all arms share
    cautions: tuple[str, ...] = ()  # those of the sentences that keep a difference from being a setting's merit
