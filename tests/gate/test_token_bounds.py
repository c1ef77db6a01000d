"""Bounds on tails and effective sample sizes, against the tokens themselves."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
from builders import Story, growing, sequences_of, steady, write_recorder_run
from gate_samples import check_of, gated
from slow_cases import first_fast

from ptt import api
from ptt.diagnostics.gate.baseline.file import read_baseline, text_of
from ptt.diagnostics.gate.baseline.measure import baseline_of, measure
from ptt.diagnostics.gate.baseline.moves import ESS, spreads
from ptt.diagnostics.gate.results import CheckResult, Outcome
from ptt.diagnostics.metrics.recording import how_to_record
from ptt.diagnostics.statistics.ess import jackknife_ess
from ptt.diagnostics.store.diagnosis import LoadedRun

Array = npt.NDArray[np.float64]


def opened(folder: Path, frame: pl.DataFrame) -> LoadedRun:
    return api.open_run(write_recorder_run(folder / "run", frame), out=folder / "out")


def tokens(frame: pl.DataFrame, slice_: str, first: int, last: int) -> Array:
    """Give r of a slice's model tokens in steps first to last; in these runs one observation parts the slices."""
    found = []
    for row in frame.filter(pl.col("step").is_between(first, last)).iter_rows(named=True):
        r = np.array(row["policy_logp"], np.float32).astype(float) - np.array(row["ref_logp"], np.float32).astype(float)
        mask = np.array(row["model_mask"])
        after = np.cumsum(~mask) > 0
        found.append(r[mask & (after if slice_ == "post" else ~after)])
    return np.concatenate(found)


def checked(run: LoadedRun, metric: str, rest: str, head: str = "") -> CheckResult:
    return check_of(gated(run, f'{head}[[gate.bound]]\nname = "b"\nmetric = "{metric}"\n{rest}\n'), "bound:b")


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> tuple[pl.DataFrame, LoadedRun]:
    frame = growing(seed=3)
    return frame, opened(tmp_path_factory.mktemp("grown"), frame)


@pytest.mark.parametrize(
    ("window", "first", "last"),
    [("early", 1, 20), ("mid", 21, 40), ("late", 41, 60), ("all", 1, 60), ("last 15", 46, 60)],
)
@pytest.mark.parametrize("quantile", first_fast(["p99", "p95"]))
def test_a_tail_is_the_percentile_of_all_tokens_of_its_window(
    grown: tuple[pl.DataFrame, LoadedRun], window: str, first: int, last: int, quantile: str
) -> None:
    frame, run = grown
    check = checked(run, f"tail.post_observation.{quantile}", f'max = 50\nwindow = "{window}"')
    expected = float(np.percentile(np.abs(tokens(frame, "post", first, last)), float(quantile[1:])))
    assert check.observed == pytest.approx(expected, rel=0.005)  # |r| is known to its bin
    assert check.low is not None
    assert check.high is not None
    assert check.low < expected < check.high
    assert f"steps from {first} to {last}" in check.data


def test_its_growth_is_the_last_third_over_the_first(grown: tuple[pl.DataFrame, LoadedRun]) -> None:
    frame, run = grown
    check = checked(run, "tail.post_observation.p95", 'max = 2\nwindow = "all"\nstatistic = "ratio"')
    early, late = (np.percentile(np.abs(tokens(frame, "post", *span)), 95) for span in ((1, 20), (41, 60)))
    assert check.observed == pytest.approx(late / early, rel=0.01)
    assert check.outcome is Outcome.FAILED


def test_an_effective_sample_size_is_that_of_the_tokens_weights(grown: tuple[pl.DataFrame, LoadedRun]) -> None:
    frame, run = grown
    for name, slice_ in (("post_observation", "post"), ("text_only", "text")):
        check = checked(run, f"ess.{name}", "min = 0.0001")
        weights = np.exp(tokens(frame, slice_, 41, 60))
        assert check.observed == pytest.approx(weights.sum() ** 2 / (len(weights) * np.square(weights).sum()), rel=1e-3)


