"""The calibration bench: its truths against brute force, its rates against scipy, and a few of its runs judged."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from slow_cases import first_fast

from benchmarks import naive
from benchmarks.calibration import SEEDS, lines_of, run, tasks_of
from benchmarks.growth_ceiling import CAUSES, cause_of
from benchmarks.span.ceiling import ceiling
from benchmarks.span.draw import draw
from benchmarks.span.dump import make, rounded
from benchmarks.span.faults import PLANTED
from benchmarks.span.judged import Judged, judge
from benchmarks.span.run import Attribute, Drawn, Growth
from benchmarks.span.strata import Rate, answers, recall_strata, required, sort
from benchmarks.span.truth import Truth, ends, truth_of

FIRST = SEEDS["tests"].start
TRUE = Truth(
    signature=True,
    why="",
    size=4.0,
    nats=3.0,
    late_p99=4.0,
    rare=False,
    late=False,
    carried=3.0,
    start=50,
    halfway=60,
    holder=None,
)
RIGHT = Judged(
    seed=0,
    fault="",
    plan="growth",
    form="scale",
    shape="step",
    spacing="every",
    precision="float32",
    tool_use="",
    recorded=100,
    span=100,
    truth=TRUE,
    status="found",
    verdict="unstable",
    reason="",
    severity="critical",
    onset=55,
    interval=(45, 62),
    passed=None,
    truly_passed=None,
    holder_named=None,
    faults=(),
    blocked=False,
    alarms_truly=False,
    aggregates="quiet",
    lead=None,
    naive=(True, False, True),
    crashes=(),
)
FLAT = replace(RIGHT, plan="quiet", truth=replace(TRUE, signature=False), status="not_found", verdict="healthy")


def plain(**changes: Any) -> Drawn:
    """A run with many tokens, little noise, and one tool, so that its made percentiles are near its true ones."""
    drawn = next(one for one in map(draw, range(FIRST, FIRST + 60)) if one.plan == "quiet" and one.after > 0.3)
    steps = np.arange(1, 41)
    layout = replace(
        drawn.layout,
        steps=steps,
        per_step=np.full(40, 64),
        length=np.full(40, 100.0),
        duplicates=0.0,
        precision="float32",
        group=8,
    )
    noise = replace(drawn.noise, step_sd=np.full(40, 1e-6), rho=0.0, token_ar=0.0)
    env = Attribute(name="env", values=("a", "b"), shares=np.repeat([[0.75], [0.25]], 40, axis=1), scales=np.ones(2))
    tool = Attribute(
        name="tool", values=("x", "y"), shares=np.stack([np.linspace(1, 0.5, 40), np.linspace(0, 0.5, 40)]),
        scales=np.array([1.0, 1.3]),
    )  # fmt: skip
    whole = replace(
        drawn, layout=layout, noise=noise, attributes=(tool, env), tools=np.full(40, 0.9), level=np.ones(40), p99=0.5
    )
    return replace(whole, **changes)


def made_level(drawn: Drawn, quantile: float, *, last: bool) -> float:
    """The percentile of the made run's post-tool tokens in its first or last eight steps."""
    import polars as pl

    table = pl.from_arrow(make(drawn).select(["step", "model_mask", "policy_logp", "ref_logp"]))
    assert isinstance(table, pl.DataFrame)
    step, r, post = naive.tokens_of(table)
    part = step > drawn.layout.steps[-9] if last else step <= drawn.layout.steps[7]
    return float(np.quantile(np.abs(r[post & part]), quantile))


STEP = Growth(shape="step", size=4.0, start=0.5, end=0.5, curve=lambda u: (u >= 0.5).astype(np.float64))


@pytest.mark.parametrize(
    "growth",
    first_fast(
        [
            STEP,
            replace(STEP, attribute="env", value="b"),
            replace(STEP, attribute="tool", value="y"),
            replace(STEP, form="share", share=0.2, size=8.0),
            replace(STEP, form="rare", share=0.008, size=30.0),
        ],
        1,
    ),
    ids=["everywhere", "in one environment", "after one tool", "in a share of sequences", "in few tokens"],
)
@pytest.mark.parametrize("quantile", [0.95, 0.99])
def test_the_true_levels_are_those_of_the_made_tokens(growth: Growth, quantile: float) -> None:
    drawn = plain(post=growth)
    places = np.arange(40)
    true = drawn.levels("post", quantile, places)
    assert made_level(drawn, quantile, last=False) == pytest.approx(true[:8].mean(), rel=0.12)
    assert made_level(drawn, quantile, last=True) == pytest.approx(true[-8:].mean(), rel=0.12)


