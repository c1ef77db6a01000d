"""Runs of the bench of faults in mid-run: sound ones are consistent in raw numbers, faulty ones hold their fault."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from benchmarks.midrun.judged import BLOCKS, build, step_is_right
from benchmarks.midrun.kinds import KINDS, Kind, ratios
from benchmarks.midrun.make import draw, make
from benchmarks.midrun.run import FloatArray, Run, Truth
from benchmarks.midrun.write import by_place, figures, k3, write

SOUND = [kind for kind in KINDS if kind.sort == "sound"]
FAULTY = [kind for kind in KINDS if kind.sort == "faulty" and not kind.name.startswith(("sampler", "reference re"))]
DEV = BLOCKS["dev"]


def name_of(kind: Kind) -> str:
    return kind.name


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOUND, ids=name_of)
def test_sound_runs_are_consistent(kind: Kind) -> None:
    for number in range(3):
        run, truth = build(kind, DEV, number)
        assert not truth.found_allowed
        own = run.sampled
        assert np.array_equal(run.mask, own)
        k3s = by_place(k3(run.tokens["policy_logp"][own], run.tokens["ref_logp"][own]), run.token_place[own], run.count)
        assert np.allclose(run.logged["kl"], k3s)
        scored_as_sampled = run.plan.top_p == 1 and (run.plan.scored_at is not None or run.plan.temperature[0] == 1)
        if scored_as_sampled:
            assert -run.tokens["policy_logp"][own].mean() == pytest.approx(run.tokens["entropy"][own].mean(), rel=0.06)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTY, ids=name_of)
def test_faulty_runs_hold_their_fault_from_its_step_on(kind: Kind) -> None:
    run, truth = build(kind, DEV, 1)
    seed = run.plan.seed
    plan = draw(seed)
    kind.prepare(plan, np.random.default_rng([*seed, 9]))
    sound = make(plan)
    start = 0 if truth.step is None else int(np.searchsorted(plan.steps, truth.step))
    late, before = _by_step(run), _by_step(sound)
    changed = [not np.array_equal(late[step], before[step]) for step in range(len(plan.steps))]
    if truth.held:  # it ends there
        assert all(changed[1:start])
        assert not any(changed[start:])
    else:
        assert not any(changed[:start])
        assert sum(changed[start:]) > 0.9 * len(changed[start:])


def _by_step(run: Run) -> list[FloatArray]:
    names = ("policy_logp", "old_logp", "rollout_logp", "ref_logp")
    whole = np.stack([run.mask, *(np.nan_to_num(run.tokens[name], nan=1.0) for name in names)])
    return [whole[:, run.token_place == step].ravel() for step in range(run.count)]


@pytest.mark.slow
def test_growth_is_after_tools_alone_unless_both_grow() -> None:
    for kind in KINDS:
        if kind.sort != "growth":
            continue
        run, truth = build(kind, DEV, 1)
        text, post = ratios(run)
        assert truth.ratio == (text, post)
        assert post > 1.3
        assert (text > 1.5) == (kind.name == "both grow alike")


def test_what_is_written_is_what_was_made_and_what_a_trainer_would_log(tmp_path: Path) -> None:
    run, _ = build(KINDS[0], DEV, 0)
    folder = write(run, tmp_path / "run")
    files = sorted((folder / "tokens").glob("*.parquet"))
    assert len(files) == run.count
    tokens = pl.concat([pl.read_parquet(file) for file in files], how="diagonal")
    assert tokens["model_mask"].explode().sum() == int(run.mask.sum())
    assert tokens["ref_logp"].explode().to_numpy() == pytest.approx(run.tokens["ref_logp"], nan_ok=True)
    assert figures(run, run.mask)["kl"].max() > 10 * run.logged["kl"].max()  # the trainer's own is sound here


def test_a_step_is_right_within_a_twentieth_of_the_run_and_two_recorded_steps() -> None:
    steps, truth = np.arange(0, 1000, 10), Truth(kind="", sort="faulty", found_allowed=False, step=500)
    assert step_is_right({"onset": 550, "held": None}, steps, truth)
    assert not step_is_right({"onset": 570, "held": None}, steps, truth)
    assert not step_is_right({"onset": None, "held": 0}, steps, truth)
    always = Truth(kind="", sort="faulty", found_allowed=False)
    assert step_is_right({"onset": None, "held": 0}, steps, always)
    assert not step_is_right({"onset": 500, "held": None}, steps, always)
