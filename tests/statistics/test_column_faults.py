"""Faults of logprob columns that begin in mid-run: each is found with its step, and none in runs that only learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptt.diagnostics.statistics.column_faults import (
    Found,
    Pairing,
    far_lags,
    find_copies,
    find_scales,
    find_shifts,
    find_unrelated,
    largest_jump,
    medians,
)
from ptt.diagnostics.statistics.pair_sample import ALL, SampledColumns

SEED = 20_261_127
STEPS, PER_STEP, LENGTH, OBSERVATION = 60, 16, 40, slice(18, 24)
SINCE = 31
Harm = Callable[[SampledColumns, np.ndarray], np.ndarray]


def learning(seed: int = 0, moved: float = 0.3, noise: float = 0.05) -> SampledColumns:
    """Make a run whose policy moves away from its reference step by step; half of the sequences call a tool."""
    generator = np.random.default_rng([SEED, seed])
    rows = STEPS * PER_STEP
    step = np.repeat(np.arange(1, STEPS + 1), PER_STEP)
    row = np.repeat(np.arange(rows), LENGTH)
    place = np.arange(len(row)) % LENGTH
    called = (generator.random(rows) < 0.5)[row]
    model = ~(called & (place >= OBSERVATION.start) & (place < OBSERVATION.stop))
    size = generator.normal(-3.0, 2.5, len(row))
    drift = moved * np.sqrt(step[row] / STEPS) * generator.standard_t(5, len(row)) + noise * generator.normal(
        size=len(row)
    )
    return SampledColumns(
        step=step,
        start=np.arange(rows + 1) * LENGTH,
        row=row,
        model=model,
        post=model & called & (place >= OBSERVATION.stop),
        values={"ref_logp": -np.exp(size), "policy_logp": -np.exp(size + drift)},
    )


def harmed(harm: Harm, run: SampledColumns | None = None, *, until: bool = False) -> Pairing:
    """Return the run with its reference harmed from step 31 on, or until then."""
    run = run or learning()
    late = (run.step >= SINCE)[run.row]
    ref = np.where(late != until, harm(run, run.values["ref_logp"]), run.values["ref_logp"])
    values = dict(run.values) | {"ref_logp": ref}
    return Pairing(SampledColumns(run.step, run.start, run.row, run.model, run.post, values), "policy_logp", "ref_logp")


def by(tokens: int) -> Harm:
    return lambda _, ref: np.roll(ref, tokens)


def other_rows(run: SampledColumns, ref: np.ndarray) -> np.ndarray:
    """Give each sequence of a step the values of the next one."""
    rows = ref.reshape(-1, PER_STEP, LENGTH)
    return np.roll(rows, 1, axis=1).reshape(-1)


def colder(temperature: float) -> Harm:
    def harm(_: SampledColumns, ref: np.ndarray) -> np.ndarray:
        ref = np.maximum(ref, -50.0)
        own, other = np.exp(ref / temperature), (-np.expm1(ref)) ** (1 / temperature)
        return np.asarray(np.log(own / (own + other)))

    return harm


def only(found: tuple[Found, ...]) -> Found:
    assert len(found) == 1, found
    return found[0]


def since(found: Found) -> tuple[int, tuple[int, int]]:
    assert found.span.to_end
    return found.span.since, found.span.since_interval


@pytest.mark.parametrize("offset", [-7, -1, 1, 2, 13])
def test_a_shift_by_any_offset_is_dated_to_the_step(offset: int) -> None:
    found = only(find_shifts(harmed(by(offset))))
    assert found.lag == offset
    assert found.slice is None
    assert since(found) == (SINCE, (SINCE, SINCE))
    assert found.during > 0.9
    assert found.otherwise < 0.2


def test_a_shift_of_tokens_after_tools_alone_is_of_that_slice() -> None:
    found = only(find_shifts(harmed(lambda run, ref: np.where(run.post, np.roll(ref, 1), ref))))
    assert (found.slice, found.lag, since(found)[0]) == ("post_tool", 1, SINCE)


def test_a_shift_all_along_has_no_beginning() -> None:
    run = learning()
    values = dict(run.values) | {"ref_logp": np.roll(run.values["ref_logp"], 1)}
    shifted = SampledColumns(run.step, run.start, run.row, run.model, run.post, values)
    found = only(find_shifts(Pairing(shifted, "policy_logp", "ref_logp")))
    assert found.span.from_start
    assert found.span.to_end


def test_rows_of_other_sequences_of_text_that_repeats_itself_are_not_shifted() -> None:
    """Columns of it go together at every period, whichever sequence they are of."""
    run = learning()
    wave = 2.0 * np.sin(2 * np.pi * (np.arange(len(run.row)) % LENGTH) / 8)
    values = {name: one * np.exp(wave) for name, one in run.values.items()}
    periodic = SampledColumns(run.step, run.start, run.row, run.model, run.post, values)
    pairing = harmed(other_rows, periodic)
    assert find_shifts(pairing) == ()
    assert since(only(find_unrelated(pairing)))[0] == SINCE


def test_text_that_repeats_itself_is_not_shifted_where_a_reference_begins_unsure() -> None:
    """It knows the second half of each sequence, in which the first comes again."""
    run = learning()
    first = run.values["policy_logp"].reshape(-1, LENGTH)[:, : LENGTH // 2]
    policy = np.concatenate([first, first], axis=1).reshape(-1)
    known = np.arange(len(policy)) % LENGTH >= LENGTH // 2
    values = {"policy_logp": policy, "ref_logp": np.where(known, policy, run.values["ref_logp"][::-1])}
    repeating = SampledColumns(run.step, run.start, run.row, run.model, run.post, values)
    pairing = Pairing(repeating, "policy_logp", "ref_logp")
    assert LENGTH // 2 in far_lags(pairing, ALL, np.arange(4))
    assert find_shifts(pairing) == ()


@pytest.mark.parametrize("until", [False, True])
def test_a_copy_is_dated_to_the_step(until: bool) -> None:
    found = only(find_copies(harmed(lambda run, _: run.values["policy_logp"], until=until)))
    assert found.slice is None
    assert found.during == 1.0
    assert found.otherwise < 0.01
    assert found.edge > 0.5  # the policy has gone on moving behind the copy
    if until:
        assert (found.span.until, found.span.from_start) == (SINCE - 1, True)
    else:
        assert since(found)[0] == SINCE


def test_a_copy_of_tokens_after_tools_alone_is_of_that_slice() -> None:
    found = only(find_copies(harmed(lambda run, ref: np.where(run.post, run.values["policy_logp"], ref))))
    assert (found.slice, since(found)[0]) == ("post_tool", SINCE)


def test_a_policy_that_begins_to_move_starts_near_the_copy() -> None:
    run = learning(moved=0.0, noise=0.0)
    generator = np.random.default_rng(SEED)
    moved = np.maximum(run.step - SINCE + 1, 0)[run.row] / STEPS
    policy = -np.exp(np.log(-run.values["ref_logp"]) + moved * generator.normal(size=len(moved)))
    values = dict(run.values) | {"policy_logp": policy}
    warmed = SampledColumns(run.step, run.start, run.row, run.model, run.post, values)
    found = only(find_copies(Pairing(warmed, "policy_logp", "ref_logp")))
    assert found.span.from_start
    assert found.edge < 0.3


@pytest.mark.parametrize(
    ("harm", "factor"),
    [(lambda _, ref: 1.5 * ref, 1.5), (lambda _, ref: ref / np.log(2), 1.44), (lambda _, ref: 0.5 * ref, 0.5)],
    ids=["1.5", "base 2", "0.5"],
)
def test_another_scale_is_dated_to_the_step(harm: Harm, factor: float) -> None:
    found = only(find_scales(harmed(harm)))
    assert since(found)[0] == SINCE
    assert found.during == pytest.approx(factor, rel=0.1)
    early = only(find_scales(harmed(harm, until=True)))
    assert (early.span.from_start, early.span.until) == (True, SINCE - 1)
    assert early.during == pytest.approx(factor, rel=0.1)


@pytest.mark.parametrize("temperature", [0.7, 1.5])
def test_another_temperature_is_dated_to_the_step(temperature: float) -> None:
    assert since(only(find_scales(harmed(colder(temperature)))))[0] == SINCE


def test_a_tail_that_begins_at_once_is_no_scale() -> None:
    def grown(run: SampledColumns, ref: np.ndarray) -> np.ndarray:
        generator = np.random.default_rng(SEED)
        return np.asarray(ref * np.exp(0.8 * generator.standard_t(3, len(ref))))

    assert find_scales(harmed(grown)) == ()
    assert find_unrelated(harmed(grown)) == ()


def test_rows_of_other_sequences_are_dated_to_the_step() -> None:
    found = only(find_unrelated(harmed(other_rows)))
    assert since(found)[0] == SINCE
    assert found.otherwise > 0.9
    assert found.during < 0.2


def test_a_collapse_takes_the_columns_apart_without_a_fault() -> None:
    run = learning()
    moved = np.clip((run.step - SINCE) / 10, 0, 1)[run.row]
    policy = np.where(np.arange(len(moved)) % 3 == 0, -1e-6, run.values["policy_logp"] * (1 + 20 * moved))
    values = dict(run.values) | {"policy_logp": np.where(moved > 0, policy, run.values["policy_logp"])}
    collapsed = SampledColumns(run.step, run.start, run.row, run.model, run.post, values)
    pairing = Pairing(collapsed, "policy_logp", "ref_logp")
    assert find_unrelated(pairing) == ()
    assert find_shifts(pairing) == ()


@pytest.mark.parametrize("moved", [0.05, 0.3, 1.0])
def test_nothing_is_said_of_a_policy_that_learns(moved: float) -> None:
    for seed in range(5):
        pairing = Pairing(learning(seed, moved), "policy_logp", "ref_logp")
        for find in (find_shifts, find_copies, find_scales, find_unrelated):
            assert find(pairing) == (), (seed, find)


def test_medians_are_those_of_each_group() -> None:
    generator = np.random.default_rng(SEED)
    values, group = generator.normal(size=200), generator.integers(0, 7, 200)
    expected = [np.median(values[group == at]) if (group == at).any() else np.nan for at in range(8)]
    np.testing.assert_allclose(medians(values, group, 8, 1), expected)
    assert np.isnan(medians(values, group, 8, 100)).all()


def test_a_jump_is_larger_than_the_usual_moves() -> None:
    level = np.array([0.0, 0.01, 0.02, 0.01, 0.03, 0.02, 1.0, 1.02, 1.01, 1.03, 1.02, 1.0])
    found = largest_jump(level)
    assert found is not None
    assert found.size == pytest.approx(1.0, abs=0.02)
    assert found.before[1] <= 6 <= found.after[0]
    assert largest_jump(np.linspace(0, 1, 12)) is None
    assert largest_jump(np.full(12, np.nan)) is None