def test_growth_that_meets_every_condition_is_the_signature_and_each_that_fails_one_is_not() -> None:
    assert truth_of(plain(post=STEP)).signature is True
    assert truth_of(plain(post=STEP)).start == truth_of(plain(post=STEP)).halfway == 21
    assert truth_of(plain(post=Growth(), p99=2.0)).why == "growth"
    assert truth_of(plain(post=STEP, p99=0.05)).why == "material"
    bell = replace(STEP, shape="spike", curve=lambda u: np.exp(-(((u - 0.5) / 0.2) ** 2)))
    assert truth_of(plain(post=bell)).signature is False
    assert truth_of(plain(post=STEP, text=STEP, text_p99=0.5)).why == "localised"
    assert ends(plain(post=STEP), 0.99)[1] / ends(plain(post=STEP), 0.99)[0] == pytest.approx(4.0, rel=0.2)


def test_the_noisier_the_run_the_less_it_can_carry() -> None:
    quiet, loud = (
        plain(post=STEP, noise=replace(plain().noise, step_sd=np.full(40, sd), rho=0.6)) for sd in (0.05, 0.2)
    )
    assert truth_of(quiet).carried > 2 * truth_of(loud).carried > 0


def test_the_same_seed_draws_and_makes_the_same_run() -> None:
    assert make(draw(FIRST)).equals(make(draw(FIRST)))


def test_every_plan_and_precision_is_drawn() -> None:
    drawn = [draw(seed) for seed in SEEDS["tests"]]
    assert len({one.plan for one in drawn}) == 10
    assert {one.layout.precision for one in drawn} == {"float32", "bfloat16", "float16", "4 decimals"}
    assert len({one.layout.spacing for one in drawn}) == 4


def test_tool_use_goes_both_ways_between_next_to_none_and_next_to_all_in_a_quarter_of_the_runs() -> None:
    drawn = [one for one in map(draw, range(FIRST, FIRST + 300)) if one.tool_use]
    assert 45 < len(drawn) < 105
    assert {one.tool_use for one in drawn} == {"rising", "falling"}
    for one in drawn:
        first, last = (one.tools[0], one.tools[-1]) if one.tool_use == "rising" else (one.tools[-1], one.tools[0])
        assert first < last
    assert any(one.tools.min() < 0.02 for one in drawn)
    assert any(one.by_group for one in drawn)
    assert any(not one.by_group for one in drawn)


def test_growth_of_text_by_the_same_factor_is_not_localised_however_many_nats_it_is_after_tools() -> None:
    assert truth_of(plain(post=STEP, text=STEP, text_p99=0.05)).why == "localised"
    assert truth_of(plain(post=STEP, text=STEP, text_p99=0.05)).signature is False


def test_a_sequence_that_repeats_another_has_its_calls_too() -> None:
    drawn = [one for one in map(draw, range(FIRST, FIRST + 100)) if one.layout.duplicates and one.layout.group > 1]
    for one in drawn[:5]:
        rows = make(one).select(["model_mask", "tool_names"]).to_pylist()
        masks = [np.concatenate([[True], row["model_mask"]]) for row in rows]
        answers = [int(np.count_nonzero(mask[:-1] & ~mask[1:])) for mask in masks]
        assert answers == [len(row["tool_names"]) for row in rows]


GROWN = {
    "scale": STEP,
    "one environment": replace(STEP, attribute="env", value="b"),
    "share": replace(STEP, form="share", share=0.2, size=8.0),
    "rare": replace(STEP, form="rare", share=0.008, size=30.0),
}


@pytest.mark.parametrize("growth", first_fast(GROWN.values(), 2), ids=GROWN)
def test_the_best_test_shows_clear_growth_and_none_where_there_is_none(growth: Growth) -> None:
    small = plain()
    layout = replace(small.layout, per_step=np.full(40, 8))
    noise = replace(small.noise, step_sd=np.full(40, 0.05))
    assert ceiling(replace(small, layout=layout, noise=noise, post=growth)).p_value < 0.01
    still = replace(small, layout=layout, noise=noise, post=replace(growth, size=1.001))
    assert ceiling(still).p_value > 0.01
    assert ceiling(still).noise_known > 0.01


def test_missed_growth_is_put_down_to_the_first_condition_that_was_not_met() -> None:
    seed = next(seed for seed in SEEDS["tests"] if (one := truth_of(draw(seed))).signature and one.carried > 3)
    met: dict[str, bool | None] = {"growth": True, "localised": True, "lasting": True, "material": True}
    missed: list[dict[str, bool | None]] = [
        {},
        met | {"growth": False},
        met | {"lasting": None},
        met | {"material": False},
    ]
    causes = [cause_of(replace(RIGHT, seed=seed, conditions=one)) for one in missed]
    assert causes == [CAUSES[3], CAUSES[2], CAUSES[3], CAUSES[1]]


