"""Stale rollouts, engine against trainer, old logprobs, versions: each rule broken, healthy and not judged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Array, evidence_of, run_of, series_of, tokens_of, write_recorder_run
from rule_cases import BY_ID, broken, healthy, judged, jump, level, not_judged

import ptt
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.machines import Event
from ptt.diagnostics.evidence.mismatch import Freshness, gather_freshness
from ptt.diagnostics.evidence.mismatch_causes import sign
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tokens_by_step import PairSteps
from ptt.diagnostics.model import Broken, Link, Severity
from ptt.diagnostics.rules.data_freshness import response

STEPS = 100


def pair(name: str, *, p99: Array, mean_abs: Array | None = None) -> dict[str, PairSteps]:
    return {
        name: PairSteps(
            pair=name,
            p99=series_of(f"{name} p99", p99),
            p999=series_of(f"{name} p999", 2 * p99),
            mean_abs=series_of(f"{name} mean_abs", p99 / 20 if mean_abs is None else mean_abs),
        )
    }


def recorded(versions: Any, *, steps: int = STEPS, spread: Any = None, each: int = 4) -> pl.DataFrame:
    """Sequences whose engine logprobs scatter by `spread(lag)` around the trainer's; `versions(step)` may be None."""
    draw = np.random.default_rng(7)
    rows: list[dict[str, Any]] = []
    for step in range(1, steps + 1):
        for _ in range(each):
            version = versions(step)
            likely = -draw.exponential(size=40) - 0.7
            sigma = spread(step - version) if spread is not None and version is not None else 0.01
            rows.append(
                {
                    "seq": len(rows),
                    "step": step,
                    "model_mask": [True] * 40,
                    "policy_logp": likely,
                    "old_logp": likely,
                    "rollout_logp": np.minimum(likely + sigma * draw.normal(size=40), -1e-3),
                    "policy_version": version,
                }
            )
    types: dict[str, Any] = {"seq": pl.UInt32, "step": pl.Int64, "model_mask": pl.List(pl.Boolean)}
    types |= dict.fromkeys(("policy_logp", "old_logp", "rollout_logp"), pl.List(pl.Float32))
    return pl.DataFrame(rows, schema=types | {"policy_version": pl.Int64})


def refreshed(every: int) -> Any:
    """A sampler that gets the newest weights every so many steps."""
    return lambda step: (step - 1) // every * every


# --- from sequences to lags


@pytest.mark.parametrize("shift", [0, 1, 1000])
def test_lags_are_counted_from_the_freshest_sequence_whatever_versions_start_at(shift: int) -> None:
    found = gather_freshness(tokens_of(recorded(lambda step: refreshed(10)(step) + shift)))
    assert found is not None
    assert found.lag is not None
    assert found.oldest is not None
    assert found.offset == 1 - shift
    assert found.lag.values.tolist() == [(step - 1) % 10 for step in range(1, STEPS + 1)]
    assert found.oldest.values.tolist() == found.lag.values.tolist()
    assert (found.known_share, found.no_lag_reason) == (1.0, "")


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        (lambda step: 0, "every sequence carries version 0"),
        (lambda step: step // 4, "0.25 a step"),
        (lambda step: 3 * step, "3.0 a step"),
    ],
)
def test_versions_that_do_not_count_steps_give_no_lag_and_say_so(versions: Any, why: str) -> None:
    found = gather_freshness(tokens_of(recorded(versions)))
    assert found is not None
    assert found.lag is None
    assert why in found.no_lag_reason
    assert found.no_lag_reason == not_judged(judged("stale-rollouts", {}, freshness=found)).reason


def test_without_versions_there_is_no_freshness() -> None:
    frame = recorded(lambda step: step)
    assert gather_freshness(None) is None
    assert gather_freshness(tokens_of(frame.drop("policy_version"))) is None
    assert gather_freshness(tokens_of(recorded(lambda step: None))) is None
    partly = gather_freshness(tokens_of(recorded(lambda step: step if step % 2 else None)))
    assert partly is not None
    assert partly.known_share == 0.5


# --- stale rollouts