def test_the_jackknife_is_that_of_leaving_out_each_unit_in_turn() -> None:
    generator = np.random.default_rng(2)
    groups = [np.exp(0.7 * generator.standard_normal(generator.integers(20, 60))) for _ in range(25)]

    def share(held: list[Array]) -> float:
        every = np.concatenate(held)
        return float(every.sum() ** 2 / (len(every) * np.square(every).sum()))

    left = np.log([share(groups[:i] + groups[i + 1 :]) for i in range(25)])
    sums = (np.array([float(of(one)) for one in groups]) for of in (len, np.sum, lambda one: np.square(one).sum()))
    value, error = jackknife_ess(*sums)
    assert value == pytest.approx(share(groups))
    assert error == pytest.approx(np.sqrt(24 / 25 * np.square(left - left.mean()).sum()))


def test_a_bound_inside_an_order_of_magnitude_divides_nothing(tmp_path: Path) -> None:
    story = Story(seed=4, steps=15, sequences=2, likeness=2.5)
    run = opened(tmp_path, sequences_of(story))
    name, whole = "tail.post_observation.p95", "\nwindow = 'last 15'"
    above = checked(run, name, f"max = 50{whole}")
    assert above.outcome is Outcome.PASSED  # far outside of what it may be
    assert above.low is not None
    assert above.high is not None
    assert above.high > 10 * above.low
    assert checked(run, name, f"max = 0.001{whole}").outcome is Outcome.FAILED
    inside = checked(run, name, f"max = 1{whole}")
    assert inside.outcome is Outcome.BLIND
    assert "leave it at anything from 0.0802 to 2.49" in inside.claim
    assert inside.title == f"{name} over the last 15 recorded steps is at most 1"


def test_the_sample_size_that_a_baseline_shows_is_the_one_a_bound_is_held_against(
    grown: tuple[pl.DataFrame, LoadedRun], tmp_path: Path
) -> None:
    run, file = grown[1], tmp_path / "b.toml"
    file.write_text(text_of(baseline_of([measure(run)], name="b", version="0")), encoding="utf-8")
    shown = {(one.statistic, one.slice): one for one in spreads(read_baseline(file))}
    for name in ("post_observation", "text_only"):
        check, one = checked(run, f"ess.{name}", "min = 1e-30"), shown[ESS, name]
        assert check.observed is not None
        assert check.low is not None
        assert one.mean == pytest.approx(check.observed, rel=1e-3)
        assert one.noise == pytest.approx(np.log(check.observed / check.low) / 1.96, rel=1e-2)
        assert f", {one.counts[0]} tokens of {name}" in check.data
        assert shown["p95", name].counts == one.counts  # late ones, not those of the whole run


def test_an_effective_sample_size_that_one_weight_decides_divides_nothing(tmp_path: Path) -> None:
    calm = sequences_of(Story(seed=4))
    last = pl.col("seq") == calm["seq"].max()
    shifted = pl.col("ref_logp").list.eval(
        pl.when(pl.int_range(pl.len()) == 0).then(pl.element() - 12).otherwise(pl.element())
    )
    run = opened(tmp_path, calm.with_columns(ref_logp=pl.when(last).then(shifted).otherwise("ref_logp")))
    inside = checked(run, "ess.text_only", "min = 0.3")
    assert inside.outcome is Outcome.BLIND
    assert "tokens of text_only leave it at anything from" in inside.claim
    assert "a few weights decide it" in inside.next[0]
    assert checked(run, "ess.text_only", "min = 1e-30").outcome is Outcome.PASSED  # far outside of what it may be
    whole = checked(run, "ess.text_only", 'min = 0.3\nwindow = "early"')
    assert whole.outcome is Outcome.PASSED


def test_copied_logprobs_have_no_tail_and_pass_no_bound(tmp_path: Path) -> None:
    frame = sequences_of(Story(seed=4)).with_columns(ref_logp=pl.col("policy_logp"))
    run = opened(tmp_path, frame)
    for head in ("", "[gate]\ncannot_say = 'pass'\n"):
        check = checked(run, "tail.post_observation.p95", "max = 2", head)
        assert check.outcome is Outcome.BLIND
        assert not check.excused


def test_a_slice_of_another_name_is_told(grown: tuple[pl.DataFrame, LoadedRun]) -> None:
    check = checked(grown[1], "tail.post_tool.p95", "max = 2")
    assert check.outcome is Outcome.BLIND
    assert check.claim == "the run has no slice post_tool, but text_only and post_observation"


