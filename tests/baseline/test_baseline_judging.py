"""A run compared with its baseline: what fails, what passes, and what cannot be said."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import repeatable
from hypothesis import given
from hypothesis import strategies as st
from measured_runs import Array, baseline_with, curves_at, facts, made, measured, noisy, with_tails

from ptt.diagnostics.gate.against_baseline import against
from ptt.diagnostics.gate.baseline.measure import Measured, placed
from ptt.diagnostics.gate.baseline.metrics import DIRECTIONS
from ptt.diagnostics.gate.baseline.values import Baseline, BaselineComparison, Worse
from ptt.diagnostics.statistics.noninferiority import EXCLUDED_RATIO

QUIET = 0.05


def values(seed: int, level: float = 1.0, **changes: Any) -> Array:
    return level * noisy(np.random.default_rng(seed), **({"noise": QUIET} | changes))


def base(name: str = "grad_norm", *, level: float = 1.0, seeds: int = 1, **changes: Any) -> Baseline:
    return made(*[measured({name: values(100 + seed, level, **changes)}, name=f"seed {seed}") for seed in range(seeds)])


def judged(run: Measured, baseline: Baseline, metric: str = "grad_norm", **asked: Any) -> BaselineComparison:
    return next(one for one in against(run, baseline, **asked) if one.id == metric)


def test_another_seed_passes_and_a_run_far_worse_fails() -> None:
    assert judged(measured({"grad_norm": values(1)}), base()).outcome == "passed"
    worse = judged(measured({"grad_norm": values(1, 1.6)}), base())
    assert worse.outcome == "failed"
    assert worse.ratio == pytest.approx(1.6, rel=0.05)
    assert worse.low is not None
    assert worse.high is not None
    assert worse.difference is not None
    assert worse.low < worse.difference < worse.high
    assert "larger gradients" in worse.words


def test_a_difference_within_the_limit_passes_however_sure() -> None:
    found = judged(measured({"reward/mean": values(1, 0.85)}), base("reward/mean", seeds=8), "reward/mean")
    assert found.outcome == "passed"
    assert found.p_value is not None
    assert found.p_value < 0.001
    tight = judged(measured({"reward/mean": values(1, 0.85)}), base("reward/mean", seeds=8), "reward/mean", limit=1.05)
    assert tight.outcome == "failed"


def test_better_is_never_worse() -> None:
    assert judged(measured({"grad_norm": values(1, 0.3)}), base()).outcome == "passed"
    more = measured({"reward/mean": values(1, 3.0)})
    assert judged(more, base("reward/mean"), "reward/mean").outcome == "passed"


@pytest.mark.parametrize(
    ("name", "level", "factor"),
    [
        ("reward/mean", 1.0, 0.6), ("entropy", 1.0, 1.7), ("entropy", 1.0, 0.5), ("kl/ref", 0.4, 1.7),
        ("len/response_mean", 300.0, 1.7), ("len/response_mean", 300.0, 0.5), ("tools/failure_frequency", 0.2, 1.7),
    ],
)  # fmt: skip
def test_each_metric_fails_in_its_own_direction(name: str, level: float, factor: float) -> None:
    held = base(name, level=level)
    assert judged(measured({name: values(1, level)}), held, name).outcome == "passed"
    assert judged(measured({name: values(1, level * factor)}), held, name).outcome == "failed"


@pytest.mark.parametrize(
    ("name", "level"), [("kl/ref", 0.01), ("clip/frac", 0.002), ("tools/failure_frequency", 0.004)]
)
def test_twice_next_to_nothing_is_next_to_nothing(name: str, level: float) -> None:
    assert judged(measured({name: values(1, 2 * level)}), base(name, level=level), name).outcome == "passed"


def test_a_reward_about_zero_is_measured_by_its_own_scatter() -> None:
    held = made(measured({"reward/mean": 0.01 + values(100, noise=0.2) - 1}, name="seed"))
    assert judged(measured({"reward/mean": values(1, noise=0.2) - 1}), held, "reward/mean").outcome == "passed"
    assert judged(measured({"reward/mean": values(1, noise=0.2) - 1.6}), held, "reward/mean").outcome == "failed"


def test_a_reward_of_nothing_all_along_is_the_same() -> None:
    held = made(measured({"reward/mean": np.zeros(120)}, name="seed"))
    assert judged(measured({"reward/mean": np.zeros(120)}), held, "reward/mean").outcome == "passed"
    assert judged(measured({"reward/mean": values(1)}), held, "reward/mean").outcome == "passed"
    assert judged(measured({"reward/mean": -values(1)}), held, "reward/mean").outcome == "failed"


def test_a_metric_without_a_worse_direction_is_shown() -> None:
    held = base("loss/total")
    found = judged(measured({"loss/total": values(1, 9.0)}), held, "loss/total")
    assert found.outcome == "shown"
    assert found.observed == pytest.approx(9.0, rel=0.1)
    named = judged(measured({"loss/total": values(1, 9.0)}), held, "loss/total", metrics={"loss/total": "higher"})
    assert named.outcome == "failed"
    unsaid = judged(measured({"loss/total": values(1)}), held, "loss/total", metrics={"loss/total": None})
    assert unsaid.outcome == "blind"
    assert "higher" in unsaid.next[0]


def test_only_what_the_policy_names_is_judged() -> None:
    held = made(measured({"grad_norm": values(100), "entropy": values(101)}, name="seed"))
    run = measured({"grad_norm": values(1, 3.0), "entropy": values(2)})
    assert judged(run, held, metrics={"entropy": None}).outcome == "shown"
    assert judged(run, held, "entropy", metrics={"entropy": None}).outcome == "passed"


def test_noise_that_hides_a_difference_is_cannot_say() -> None:
    loud: dict[str, Any] = {"noise": 0.6, "likeness": 0.8, "count": 40}
    found = judged(measured({"grad_norm": values(1, **loud)}), base(**loud))
    assert found.outcome == "blind"
    assert "too wide to judge" in found.words


def jagged(seed: int, *, spread: float = 0.35, level: float = 1.0) -> Array:
    drawn = np.random.default_rng(seed).standard_normal(12)
    return np.asarray(level * np.exp(spread * (drawn - drawn.mean()) / drawn.std()))


def test_tails_too_noisy_to_tell_say_how_many_tokens_would_do() -> None:
    held = baseline_with(with_tails("seed", curves_at(jagged(1))))
    found = next(one for one in against(with_tails("run", curves_at(jagged(3))), held) if one.id.endswith(".late"))
    assert found.outcome == "blind"
    told = re.search(r"too wide to judge; about ([\d,]+) tokens, ([\d.]+) times as many, would be enough", found.words)
    assert told is not None
    tokens, times = int(told[1].replace(",", "")), float(told[2])
    assert tokens == pytest.approx(times * 4 * 4000, rel=0.05)  # a third of twelve spans
    assert (found.low, found.high, found.ratio) != (None, None, None)
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    half = np.log(found.high / found.low) / 2 / np.sqrt(times)
    assert np.log(found.ratio) + half == pytest.approx(np.log(EXCLUDED_RATIO), abs=0.05)  # then it would just pass


def test_of_two_seeds_a_third_is_asked_for_where_it_would_tell_and_steps_where_it_would_not() -> None:
    def late(*seeds: Array, run: Array) -> BaselineComparison:
        held = baseline_with(*(with_tails(f"seed {n}", curves_at(one)) for n, one in enumerate(seeds)))
        return next(one for one in against(with_tails("run", curves_at(run)), held) if one.id.endswith(".all"))

    flat = np.ones(12)
    found = late(1.05 * flat, flat / 1.05, run=1.2 * flat)
    assert found.outcome == "blind"
    assert found.next == ("add a third seed to the baseline: two say little about the spread between seeds",)
    apart = late(3.0 * flat, flat / 3.0, run=1.6 * flat)
    assert apart.outcome == "blind"
    assert apart.next == ("add seeds to the baseline, record more steps or sequences, or train longer",)


def test_spread_of_seeds_is_counted() -> None:
    apart = made(
        *[measured({"grad_norm": values(seed, level)}, name=f"{seed}") for seed, level in enumerate((0.7, 1.0, 1.3))]
    )
    run = measured({"grad_norm": values(9, 1.45)})
    assert judged(run, base(seeds=3)).outcome == "failed"
    assert judged(run, apart).outcome != "failed"  # the seeds themselves lie as far apart
    spread = judged(run, apart).extra["between_runs"]
    assert isinstance(spread, float)
    assert spread > 0.15


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (measured({"entropy": values(1)}), "does not log grad_norm"),
        (measured({"grad_norm": values(1, count=70)}), "ends before step 81"),
            (measured({"grad_norm": values(1, count=95)}), "reaches step 95"),
        (measured({"grad_norm": values(1)}, first=500), "does not log grad_norm"),
        (measured({"grad_norm": values(1)}, framework="verl"), "means of different things"),
        (measured({"grad_norm": values(1)}, bad={"grad_norm": range(90, 120)}), "are NaN or infinite"),
        (measured({"grad_norm": values(1, count=12)}, every=10), "only 4 values"),
    ],
    ids=["not logged", "too short", "unfinished", "other steps", "other framework", "NaN", "few values"],
)  # fmt: skip
def test_what_cannot_be_compared_is_blind_with_its_reason(run: Measured, reason: str) -> None:
    found = judged(run, base())
    assert found.outcome == "blind"
    assert reason in found.words
    assert found.next


def test_a_metric_of_nothing_but_nan_is_not_one_that_was_not_logged() -> None:
    found = judged(measured({"grad_norm": values(1)}, bad={"grad_norm": range(120)}), base())
    assert found.outcome == "blind"
    assert found.words == "40 of 40 values in steps 81 to 120 are NaN or infinite"


def test_a_few_values_that_are_no_numbers_are_told_where_the_rest_passes() -> None:
    found = judged(measured({"grad_norm": values(1)}, bad={"grad_norm": [100, 110]}), base())
    assert found.outcome == "passed"
    assert "38 logged values and 2 NaN or infinite" in found.data


def test_a_level_that_counts_for_more_than_it_is_says_so() -> None:
    found = judged(measured({"clip/frac": 0.002 * values(1)}), base("clip/frac", level=0.0002), "clip/frac")
    assert found.outcome == "passed"  # ten times the baseline's
    assert "within the limit (a level this low counts as 0.020)" in found.words


def test_metrics_that_a_run_logs_do_not_hide_its_tails() -> None:
    held = baseline_with(*[with_tails(f"seed {n}", curves_at(LEVELS * level)) for n, level in enumerate((1, 0.9, 1.1))])
    run = with_tails("run", curves_at(1.7 * LEVELS * np.exp(0.05 * LOUD)))
    alone = [one for one in against(run, held) if one.statistic == "tails"]
    names = [f"metric/{number}" for number in range(100)]
    noise = [made(measured({name: values(n) for name in names}, name=f"{n}")).runs[0].metrics for n in range(4)]
    more = replace(held, runs=tuple(replace(run, metrics=one) for run, one in zip(held.runs, noise, strict=False)))
    beside = against(replace(run, metrics=noise[3]), more, metrics=dict.fromkeys(names, "higher"))
    assert [one for one in beside if one.statistic == "tails"] == alone
    assert "failed" in {one.outcome for one in alone}


def test_a_metric_that_the_baseline_lacks_is_blind_when_named() -> None:
    found = judged(measured({"entropy": values(1)}), base(), "entropy", metrics={"entropy": "both"})
    assert found.outcome == "blind"
    assert "baseline has no entropy" in found.words


def test_the_very_same_run_passes_and_is_told() -> None:
    run = measured({"grad_norm": values(1, noise=0.6, likeness=0.8)}, name="same")
    source, *rest = against(run, made(run))
    assert (source.id, source.outcome) == ("source", "shown")
    assert "gated against itself" in source.words
    assert [one.outcome for one in rest] == ["passed"]


def test_one_of_several_seeds_is_held_against_the_others() -> None:
    runs = [measured({"grad_norm": values(seed, level)}, name=f"{seed}") for seed, level in enumerate((1.0, 1.01, 2.5))]
    source, found = against(runs[2], made(*runs))
    assert "other runs only" in source.words
    assert found.outcome == "failed"
    assert "2 baseline runs" in found.data


@repeatable
@given(
    level=st.floats(0.3, 3.0),
    noise=st.floats(0.0, 0.5),
    limits=st.tuples(st.floats(1.01, 4.0), st.floats(1.01, 4.0)).map(sorted),
    seed=st.integers(0, 50),
)
def test_loosening_the_limit_never_fails_a_run(level: float, noise: float, limits: list[float], seed: int) -> None:
    run, held = measured({"grad_norm": values(seed, level, noise=noise)}), base(noise=noise)
    tight, loose = (judged(run, held, limit=limit).outcome for limit in limits)
    assert (tight, loose) not in {("passed", "failed"), ("blind", "failed")}


@repeatable
@given(seed=st.integers(0, 200), noise=st.floats(0.0, 1.0), level=st.floats(0.2, 5.0))
def test_a_pass_always_excludes_what_must_be_shown(seed: int, noise: float, level: float) -> None:
    found = judged(measured({"grad_norm": values(seed, level, noise=noise)}), base(noise=noise))
    if found.outcome == "passed":
        assert found.high is not None
        assert found.expected is not None
        assert found.high < (EXCLUDED_RATIO - 1) * abs(found.expected) * (1 + 1e-9)


def test_judging_needs_no_more_than_the_small_figures() -> None:
    run, held = measured({"grad_norm": values(1, 1.6)}), base()
    assert against(placed(run, held), held) == against(run, held)


def test_the_page_lists_every_known_direction_with_its_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "baselines.md").read_text(encoding="utf-8")
    for name, one in DIRECTIONS.items():
        floor = f"{one.floor:g}" if one.floor else "its scatter" if one.signed else ""
        assert one.worse in Worse
        assert f"| `{name}` | {one.worse.value} | {one.why} | {floor} |" in page


LEVELS = np.linspace(1.0, 2.0, 12)
LOUD = np.random.default_rng(3).normal(size=12)


def tails(run_levels: Any, *others: Any, **changes: Any) -> dict[str, BaselineComparison]:
    held = baseline_with(*[with_tails(f"seed {n}", curves_at(one)) for n, one in enumerate((LEVELS, *others))])
    found = against(with_tails("run", curves_at(run_levels), **changes), held)
    return {one.id: one for one in found}


def test_tails_alike_pass_and_larger_ones_fail() -> None:
    alike = tails(LEVELS * np.exp(0.02 * LOUD))
    assert {one.outcome for one in alike.values()} == {"passed"}
    larger = tails(1.6 * LEVELS * np.exp(0.02 * LOUD))
    assert larger["tails.post_tool.all"].outcome == "failed"
    assert larger["tails.post_tool.all"].ratio == pytest.approx(1.6, rel=0.05)
    late = tails(LEVELS * np.where(np.arange(12) < 8, 1.0, 1.7) * np.exp(0.02 * LOUD))
    assert late["tails.post_tool.late"].outcome == "failed"


def test_a_tail_that_counts_as_its_floor_says_so_beside_what_it_is() -> None:
    """p95 0.3 against 0.1 nats and p99 twice as much: all of it lies below the floors."""
    low = np.full(12, 0.1)
    found = against(with_tails("run", curves_at(3 * low)), baseline_with(with_tails("seed", curves_at(low))))
    assert [one.outcome for one in found] == ["passed", "passed"]
    for one in found:
        assert one.ratio == pytest.approx(1.0, abs=0.05)
        assert "1.00 times the baseline's" in one.words
        assert ". A p95 below 0.35 or a p99 below 0.69 nats counts as that much, " in one.words
        assert "p95 is 0.30 against 0.10 nats (3.0 times) and p99 is 0.60 against 0.20 nats (3.0 times)" in one.words
    rising = np.array([0.1] * 8 + [0.4] * 4)
    higher = against(with_tails("run", curves_at(2 * rising)), baseline_with(with_tails("seed", curves_at(rising))))
    late = next(one for one in higher if one.id.endswith(".late"))
    assert late.outcome == "failed"
    assert "counts as that much" not in late.words  # no late span is below
    high = against(with_tails("run", curves_at(20 * low)), baseline_with(with_tails("seed", curves_at(10 * low))))
    assert [("counts as that much" in one.words, one.outcome) for one in high] == [(False, "failed")] * 2


def test_tails_too_noisy_to_tell_are_blind() -> None:
    found = tails(LEVELS * np.exp(0.9 * LOUD))
    assert "blind" in {one.outcome for one in found.values()}
    assert "failed" not in {one.outcome for one in found.values()}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"pair": "policy/rollout"}, "different things"),
        ({"pair": None, "slices": (), "tails": (), "why_no_tails": "no ref_logp"}, "no ref_logp"),
        ({"slices": ("observed",), "tails": curves_at(LEVELS, slice_="observed")}, "no slice post_tool"),
        ({"tails": curves_at(LEVELS * np.nan, tokens=0)}, "no improvement"),
        ({"tails": curves_at([*LEVELS[:4], *[np.nan] * 8])}, "over the run only 4 spans have enough tokens"),
        ({"tails": curves_at([*LEVELS[:1], *[np.nan] * 11])}, "over the run only 1 span has enough tokens"),
        ({"tails": curves_at([*LEVELS[:1], *[np.nan] * 11])}, "late in the run no span has enough tokens"),
    ],
    ids=["other pair", "no tokens", "other slice", "tools vanished", "too short", "one span", "none late"],
)  # fmt: skip
def test_tails_that_cannot_be_compared_are_blind(changes: dict[str, Any], reason: str) -> None:
    held = baseline_with(with_tails("seed", curves_at(LEVELS)))
    found = against(replace(with_tails("run", curves_at(LEVELS)), **changes), held)
    assert {one.outcome for one in found} == {"blind"}
    assert any(reason in one.words for one in found)


def test_a_baseline_without_tails_says_so_of_a_run_that_has_them() -> None:
    found = against(with_tails("run", curves_at(LEVELS)), baseline_with(facts("seed", why_no_tails="no tokens")))
    assert [one.outcome for one in found] == ["blind"]
    assert "no tokens" in found[0].words


def test_nothing_is_asked_where_nobody_recorded_tokens() -> None:
    assert against(facts("run"), baseline_with(facts("seed"))) == ()