@pytest.mark.parametrize("old", [True, False])
def test_a_lag_that_leaps_to_the_number_of_steps_is_a_count_that_starts_over(old: bool) -> None:
    lag, kl = level(2.0), np.linspace(0.001, 0.002, STEPS)
    for place in (40, 75):
        lag[place] = place + 1.0
        kl[place] *= 30 if old else 1
    found = broken(judged("stale-rollouts", lagging(lag) | {"mismatch/kl": kl}))
    assert found.severity is (Severity.HIGH if old else Severity.MEDIUM)
    assert found.evidence["steps_affected"] == 2
    assert ("bookkeeping" in found.likely_cause) is not old
    later = np.arange(STEPS) + 500
    resumed = {"staleness/mean": series_of("staleness/mean", np.where(lag > 30, later, lag), steps=later.tolist())}
    assert broken(judged("stale-rollouts", resumed)).evidence["steps_affected"] == 2
    lag[41] = 42.0  # not for a single step
    lag[75] = 30.0  # nor to the number of steps
    healthy(judged("stale-rollouts", lagging(lag)))


def test_a_single_straggler_is_no_count_that_starts_over() -> None:
    lag = level(1.5)
    lag[10] = 9.5
    healthy(judged("stale-rollouts", lagging(lag)))
    again = Event(step=10, kind="restart", text="restarted", source="console.log")
    run = run_of(last_step=STEPS)
    broken(judged("stale-rollouts", lagging(lag), events=(again,), run=run), severity=Severity.MEDIUM)
    lag[10], lag[60] = 1.5, 60.5
    broken(judged("stale-rollouts", lagging(lag)), severity=Severity.MEDIUM)


def test_a_run_that_breaks_from_staleness_breaks_there_first(tmp_path: Path) -> None:
    """As a sampler refreshed every 32 steps does: distances grow with the lag, then the policy goes."""
    frame = recorded(refreshed(32), spread=lambda lag: 0.02 * (1 + lag))
    kl = np.r_[level(0.01, 45), level(1.5, 55)]
    run = write_recorder_run(tmp_path / "run", frame, metrics={"kl": kl.tolist(), "grad_norm": level(1.0).tolist()})
    found = ptt.diagnose(run)
    assert found.verdict.first_broken_link is Link.DATA_FRESHNESS
    by_id = {finding.id: finding for finding in found.findings}
    stale = by_id["stale-rollouts"]
    assert (stale.onset_step, stale.onset_interval) == (10, (9, 10))  # a lag of 9, the first above 8
    assert stale.severity in (Severity.MEDIUM, Severity.HIGH)
    assert by_id["kl-over-target"].severity.at_least(Severity.MEDIUM)
    assert all(
        one.consequence_of for one in found.findings if one is not stale and one.severity.at_least(Severity.MEDIUM)
    )


def lagging(values: Array) -> dict[str, Any]:
    return {"staleness/mean": values}


SAW: Array = (np.arange(STEPS) % 32).astype(np.float64)


def test_a_lag_matters_by_what_it_does() -> None:
    responds = pair("old/rollout", p99=0.02 + 0.03 * SAW)
    broken(judged("stale-rollouts", lagging(SAW), pairs=responds), severity=Severity.MEDIUM, near=10)
    far = pair("old/rollout", p99=0.02 + 0.1 * SAW)
    broken(judged("stale-rollouts", lagging(SAW), pairs=far), severity=Severity.HIGH)
    same = pair("old/rollout", p99=level(0.5))
    broken(judged("stale-rollouts", lagging(SAW), pairs=same), severity=Severity.LOW)
    immaterial = pair("old/rollout", p99=0.001 * (1 + SAW))
    broken(judged("stale-rollouts", lagging(SAW), pairs=immaterial), severity=Severity.LOW)
    logged = {"mismatch/kl": 0.0005 + 0.002 * SAW}
    broken(judged("stale-rollouts", lagging(SAW) | logged), severity=Severity.MEDIUM)
    broken(judged("stale-rollouts", lagging(level(12.0))), severity=Severity.LOW)  # as declared
    growing = lagging(np.linspace(1, 60, STEPS) * level(1.0))
    assert broken(judged("stale-rollouts", growing), severity=Severity.MEDIUM).evidence["lag_grows"] is True


