"""Custom rules give three answers, with the step they hold since, and agree with brute force."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest
from builders import Array, repeatable, series_of
from custom_rules import DPO, FALL, FLAT, GRPO, HUMP, STEP, WHOLE, found, judged, on, rule
from hypothesis import given
from hypothesis import strategies as st

from ptt.diagnostics.custom.conditions import (
    Intervals,
    intersection,
    intervals_where,
    lasting,
    outcome_of,
    rolling,
    union,
)
from ptt.diagnostics.custom.files import toml_rules
from ptt.diagnostics.custom.terms import AllOf, AnyOf, Bound, Condition, CustomRule, Moving, Statement
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Broken, Healthy, Link, NotJudged, Severity

CASES: dict[str, tuple[dict[str, Any], Array, int | None]] = {
    "mean above": ({"is": "> 0.5", "window": 10}, STEP, 66),
    "mean above, long enough": ({"is": "> 0.5", "window": 10, "for_steps": 30}, STEP, 66),
    "mean above, not for so long": ({"is": "> 0.5", "window": 10, "for_steps": 40}, STEP, None),
    "single value": ({"is": "> 0.5", "window": 1}, STEP, 61),
    "a hump is seen by a moving window": ({"is": "> 0.5", "window": 10}, HUMP, 46),
    "and not by one at the end": ({"is": "> 0.5", "window": "last 10"}, HUMP, None),
    "at the end, since": ({"is": "> 0.5", "window": "last 10"}, STEP, 66),
    "late third": ({"is": "> 0.5", "window": "late"}, STEP, 68),
    "early third": ({"is": "< 0.5", "window": "early"}, STEP, 1),
    "middle third": ({"is": "> 0.5", "window": "mid"}, HUMP, 35),
    "whole": ({"is": "between 0.2 and 0.6", "window": "whole"}, STEP, 1),
    "median": ({"is": "> 0.5", "window": 10, "aggregate": "median"}, STEP, 66),
    "p95": ({"is": "> 0.8", "window": 20, "aggregate": "p95"}, STEP, 62),
    "max": ({"is": ">= 0.9", "window": 20, "aggregate": "max"}, STEP, 61),
    "min": ({"is": ">= 0.9", "window": 20, "aggregate": "min"}, STEP, 80),
    "std": ({"is": "> 0.2", "window": 10, "aggregate": "std"}, STEP, 61),
    "slope": ({"is": "> 0.05", "window": 10, "aggregate": "slope"}, STEP, 62),
    "last": ({"is": "> 0.5", "aggregate": "last"}, STEP, 61),
    "outside": ({"is": "outside 0.05 and 0.5", "window": 10}, STEP, 66),
    "times early": ({"is": "> 5 times_early", "window": 10}, STEP, 66),
    "fell below a share of the early level": ({"is": "< 0.5 times_early", "window": 10}, FALL, 66),
    "drop": ({"is": "drop 75%", "window": 10}, FALL, 69),
    "drop not so deep": ({"is": "drop 95%", "window": 10}, FALL, None),
    "rise": ({"is": "rise 100%", "window": 10}, STEP, 62),
    "spike": ({"is": "spike 5x", "window": 20}, HUMP, 41),
    "spike within the noise": ({"is": "spike 10x", "window": 20}, HUMP, None),
    "drop below a negative level": ({"is": "drop 50%", "window": 10}, np.concatenate([-FLAT, -STEP[60:]]), 101),
}


@pytest.mark.parametrize("case", CASES)
def test_a_condition_holds_from_the_step_it_should(case: str) -> None:
    keys, values, onset = CASES[case]
    verdict = judged(on(**keys), {"kl/ref": values})
    if onset is None:
        assert isinstance(verdict, Healthy), verdict
        assert "not so" in verdict.reason
        return
    finding = found(verdict)
    assert finding.onset_step == onset
    low, high = finding.onset_interval or (onset, onset)
    assert low <= onset <= high
    assert (finding.id, finding.severity, finding.link) == ("custom:mine", Severity.HIGH, Link.REWARD)
    assert finding.evidence["metric"] == "kl/ref"
    assert finding.evidence["logged_as"] == "logged/kl/ref"
    assert finding.next
    assert math.isfinite(finding.observed or math.nan)


def test_a_finding_carries_its_numbers_and_the_users_words() -> None:
    keys: dict[str, Any] = {"is": "> 0.52", "claim": "at {value:.1f}, limit {limit}, since {onset}. ", "causes": ["c"],
            "confirm": ["d"], "next": ["e"], "why": "w", "reference": "r"}  # fmt: skip
    finding = found(judged(on(**keys), {"kl/ref": STEP}))
    assert finding.claim == "at 0.9, limit 0.52, since 71"
    assert finding.observed == pytest.approx(0.9)
    assert finding.limit == 0.52
    assert (finding.causes, finding.confirm, finding.next) == (("c",), ("d",), ("e",))
    assert (finding.evidence["why"], finding.evidence["reference"], finding.evidence["rule_file"]) == (
        *("w", "r"), "mine.toml",
    )  # fmt: skip
    assert found(judged(on(**{"is": "> 0.5"}), {"kl/ref": STEP})).claim == (
        "Mean of kl/ref over 20 values is above 0.5"
    )


def test_an_unknown_metric_is_not_judged_and_the_closest_names_are_told() -> None:
    verdict = judged(on("kl/reff", **{"is": "> 1"}), {"kl/ref": FLAT, "entropy": FLAT})
    assert isinstance(verdict, NotJudged)
    assert "closest here: kl/ref" in verdict.reason
    assert verdict.missing == ("kl/reff",)
    assert "mine.toml" in verdict.enable


@pytest.mark.parametrize(
    ("keys", "values", "says"),
    [
        ({"is": "> 1"}, FLAT[:9], "9 values of logged/kl/ref are logged; 10 are needed"),
        ({"is": "> 1"}, FLAT[:15], "20 are needed for windows of 20"),
        ({"is": "> 1", "min_steps": 200}, FLAT, "200 are needed"),
        ({"is": "drop 5%"}, FLAT[:30], "40 are needed"),
        ({"is": "drop 5%"}, 0 * FLAT, "early level is 0"),
        ({"is": "> 2 times_early"}, -FLAT, "too close to 0 for a multiple of it"),
        ({"is": "spike 3x"}, -FLAT, "never above 0"),
        ({"is": "> 1"}, np.full(100, math.nan), "0 values"),
        ({"is": "> 1", "aggregate": "std"}, np.array([1e308, -1e308] * 50), "too large"),
    ],
)
def test_too_little_is_not_judged(keys: dict[str, Any], values: Array, says: str) -> None:
    verdict = judged(on(**keys), {"kl/ref": values})
    assert isinstance(verdict, NotJudged), verdict
    assert says in verdict.reason


def test_nan_is_counted_never_healthy() -> None:
    ends = FLAT.copy()
    ends[80:] = math.nan
    verdict = judged(on(**{"is": "> 0.5"}), {"kl/ref": ends})
    assert isinstance(verdict, NotJudged)
    assert "NaN or infinite from step 81 to the end" in verdict.reason
    assert isinstance(judged(on(**{"is": "> 0.5", "window": "last 20"}), {"kl/ref": ends}), NotJudged)
    assert isinstance(judged(on(**{"is": "> 0.5", "window": "early"}), {"kl/ref": ends}), Healthy)
    broken = STEP.copy()
    broken[90:] = math.nan
    assert found(judged(on(**{"is": "> 0.5"}), {"kl/ref": broken})).evidence["values_left_out"] == 10
    count = on(aggregate="nan_count", window=50, **{"is": ">= 3"})
    finding = found(judged(count, {"kl/ref": ends}))
    assert (finding.observed, finding.onset_step, finding.unit) == (20.0, 83, "values")
    assert isinstance(judged(count, {"kl/ref": FLAT}), Healthy)
    holes = FLAT.copy()
    holes[[10, 60]] = math.inf
    assert isinstance(judged(count, {"kl/ref": holes}), Healthy)
    assert isinstance(judged(on(**{"is": "> 0.5"}), {"kl/ref": holes}), Healthy)


def test_families_and_algorithms_that_a_rule_is_not_for_are_not_asked() -> None:
    restrictions: tuple[dict[str, Any], ...] = ({"families": ["preference"]}, {"algorithms": ["dpo"]})
    for keys in restrictions:
        mine = on(**{"is": "> 0.5"}, **keys)
        assert isinstance(judged(mine, {"kl/ref": STEP}, DPO), Broken)
        verdict = judged(mine, {"kl/ref": STEP}, GRPO)
        assert isinstance(verdict, NotJudged)
        assert not verdict.applies
        assert isinstance(judged(mine, {"kl/ref": STEP}), NotJudged)


def several(text: str, for_steps: int = 1) -> CustomRule:
    return rule(f"[[rule]]\nid='m'\nseverity='low'\nlink='reward'\nfor_steps={for_steps}\n{text}\n")


HIGH, LOW, GONE = "{metric='a', is='> 0.5', window=1}", "{metric='b', is='< 0.5', window=1}", "{metric='c', is='> 1'}"


def test_all_and_any_hold_at_the_same_step() -> None:
    both = {"a": STEP, "b": FALL}
    assert found(judged(several(f"all=[{HIGH}, {LOW}]"), both)).onset_step == 61
    apart = {"a": HUMP, "b": FALL}  # one from 41 to 60, the other from 61
    assert isinstance(judged(several(f"all=[{HIGH}, {LOW}]"), apart), Healthy)
    either = several(f"any=[{HIGH}, {LOW}]", for_steps=50)
    assert found(judged(either, apart)).onset_step == 41  # 20 steps of one and 40 of the other
    assert isinstance(judged(several(f"any=[{HIGH}, {LOW}]", for_steps=61), apart), Healthy)


def test_what_is_missing_counts_only_where_the_answer_hangs_on_it() -> None:
    assert isinstance(judged(several(f"all=[{HIGH}, {GONE}]"), {"a": FLAT}), Healthy)
    assert isinstance(judged(several(f"all=[{HIGH}, {GONE}]"), {"a": STEP}), NotJudged)
    assert isinstance(judged(several(f"any=[{HIGH}, {GONE}]"), {"a": FLAT}), NotJudged)
    assert found(judged(several(f"any=[{HIGH}, {GONE}]"), {"a": STEP})).onset_step == 61
    nested = several(f"all=[{LOW}, {{any=[{HIGH}, {GONE}]}}]")
    assert isinstance(judged(nested, {"a": FLAT, "b": FALL}), NotJudged)
    assert found(judged(nested, {"a": STEP, "b": FALL})).evidence["metric"] == "b"
    assert isinstance(judged(nested, {"a": FLAT, "b": np.full(100, 0.9)}), Healthy)


def test_fixed_windows_speak_of_the_whole_run() -> None:
    late = "{metric='a', is='> 0.5', window='late'}"
    early = "{metric='b', is='> 0.5', window='early'}"
    assert found(judged(several(f"all=[{late}, {early}]"), {"a": STEP, "b": FALL})).onset_step == 68
    assert found(judged(several(f"all=[{late}, {LOW}]"), {"a": STEP, "b": FALL})).onset_step == 61
    assert found(judged(several(f"any=[{late}, {early}]"), {"a": STEP, "b": FALL})).onset_step == 1


def test_a_value_counts_until_the_next_is_logged() -> None:
    seldom = series_of("b", [0.9] * 6 + [0.1] * 4, steps=range(10, 101, 10))  # from step 70
    rare = several("all=[{metric='a', is='> 0.5', window=1}, {metric='b', is='< 0.5', window=1}]", for_steps=31)
    assert found(judged(rare, {"a": STEP, "b": seldom})).onset_step == 70
    assert isinstance(judged(several(f"all=[{HIGH}, {LOW}]", 32), {"a": STEP, "b": seldom}), Healthy)


sets = st.lists(st.booleans(), min_size=12, max_size=12)


def as_stretches(flags: Sequence[bool]) -> Intervals:
    return intervals_where(np.arange(len(flags)), np.array(flags), end=len(flags) - 1)


def as_flags(found: Intervals, count: int = 12) -> list[bool]:
    return [any(first <= step <= last for first, last in found) for step in range(count)]


@given(st.lists(sets, min_size=1, max_size=4), st.integers(1, 6))
@repeatable
def test_stretches_are_sets_of_steps(many: list[list[bool]], least: int) -> None:
    held = [as_stretches(flags) for flags in many]
    assert as_flags(union(held)) == [any(column) for column in zip(*many, strict=True)]
    assert as_flags(intersection(held)) == [all(column) for column in zip(*many, strict=True)]
    word = "".join("x" if flag else "." for flag in many[0])
    runs = [(m.start(), m.end() - 1) for m in re.finditer("x+", word) if m.end() - m.start() >= least]
    assert list(lasting(held[0], least)) == runs


LEAVES = [Statement(metric=name, comparison=Bound(">", 0.5), window=Moving(1)) for name in "abc"]
conditions: st.SearchStrategy[Condition] = st.recursive(
    st.sampled_from(LEAVES),
    lambda parts: st.one_of(
        st.lists(parts, min_size=2, max_size=3).map(lambda some: AllOf(tuple(some))),
        st.lists(parts, min_size=2, max_size=3).map(lambda some: AnyOf(tuple(some))),
    ),
    max_leaves=5,
)


def truth(condition: Condition, at: Mapping[str, bool]) -> bool:
    match condition:
        case Statement(metric=metric):
            return at[metric]
        case AllOf(parts=parts):
            return all(truth(part, at) for part in parts)
        case AnyOf(parts=parts):
            return any(truth(part, at) for part in parts)


@given(
    conditions, st.fixed_dictionaries(dict.fromkeys("abc", st.none() | st.lists(st.booleans(), min_size=4, max_size=4)))
)
@repeatable
def test_three_answers_are_those_that_every_completion_gives(
    condition: Condition, known: dict[str, list[bool] | None]
) -> None:
    """Sure: true whatever the missing metrics are; maybe: true for some of them (each metric missing as a whole)."""

    def find(name: str) -> Series | str:
        flags = known[name]
        return "missing" if flags is None else series_of(name, [float(flag) for flag in flags])

    outcome = outcome_of(condition, find, least=1, end=4)
    for step in range(4):
        missing = [name for name, flags in known.items() if flags is None]
        answers = []
        for guess in product([False, True], repeat=len(missing)):
            at = {name: flags[step] for name, flags in known.items() if flags is not None}
            answers.append(truth(condition, at | dict(zip(missing, guess, strict=True))))
        sure = any(first <= step + 1 <= last for first, last in outcome.sure)
        maybe = any(first <= step + 1 <= last for first, last in outcome.maybe)
        assert (sure, maybe) == (all(answers), any(answers))  # no `not`: each leaf is monotone


REFERENCE: dict[str, Callable[[Array], Any]] = {
    "mean": np.mean, "median": np.median, "min": np.min, "max": np.max, "last": lambda values: values[-1],
    "std": lambda values: np.std(values, ddof=1), "p05": lambda values: np.percentile(values, 5),
    "p99": lambda values: np.percentile(values, 99),
}  # fmt: skip


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=30), st.integers(2, 3), st.sampled_from([*REFERENCE, "slope"])
)
@repeatable
def test_aggregates_are_those_of_every_window(values: list[float], width: int, aggregate: str) -> None:
    steps = np.cumsum(np.arange(1, len(values) + 1))
    got = rolling(steps, np.array(values), aggregate, width)
    assert len(got) == len(values) - width + 1
    for place, value in enumerate(got):
        window = np.array(values[place : place + width])
        times = steps[place : place + width].astype(float)
        meant = np.polyfit(times, window, 1)[0] if aggregate == "slope" else REFERENCE[aggregate](window)
        assert value == pytest.approx(meant, rel=1e-6, abs=1e-3 if aggregate == "slope" else 1e-9)


def test_windows_are_worked_on_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).normal(size=200)
    whole = rolling(np.arange(200), values, "p95", 20)
    monkeypatch.setattr("ptt.diagnostics.custom.conditions.CHUNK", 100)
    assert (rolling(np.arange(200), values, "p95", 20) == whole).all()


def _joined(joint: str, claim: str) -> CustomRule:
    return rule(f'[[rule]]\nid = "mine"\nseverity = "high"\nlink = "reward"\nclaim = "{claim}"\n{joint}')


@pytest.mark.parametrize(
    ("joint", "values"),
    [
        (
            'all = [{ metric = "entropy", is = "> 0" }, { metric = "kl/ref", is = "> 0.5" }]',
            "0.100 1:0.100 2:0.900/0.5",
        ),
        # the first part of the `any` is not true, though its first condition is
        (
            'any = [{ all = [{ metric = "entropy", is = "> 0" }, { metric = "reward/mean", is = "> 5" }] },'
            ' { metric = "kl/ref", is = "> 0.5" }]',
            "0.900 1:0.100 2:0.100/5",
        ),
    ],
)
def test_a_value_is_of_what_makes_the_rule_true_and_others_have_a_number(joint: str, values: str) -> None:
    claim = "{value:.3f} 1:{value1:.3f} 2:{value2:.3f}/{limit2}"
    metrics = {"entropy": FLAT, "kl/ref": STEP, "reward/mean": FLAT}
    assert found(judged(_joined(joint, claim), metrics)).claim == values


def test_a_number_beyond_the_conditions_is_no_field() -> None:
    _, problems = toml_rules(WHOLE + 'claim = "{value2}"\n', file="mine.toml")
    assert "there is no field {value2}" in problems[0]
