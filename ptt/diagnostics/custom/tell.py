"""Put what a custom rule found into a finding, and how near a healthy run came to it into a reason."""

from __future__ import annotations

from typing import Final

import numpy as np

from ptt.diagnostics.custom import claims
from ptt.diagnostics.custom.comparisons import in_words
from ptt.diagnostics.custom.outcome import Outcome
from ptt.diagnostics.custom.subjects import TOKENS
from ptt.diagnostics.custom.terms import (
    AnyOf,
    Between,
    Bound,
    Change,
    Condition,
    CustomRule,
    Last,
    Moving,
    Outside,
    Spike,
    Statement,
    TimesEarly,
)
from ptt.diagnostics.custom.windows import Seen
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Finding, JsonScalar, Steps

NATS: Final = frozenset({"p50", "p95", "p99", "p999", "mean_r", "mean_abs_r", "k1", "k2", "k3"})


def finding_of(rule: CustomRule, outcome: Outcome, onset: int) -> Finding:
    """Tell what was found, by the first test that holds at the onset."""
    test, series, seen = _told(outcome, onset)
    place = _worst(test, seen, onset)
    observed, limit = float(seen.values[place]), float(seen.limits[place])
    values = {"value": observed, "limit": limit, "early": seen.early, "onset": onset}
    claim = claims.filled(rule.claim, values) if rule.claim else words(rule.condition)
    name = series.name
    return Finding(
        id=rule.name,
        severity=rule.severity,
        link=rule.link,
        claim=" ".join(claim.split()).rstrip(".!?") if rule.claim else claim[:1].upper() + claim[1:],
        observed=observed,
        limit=limit,
        unit=_unit(test),
        slice=test.metric.removeprefix(TOKENS).split(":")[1] if test.metric.startswith(TOKENS) else None,
        onset_step=onset,
        onset_interval=_interval(rule.condition, test, seen, onset),
        evidence=_evidence(rule, test, series, seen, onset),
        causes=rule.causes,
        confirm=rule.confirm,
        next=rule.next or (f"look at {name} from step {onset} on; {rule.file} can say under `next` what to do then",),
    )


def nearest(rule: CustomRule, outcome: Outcome) -> str:
    """Say how near a healthy run came to the condition."""
    looked = outcome.tests[0]
    if len(outcome.tests) > 1 or looked.seen is None:
        return f"not so at any step: {words(rule.condition)}"
    seen, test = looked.seen, looked.test
    lasting = f" for {rule.for_steps} steps" if rule.for_steps > 1 else ""
    if not isinstance(test.window, Moving):
        return f"not so: {words(test)}; it is {seen.values[-1]:.4g}"
    usable = np.isfinite(seen.values)
    low, high = float(seen.values[usable].min()), float(seen.values[usable].max())
    return f"not so{lasting} at any step: {words(test)}; it lies between {low:.4g} and {high:.4g}"


def words(condition: Condition) -> str:
    """Say a condition in words."""
    if isinstance(condition, Statement):
        return in_words(condition)
    joint = " or " if isinstance(condition, AnyOf) else " and "
    return joint.join(words(part) if isinstance(part, Statement) else f"({words(part)})" for part in condition.parts)


def _told(outcome: Outcome, onset: int) -> tuple[Statement, Series, Seen]:
    known = [(one.test, one.series, one.seen) for one in outcome.tests if one.series and one.seen]
    holding = [(test, series, seen) for test, series, seen in known if seen.holds[_place(test, seen, onset)]]
    return holding[0]


def _place(test: Statement, seen: Seen, onset: int) -> int:
    """Give the place of a moving window whose value counts at a step; of a fixed window its last."""
    if not isinstance(test.window, Moving):
        return len(seen.steps) - 1
    return max(0, int(np.searchsorted(seen.steps, onset, side="right")) - 1)


def _worst(test: Statement, seen: Seen, onset: int) -> int:
    """Give the place furthest beyond the bound among those that hold from the onset on."""
    first = _place(test, seen, onset)
    if not isinstance(test.window, Moving):
        return first
    places = np.flatnonzero(seen.holds & (np.arange(len(seen.steps)) >= first))
    values, limits = seen.values[places], seen.limits[places]
    match test.comparison:
        case Between():
            beyond = np.zeros(len(places))
        case Outside():
            beyond = np.abs(values - limits)
        case Spike():
            beyond = values / limits
        case Change(share=share):
            beyond = values if share > 0 else -values
        case Bound(direction=direction) | TimesEarly(direction=direction):
            beyond = values if direction.startswith(">") else -values
    return int(places[np.argmax(beyond)])


def _interval(condition: Condition, test: Statement, seen: Seen, onset: int) -> Steps | None:
    """Give the steps of the window in which it was first seen; several tests have no one window."""
    if not isinstance(condition, Statement) or not isinstance(test.window, Moving | Last):
        return None
    place = int(np.searchsorted(seen.steps, onset, side="right")) - 1
    return int(seen.since[place]), onset


def _unit(test: Statement) -> str:
    if test.aggregate == "nan_count":
        return "values"
    in_nats = test.metric.startswith(TOKENS) and test.metric.rsplit(":", 1)[-1] in NATS
    return "nats" if in_nats and test.aggregate != "slope" else ""


def _evidence(rule: CustomRule, test: Statement, series: Series, seen: Seen, onset: int) -> dict[str, JsonScalar]:
    lost = int(np.count_nonzero(~np.isfinite(series.values)))
    found: dict[str, JsonScalar] = {
        "metric": series.name,
        "logged_as": series.raw_name,
        "condition": words(rule.condition) + (f", for {rule.for_steps} steps" if rule.for_steps > 1 else ""),
        "at_onset": float(seen.values[_place(test, seen, onset)]),
        "at_the_end": float(seen.values[-1]),
        "holds_at_the_end": bool(seen.holds[-1]),
        "rule_file": rule.file,
    }
    optional: dict[str, JsonScalar] = {
        "early_level": seen.early, "values_left_out": lost or None, "why": rule.why, "reference": rule.reference,
    }  # fmt: skip
    return found | {key: value for key, value in optional.items() if value not in (None, "")}