def test_logged_versions_of_the_trained_samples_tell_the_lag_and_a_full_queue() -> None:
    at = np.arange(1, STEPS + 1)

    def versions(behind: Array, name: str = "sample/model_version/mean") -> dict[str, Series]:
        held = series_of(name, np.maximum(np.floor(at - behind), 0.0))
        return {name: replace(held, raw_name=name)}

    full = np.minimum(1 + 0.4 * at, 21.0)
    sizes = {"buffer.queue.capacity": 10_240, "buffer.train_batch_size": 512}
    found = broken(judged("stale-rollouts", {}, other=versions(full), settings=sizes), severity=Severity.MEDIUM)
    assert "the queue is full" in found.context[0]
    other = {"cache.capacity": 10_240, "buffer.train_batch_size": 512}
    for unlike in (sizes | {"buffer.queue.capacity": 102_400}, other):
        assert not broken(judged("stale-rollouts", {}, other=versions(full), settings=unlike)).context
    healthy(judged("stale-rollouts", {}, other=versions(np.full(STEPS, 2.0))))
    later = {
        name: replace(one, steps=one.steps + 500, values=at.astype(np.float64) + 470.0)
        for name, one in versions(full).items()
    }
    assert broken(judged("stale-rollouts", {}, other=later)).observed == 29  # never once fresh
    not_judged(
        judged("stale-rollouts", {}, other=versions(np.linspace(0.5, STEPS / 2, STEPS)))
    )  # counts every other step
    not_judged(judged("stale-rollouts", {}, other=versions(full, "rollout/data_version")))


def test_a_distance_that_starts_over_at_regular_steps_shows_rare_syncs_whatever_versions_say() -> None:
    rare = (np.arange(STEPS) % 24).astype(np.float64)
    fresh = lagging(level(0.5))
    found = broken(
        judged("stale-rollouts", fresh, pairs=pair("old/rollout", p99=level(1.0), mean_abs=0.001 + 0.01 * rare)),
        near=10,
    )
    assert (found.severity, found.observed, found.onset_interval) == (Severity.MEDIUM, 24.0, (1, 10))
    assert "every 24 steps" in found.claim
    broken(
        judged("stale-rollouts", {}, pairs=pair("old/rollout", p99=level(1.0), mean_abs=0.001 + 0.1 * rare)),
        severity=Severity.HIGH,
    )
    broken(judged("stale-rollouts", {"mismatch/kl": 0.001 + 0.02 * rare}), severity=Severity.MEDIUM)


@pytest.mark.parametrize(
    "mean_abs",
    [
        0.001 + 0.001 * (np.arange(STEPS) % 24),  # too small to matter
        0.02 + 0.02 * (np.arange(STEPS) % 6),  # within the bound that is usual
        0.2 + 0.01 * (np.arange(STEPS) % 24),  # an engine that disagrees when its weights are new
        np.full(STEPS, 0.2),
    ],
)
def test_no_rare_syncs_are_seen_in_other_distances(mean_abs: Array) -> None:
    healthy(judged("stale-rollouts", lagging(level(0.5)), pairs=pair("old/rollout", p99=level(1.0), mean_abs=mean_abs)))


def test_a_cache_that_events_empty_is_left_to_engine_mismatch() -> None:
    logged: dict[str, Array] = {"mismatch/logp_abs_mean": 0.002 + 0.02 * (np.arange(STEPS, dtype=np.float64) % 20)}
    found = broken(judged("stale-rollouts", logged))
    assert "only every 20 steps" in found.claim
    cache = (sign("falls_restart", name="kl", when="21, 41"), sign("prefix_caching", setting="it is on"))
    assert not isinstance(judged("stale-rollouts", logged, mismatch_signs=cache), Broken)
    assert "outlives the weights" in broken(judged("engine-mismatch", logged, mismatch_signs=cache)).likely_cause


def test_the_answer_to_the_lag_is_a_plain_count_of_pairs() -> None:
    """Four in five pairs of a stale and a fresh step, counted one by one."""
    draw = np.random.default_rng(11)
    for _ in range(40):
        ages, far = draw.integers(0, 20, size=30).astype(np.float64), draw.lognormal(size=30) * 0.3
        far[ages > 8] *= draw.choice([1.0, 2.0, 4.0])
        stale, fresh = far[ages > 8], far[ages <= 8]
        ahead = sum(one > other for one in stale for other in fresh) / (len(stale) * len(fresh))
        wanted = ahead >= 0.8 and np.median(stale) >= 2 * np.median(fresh) and np.median(stale) >= 0.2
        evidence = replace(evidence_of(), pairs=pair("old/rollout", p99=far))
        assert (response(evidence, series_of("", ages), 8.0) is not None) == wanted