def test_bfloat16_is_the_upper_half_of_a_float32_rounded() -> None:
    values = -np.random.default_rng(0).exponential(1.0, 10_000).astype(np.float32)
    bits = values.view(np.uint32)
    halves = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    assert np.array_equal(rounded(values.astype(np.float64), "bfloat16"), halves)


@pytest.mark.parametrize(("hits", "of"), [(0, 30), (3, 200), (29, 30), (30, 30)])
def test_intervals_are_wilsons(hits: int, of: int) -> None:
    reference = binomtest(hits, of).proportion_ci(method="wilson")
    assert Rate(name="", hits=hits, of=of).interval == pytest.approx((reference.low, reference.high), abs=1e-9)


def failed(judged: list[Judged]) -> set[str]:
    return {one.name for one in required(sort(judged)) if one.met is False}


def test_each_aim_that_is_missed_is_called_missed() -> None:
    right = [RIGHT] * 40 + [FLAT] * 100
    late = replace(RIGHT, truth=replace(TRUE, late=True))
    rare = replace(RIGHT, truth=replace(TRUE, rare=True))
    assert failed(right) == set()
    assert failed([*right, *[replace(FLAT, status="found")] * 2]) == {"false alarms"}
    assert failed([*right, *[replace(RIGHT, status="not_found")] * 2]) == {"recall at 2.5x or more"}
    assert failed([*right, replace(late, status="not_found", verdict="healthy")]) == {
        "growth in the last fifth found",
        "growth in the last fifth missed, lateness given as the reason",
        "growth in the last fifth called healthy",
    }
    too_late = replace(late, status="cannot_say", reason="it began 3 steps before the end")
    assert failed([*right, late, late, too_late]) == set()
    assert failed([*right, *[replace(FLAT, status="cannot_say", reason=too_late.reason)] * 4]) == {
        "flat runs with lateness given as the reason"
    }
    assert failed([*right, replace(rare, status="not_found")]) == {"recall of rare and extreme tails"}
    assert failed([*right, *[replace(RIGHT, onset=80, interval=(70, 85))] * 4]) == {
        "onset within a tenth of the run",
        "onset interval covers the true onset",
    }


def test_without_runs_no_figure_passes() -> None:
    assert not [one for one in required(sort([])) if one.met]


def test_what_a_run_cannot_carry_is_counted_apart_and_not_dropped() -> None:
    small = replace(RIGHT, truth=replace(TRUE, carried=0.7), status="not_found")
    runs = sort([RIGHT, small])
    assert failed([RIGHT, small]) == set()
    stratum = "0.5 to 1 of the smallest detectable"
    assert any(stratum in line and "| 1 | 0 | 0 | 0 | 1 |" in line for line in answers(runs))
    assert {one.of for one in recall_strata(runs)} == {1}


def test_the_page_names_every_planted_fault() -> None:
    lines = "\n".join(lines_of(sort([RIGHT, FLAT])))
    assert all(f"planted: {name}" in lines for name in PLANTED)
    assert len(tasks_of(3, 2, "held-out")) == 3 + 2 * len(PLANTED)


def test_what_was_judged_before_is_read_and_not_judged_again(tmp_path: Path) -> None:
    held = replace(RIGHT, seed=7, truth=replace(TRUE, holder=("tool", "x")), faults=("rounded-logprobs low",))
    kept = tmp_path / "kept.jsonl"
    kept.write_text(json.dumps(asdict(held)) + "\n", encoding="utf-8")
    assert run([(7, "")], 1, kept) == [held]


@pytest.mark.slow
def test_runs_without_the_signature_raise_no_alarm_and_large_growth_is_found() -> None:
    drawn = [(seed, truth_of(draw(seed))) for seed in SEEDS["tests"]]
    quiet = [seed for seed, truth in drawn if truth.signature is False][:6]
    large = [
        seed for seed, truth in drawn
        if truth.signature and truth.carried > 2 and truth.size > 2.5 and not truth.rare and not truth.late
    ][:4]  # fmt: skip
    assert [judge((seed, "")).status for seed in quiet].count("found") == 0
    told = [judge((seed, "")).status for seed in large]
    assert "not_found" not in told
    assert told.count("found") >= 0.7 * len(large) >= 2
    assert len(quiet) == 6


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_named(fault: str) -> None:
    found = judge((FIRST + 1, fault)).faults
    assert {one.split()[0] for one in found} & set(PLANTED[fault][1])