def test_too_few_recorded_steps_are_blind(tmp_path: Path) -> None:
    run = opened(tmp_path, sequences_of(Story(steps=12, post=steady(0.5))))
    check = checked(run, "tail.post_observation.p95", "max = 2")
    assert check.outcome is Outcome.BLIND
    assert check.claim == "4 recorded steps are too few"


def test_a_run_without_tokens_is_told_the_line_that_records_them(tmp_path: Path) -> None:
    log = tmp_path / "run" / "metrics.jsonl"
    log.parent.mkdir()
    log.write_text("".join(f'{{"step": {step}, "kl": 0.01}}\n' for step in range(1, 60)))
    check = checked(api.open_run(log.parent, out=tmp_path / "out"), "tail.post_tool.p95", "max = 2")
    assert check.outcome is Outcome.BLIND
    assert check.next == (how_to_record(None, ["policy_logp", "ref_logp", "model_mask"]),)


def stopped(frame: pl.DataFrame, folder: Path, steps: int) -> LoadedRun:
    """Of the frame's tokens, with metrics that go on."""
    kl = np.random.default_rng(0).uniform(0.01, 0.02, steps)
    return api.open_run(write_recorder_run(folder / "run", frame, metrics={"kl": list(kl)}), out=folder / "out")


def test_tokens_that_stopped_long_before_the_run_have_no_late_window(tmp_path: Path) -> None:
    run = stopped(sequences_of(Story(seed=1)), tmp_path, 200)
    for window in ("late", "all", "last 10"):
        check = checked(run, "tail.post_observation.p95", f'max = 2\nwindow = "{window}"')
        assert check.outcome is Outcome.BLIND
        assert check.claim == "tokens are recorded only up to step 60, but the run reaches step 200"
    assert checked(run, "tail.post_observation.p95", 'max = 2\nwindow = "early"').outcome is Outcome.PASSED


def test_a_run_that_calls_no_tools_any_more_passes_no_bound_on_what_follows_them(tmp_path: Path) -> None:
    frame = sequences_of(Story(seed=1, tool_share=lambda done: 0.75 if done < 0.8 else 0.0))
    run = opened(tmp_path, frame)
    for metric, rest in (("tail.post_observation.p95", "max = 2"), ("ess.post_observation", "min = 0.01")):
        check = checked(run, metric, rest)
        assert check.outcome is Outcome.BLIND
        assert check.claim == "there are no post_observation tokens after step 48"
    assert checked(run, "tail.text_only.p95", "max = 2").outcome is Outcome.PASSED


def test_tokens_that_are_no_numbers_may_be_the_tail(tmp_path: Path) -> None:
    run = opened(tmp_path, sequences_of(Story(seed=1, nan_share=0.3)))
    for head in ("", "[gate]\ncannot_say = 'pass'\n"):
        check = checked(run, "tail.post_observation.p95", "max = 2", head)
        assert check.outcome is Outcome.BLIND
        assert not check.excused
        assert "have no finite log-ratio" in check.claim


def test_weights_beyond_all_numbers_are_excused_by_nothing(grown: tuple[pl.DataFrame, LoadedRun]) -> None:
    run = grown[1]
    assert run.profile is not None
    huge = run.profile.sequences.with_columns(s_rho=pl.lit(np.inf), s_rho2=pl.lit(np.inf))
    far = replace(run, profile=replace(run.profile, sequences=huge))
    check = checked(far, "ess.post_observation", "min = 0.1", "[gate]\ncannot_say = 'pass'\n")
    assert check.outcome is Outcome.BLIND
    assert not check.excused
    assert check.claim == "weights of post_observation are too large to compute"


@pytest.mark.parametrize("weights", [np.eye(1, 40)[0], np.zeros(40)])
def test_weights_of_one_unit_alone_or_of_none_leave_the_error_open_without_a_word(weights: Array) -> None:
    value, error = jackknife_ess(np.ones(40), weights, weights**2)
    assert math.isnan(error)
    assert math.isnan(value) if not weights.any() else value == pytest.approx(1 / 40)