def test_the_lag_of_an_asynchronous_run_is_normal() -> None:
    for values in (level(2.0), level(6.0), np.r_[level(2.0, 60), level(30.0, 3), level(2.0, 37)], np.zeros(STEPS)):
        healthy(judged("stale-rollouts", lagging(values), pairs=pair("old/rollout", p99=level(0.5))))
    not_judged(judged("stale-rollouts", lagging(level(2.0, 5))))
    not_judged(judged("stale-rollouts", lagging(np.full(STEPS, np.nan))))


def test_a_limit_of_the_user_s_is_the_one_in_force() -> None:
    broken(judged("stale-rollouts", lagging(level(6.0)), limits={"lag": 4.0}))


# --- engine against trainer


@pytest.mark.parametrize(
    ("name", "fine", "odd", "bad", "awful"),
    [
        ("mismatch/prob_diff", 0.003, 0.007, 0.02, 0.4),
        ("mismatch/kl", 0.002, 0.03, 0.2, 4.0),
        ("mismatch/prob_error", 1.01, None, 1.2, 3.0),
        ("mismatch/logp_abs_mean", 0.01, None, 0.1, 2.0),
    ],
)
def test_each_figure_has_its_own_limit(name: str, fine: float, odd: float | None, bad: float, awful: float) -> None:
    def steady(value: float) -> dict[str, Array]:
        return {name: value * (1 + 0.002 * np.random.default_rng(5).normal(size=STEPS))}

    healthy(judged("engine-mismatch", steady(fine)))
    if odd is not None:
        broken(judged("engine-mismatch", steady(odd)), severity=Severity.LOW)
    broken(judged("engine-mismatch", steady(bad)), severity=Severity.MEDIUM)
    broken(judged("engine-mismatch", steady(awful)), severity=Severity.HIGH)
    not_judged(judged("engine-mismatch", {name: level(bad, 9)}))
    not_judged(judged("engine-mismatch", {name: np.full(STEPS, np.nan)}))


def test_a_mismatch_may_have_either_sign_and_must_last() -> None:
    broken(judged("engine-mismatch", {"mismatch/kl": -jump(0.001, 0.3)}), severity=Severity.MEDIUM, near=51)
    healthy(judged("engine-mismatch", {"mismatch/kl": np.r_[level(0.001, 60), 5.0, level(0.001, 39)]}))


def test_a_cap_that_cuts_many_ratios_is_a_mismatch_where_nothing_else_is_logged() -> None:
    healthy(judged("engine-mismatch", {"is/truncated_frac": level(0.01)}))
    broken(judged("engine-mismatch", {"is/truncated_frac": level(0.07)}), severity=Severity.MEDIUM)
    broken(judged("engine-mismatch", {"is/truncated_frac": level(0.15)}), severity=Severity.HIGH)


def test_what_grows_with_the_lag_is_no_mismatch() -> None:
    by_lag = pair("old/rollout", p99=0.02 + 0.1 * SAW, mean_abs=0.002 + 0.01 * SAW)
    healthy(judged("engine-mismatch", lagging(SAW), pairs=by_lag))
    also_fresh = pair("old/rollout", p99=1.0 + 0.1 * SAW, mean_abs=0.2 + 0.01 * SAW)
    broken(judged("engine-mismatch", lagging(SAW), pairs=also_fresh), severity=Severity.MEDIUM)


def test_recorded_tokens_have_a_say() -> None:
    tokens = pair("old/rollout", p99=level(1.0), mean_abs=level(0.1))
    broken(judged("engine-mismatch", {}, pairs=tokens), severity=Severity.MEDIUM)
    quiet = pair("policy/rollout", p99=level(0.05), mean_abs=level(0.002))
    found = broken(judged("engine-mismatch", {"mismatch/kl": level(0.4)}, pairs=quiet), severity=Severity.LOW)
    assert "recorded tokens do not show it" in found.claim


# --- old logprobs


def test_old_logprobs_must_be_the_policy_s_at_some_step() -> None:
    broken(judged("old-logprobs-off", {}, pairs=pair("policy/old", p99=level(0.6))), severity=Severity.MEDIUM)
    with_first = np.where(np.arange(STEPS) % 4 == 0, 0.0, level(0.6))
    healthy(judged("old-logprobs-off", {}, pairs=pair("policy/old", p99=with_first)))
    not_judged(judged("old-logprobs-off", {}, pairs=pair("policy/old", p99=level(0.6, 5))))


def test_an_updated_policy_cannot_match_the_engine_better_than_the_old_one() -> None:
    still = pair("policy/old", p99=np.zeros(STEPS))
    nearer = pair("policy/rollout", p99=level(0.02), mean_abs=level(0.002))
    off = pair("old/rollout", p99=level(2.0), mean_abs=level(0.3))
    broken(judged("old-logprobs-off", {}, pairs=still | nearer | off), severity=Severity.MEDIUM)
    alike = pair("old/rollout", p99=level(0.02), mean_abs=level(0.003))
    healthy(judged("old-logprobs-off", {}, pairs=still | nearer | alike))
    both_far = pair("policy/rollout", p99=level(2.0), mean_abs=level(0.29))
    healthy(judged("old-logprobs-off", {}, pairs=still | both_far | off))


def test_a_dump_from_after_the_update_holds_no_wrong_old_logprobs() -> None:
    """Its distance from the old logprobs is the update: a steep learning rate, and no fault of the old logprobs."""
    far = pair("policy/old", p99=level(0.6), mean_abs=level(0.2))
    engine = pair("old/rollout", p99=level(0.05), mean_abs=level(0.004))
    assert "which is the update" in healthy(judged("old-logprobs-off", {}, pairs=far | engine)).reason
    earlier = {"kl/old": level(0.005)}  # the mean over the updates of a batch; 0.2**2 / 2 is 0.02
    assert "over the updates of a batch" in healthy(judged("old-logprobs-off", earlier, pairs=far)).reason
    as_far = {"kl/old": level(0.03)}  # at each update, the first one too
    broken(judged("old-logprobs-off", as_far, pairs=far), severity=Severity.MEDIUM)
    apart = pair("old/rollout", p99=level(1.0), mean_abs=level(0.2))
    broken(judged("old-logprobs-off", earlier, pairs=far | apart), severity=Severity.MEDIUM)


def test_old_logprobs_are_told_in_their_unit_and_by_the_limit_in_force() -> None:
    never = pair("policy/old", p99=level(0.6))
    found = broken(judged("old-logprobs-off", {}, pairs=never, limits={"never_near": 0.3}))
    assert (found.limit, found.unit) == (0.3, "nats")
    both = pair("policy/old", p99=np.zeros(STEPS)) | pair("policy/rollout", p99=level(0.02), mean_abs=level(0.002))
    off = pair("old/rollout", p99=level(2.0), mean_abs=level(0.3))
    found = broken(judged("old-logprobs-off", {}, pairs=both | off, limits={"nearer": 0.2}))
    assert (found.limit, found.unit) == (0.2, "x")


# --- versions


def test_unknown_versions_are_noted_where_sampling_and_training_overlap() -> None:
    known = Freshness(lag=None, oldest=None, offset=0, sequences=100, known_share=0.6, versions=9)
    broken(judged("versions-unknown", {}, freshness=known), severity=Severity.LOW)
    healthy(judged("versions-unknown", {}, freshness=replace(known, known_share=0.95)))
    healthy(judged("versions-unknown", lagging(level(2.0))))
    by_design = replace(run_of(), framework="areal")
    broken(judged("versions-unknown", {}, run=by_design), severity=Severity.LOW)
    overlapping = Algorithm(name="async_grpo", family=Family.ONLINE, critic=False, groups=True)
    broken(judged("versions-unknown", {}, algorithm=overlapping), severity=Severity.LOW)
    queue = {"train/sample/rollout_queue_size": series_of("", level(3.0))}
    broken(judged("versions-unknown", {}, other=queue), severity=Severity.LOW)
    not_judged(judged("versions-unknown", {}))


def test_offline_training_is_not_asked() -> None:
    sft = Algorithm(name="sft", family=Family.SUPERVISED, critic=False, groups=False)
    for rule in (rule for rule in BY_ID.values() if rule.link is Link.DATA_FRESHNESS):
        not_judged(judged(rule.id, {}, algorithm=sft), applies=False)
