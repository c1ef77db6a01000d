"""Updates that are too large: each rule broken, healthy and not judged, and the guide's second worked example."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from builders import Array, Story, evidence_of, run_of, sequences_of, series_of
from rule_cases import BY_ID, broken, healthy, judged, jump, level, not_judged, wander
from slow_cases import first_fast

import ptt
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Algorithm, Family
from ptt.diagnostics.evidence.reference import gather_reference
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tokens_by_step import PairSteps
from ptt.diagnostics.model import Broken, JsonScalar, Link, Run, Severity

MU = 4  # updates a batch: the first has a ratio of 1


def pair(name: str, p99: Array, *, p999: Array | None = None, mean_abs: Array | None = None) -> dict[str, PairSteps]:
    return {
        name: PairSteps(
            pair=name,
            p99=series_of(f"{name} p99", p99),
            p999=series_of(f"{name} p999", 2 * p99 if p999 is None else p999),
            mean_abs=series_of(f"{name} mean_abs", p99 / 10 if mean_abs is None else mean_abs),
        )
    }


def run_with(framework: str | None = None, **context: JsonScalar) -> Run:
    return replace(run_of(last_step=100), framework=framework, context=context)


def every(values: Array) -> Array:
    """Zero at the first of MU updates of a batch."""
    return np.where(np.arange(len(values)) % MU == 0, 0.0, values)


# --- KL to the reference


@pytest.mark.parametrize(
    ("run", "level_of_kl", "limit"),
    [
        (run_with(), 0.25, None),
        (run_with("openrlhf", kl_target=0.1), 0.25, 0.2),
        (run_with("openrlhf", kl_target=0.5), 0.6, None),
        (run_with("verl", target_kl=0.1), 0.25, None),  # in its defaults, used by nothing
        (run_with("verl", target_kl=0.1, use_kl_in_reward=True), 0.25, 0.2),
        (run_with("trl", target_kl=0.1), 0.25, None),  # of the KL to the policy before the update
        (run_with(None, target_kl=0.1), 0.25, 0.2),
        (run_with(None, target_kl=True), 0.25, None),
    ],
)
def test_the_run_s_own_kl_target_sets_the_limit_where_it_is_one(
    run: Run, level_of_kl: float, limit: float | None
) -> None:
    verdict = judged("kl-over-target", {"kl/ref": jump(0.01, level_of_kl)}, run=run)
    if limit is None:
        healthy(verdict)
    else:
        assert broken(verdict, near=51).limit == pytest.approx(limit)


def test_a_limit_of_the_user_s_goes_before_the_run_s_target() -> None:
    run = run_with("openrlhf", kl_target=0.1)
    healthy(judged("kl-over-target", {"kl/ref": jump(0.01, 0.25)}, run=run, limits={"limit": 0.5}))


def test_a_kl_over_the_sequence_is_held_against_the_limit_times_the_length() -> None:
    summed = replace(series_of("kl/ref", jump(1.0, 10.0)), raw_name="train/objective/kl")
    healthy(judged("kl-over-target", {"kl/ref": summed, "len/response_mean": level(50.0)}))
    finding = broken(judged("kl-over-target", {"kl/ref": summed, "len/response_mean": level(20.0)}))
    assert finding.limit == pytest.approx(0.3 * 20, rel=0.05)
    assert "a sequence" in finding.claim
    assert "objective/kl" in not_judged(judged("kl-over-target", {"kl/ref": summed})).reason
    healthy(judged("kl-over-target", {"kl/ref": replace(summed, raw_name="kl", values=level(0.1))}))


@pytest.mark.parametrize("count", [3, 10, 100])
def test_a_kl_that_is_there_at_the_first_log_is_a_note_on_the_settings_however_long_the_run(count: int) -> None:
    (note,) = healthy(judged("kl-over-target", {"kl/ref": level(0.48, count)})).notes
    assert note.severity is Severity.LOW
    assert "at the first log already" in note.claim
    assert not any("roll back" in step for step in note.next)


def test_a_kl_that_is_there_at_the_first_log_and_grows_is_a_finding() -> None:
    broken(judged("kl-over-target", {"kl/ref": jump(0.48, 0.9)}), severity=Severity.MEDIUM)


def test_a_kl_that_creeps_along_the_whole_run_as_the_reward_rises_is_a_note() -> None:
    along = np.linspace(0, 1, 400)
    crept = {"kl/ref": 0.02 + 0.35 * along**1.3 + 0.004 * wander(3, count=400, likeness=0.0)}
    (note,) = healthy(judged("kl-over-target", crept | {"reward/mean": 0.2 + 0.4 * along})).notes
    assert note.severity is Severity.LOW
    broken(judged("kl-over-target", crept | {"reward/mean": level(0.4, 400)}), severity=Severity.MEDIUM)
    sudden = {"kl/ref": jump(0.02, 0.4, at=300, count=400)}
    broken(judged("kl-over-target", sudden | {"reward/mean": 0.2 + 0.4 * along}), severity=Severity.MEDIUM)


def test_a_largest_kl_that_leaves_the_mean_behind_is_a_note() -> None:
    kl = {"kl/ref": level(0.05)}
    alone = {"kl_max": series_of("kl_max", jump(0.2, 0.5))}
    (note,) = healthy(judged("kl-over-target", kl, other=alone)).notes
    assert note.severity is Severity.LOW
    assert healthy(judged("kl-over-target", kl, other={"kl_max": series_of("kl_max", level(0.2))})).notes == ()


def test_the_last_good_step_is_the_one_logged_before_the_damage() -> None:
    """KL of a step is that of weights which the steps before made: the checkpoint must be from before the update."""
    kl = np.array([0.0, 0.0, 0.066, 0.2, 5.4, 13.2, 1.3, 0.97, 8.5, 6.6, 4.0, 1.1, 7.9, 5.0])
    finding = broken(judged("kl-over-target", {"kl/ref": kl}), severity=Severity.CRITICAL)
    assert (finding.onset_step, finding.onset_interval) == (5, (4, 5))
    assert "before step 4" in finding.next[0]


# --- the size of single updates


def test_a_kl_that_is_the_distance_to_the_engine_is_no_size_of_an_update() -> None:
    far, other = level(0.4), level(0.3) + 0.05
    bypass: dict[str, JsonScalar] = {"algorithm.rollout_correction.bypass_mode": True}
    not_judged(judged("update-too-large", {"kl/old": far, "mismatch/kl": far}))
    not_judged(judged("update-too-large", {"kl/old": far, "mismatch/kl": other}, settings=bypass))
    broken(judged("update-too-large", {"kl/old": far, "mismatch/kl": other}))  # two numbers, and no such setting
    broken(judged("update-too-large", {"kl/old": far, "mismatch/kl": level(0.01)}, settings=bypass))


@pytest.mark.parametrize(
    ("rule", "metric", "far"), [("kl-over-target", "kl/ref", 4.0), ("update-too-large", "kl/old", 0.8)]
)
def test_a_few_rows_show_a_policy_that_is_gone(rule: str, metric: str, far: float) -> None:
    gone = np.array([0.001, 0.002, 0.5, far, 2 * far, 3 * far])
    found = broken(judged(rule, {metric: gone}), severity=Severity.CRITICAL)
    assert found.onset_step == 4
    not_judged(judged(rule, {metric: gone[:5]}))
    not_judged(judged(rule, {metric: gone[::-1]}))


def test_updates_too_large_by_their_kl() -> None:
    finding = broken(judged("update-too-large", {"kl/old": jump(0.002, 0.3)}), severity=Severity.HIGH, near=51)
    assert finding.evidence["metric"] == "kl/old"
    broken(judged("update-too-large", {"kl/old": jump(0.002, 0.9)}), severity=Severity.CRITICAL)
    healthy(judged("update-too-large", {"kl/old": level(0.03)}))
    healthy(judged("update-too-large", {"kl/old": -level(0.03)}))  # k1 is negative at times
    not_judged(judged("update-too-large", {"kl/old": level(0.3, 9)}))
    not_judged(judged("update-too-large", {"kl/old": np.zeros(100)[:5]}))


def test_a_step_kl_far_above_its_beginning_is_told_below_its_limit() -> None:
    kl = {"kl/old": jump(0.0005, 0.09)}
    broken(judged("update-too-large", kl | {"reward/mean": level(0.5)}), severity=Severity.MEDIUM, near=51)
    broken(judged("update-too-large", kl | {"reward/mean": jump(0.2, 0.8)}), severity=Severity.LOW)
    broken(judged("update-too-large", kl), severity=Severity.LOW)
    healthy(judged("update-too-large", {"kl/old": jump(0.0005, 0.02)}))  # far below where anybody stops
    healthy(judged("update-too-large", {"kl/old": jump(0.02, 0.09)}))


def test_spikes_of_the_step_kl_are_no_lasting_excess() -> None:
    kl = level(0.01)
    kl[9::10] = 3.0  # the mean over twenty steps is .3
    healthy(judged("update-too-large", {"kl/old": kl}))
    kl[20:40] = 0.2
    finding = broken(judged("update-too-large", {"kl/old": kl}))
    assert finding.severity is Severity.LOW
    assert finding.evidence["ended_step"] == 100


def test_updates_too_large_by_recorded_tokens_first_updates_left_out() -> None:
    finding = broken(judged("update-too-large", {}, pairs=pair("policy/old", every(jump(0.05, 0.8)))), near=52)
    assert finding.limit == 0.5
    healthy(judged("update-too-large", {}, pairs=pair("policy/old", every(level(0.3)))))
    not_judged(judged("update-too-large", {}, pairs=pair("policy/old", np.zeros(100))))


def test_a_target_within_the_batch_raises_the_limit_and_veRL_s_does_not() -> None:  # noqa: N802
    metrics = {"kl/old": jump(0.01, 0.15)}
    broken(judged("update-too-large", metrics))
    healthy(judged("update-too-large", metrics, run=run_with("trl", target_kl=0.2)))
    broken(judged("update-too-large", metrics, run=run_with("verl", target_kl=0.2)))


# --- clipping


def test_clip_fraction_counts_the_updates_that_can_clip() -> None:
    finding = broken(
        judged("clip-fraction-high", {"clip/frac": every(jump(0.1, 0.5))}), severity=Severity.HIGH, near=52
    )
    assert finding.evidence["zeros_left_out"] == 25
    healthy(judged("clip-fraction-high", {"clip/frac": every(level(0.3))}))
    (note,) = healthy(judged("clip-fraction-high", {"clip/frac": jump(0.1, 0.35)})).notes
    assert (note.severity, note.limit) == (Severity.LOW, 0.3)
    assert note.claim == "More than 30% of tokens are clipped"
    back = np.r_[level(0.1), level(0.35), level(0.1)]
    assert healthy(judged("clip-fraction-high", {"clip/frac": back})).notes == ()
    by_sequence = Algorithm(name="gspo", family=Family.ONLINE, critic=False, groups=True)
    found = judged("clip-fraction-high", {"clip/frac": level(0.5)}, algorithm=by_sequence)
    assert "is normal" in broken(found, severity=Severity.MEDIUM).claim
    healthy(judged("clip-fraction-high", {"clip/frac": level(0.15)}, algorithm=by_sequence))
    not_judged(judged("clip-fraction-high", {"clip/frac": level(0.5, 9)}))


def test_clipping_on_one_side_matters_by_how_much_is_clipped() -> None:
    much = {"clip/frac_low": level(0.2), "clip/frac_high": level(0.01)}
    assert broken(judged("one-sided-clipping", much), severity=Severity.MEDIUM).evidence["side"] == "lower"
    little = {"clip/frac_low": level(0.001), "clip/frac_high": level(0.02)}
    assert broken(judged("one-sided-clipping", little), severity=Severity.LOW).evidence["side"] == "upper"
    healthy(judged("one-sided-clipping", {"clip/frac_low": level(0.05), "clip/frac_high": level(0.03)}))
    healthy(judged("one-sided-clipping", {"clip/frac_low": level(0.002), "clip/frac_high": np.zeros(100)}))
    not_judged(judged("one-sided-clipping", {"clip/frac_low": level(0.05)}))
    not_judged(judged("one-sided-clipping", {"clip/frac_low": level(0.05, 9), "clip/frac_high": level(0.05, 9)}))


# --- ratios


def test_ratios_explode_in_recorded_tokens_and_in_logged_extremes() -> None:
    tokens = pair("old/rollout", jump(0.1, 1.0), p999=jump(0.2, 3.0))
    broken(judged("ratio-explosion", {}, pairs=tokens), severity=Severity.MEDIUM, near=51)
    wide = pair("policy/old", jump(0.1, 1.0), p999=jump(0.2, 6.0))
    broken(judged("ratio-explosion", {}, pairs=wide), severity=Severity.HIGH)
    drift = pair("policy/ref", level(5.0))  # no ratio of the loss
    not_judged(judged("ratio-explosion", {}, pairs=drift))
    broken(judged("ratio-explosion", {"is/ratio_max": jump(2.0, 200.0)}), severity=Severity.MEDIUM, near=51)
    broken(judged("ratio-explosion", {"is/ratio_min": jump(0.5, 0.001)}), severity=Severity.MEDIUM, near=51)
    healthy(judged("ratio-explosion", {"is/ratio_max": level(50.0), "is/ratio_min": level(0.01)}))
    healthy(judged("ratio-explosion", {"is/ratio_max": np.r_[level(2.0, 60), 1e6, level(2.0, 39)]}))
    not_judged(judged("ratio-explosion", {"is/ratio_max": level(2.0, 9)}))


def test_outputs_that_drift_are_told_by_how_far() -> None:
    broken(judged("policy-drift", {"policy/cosine_to_ref": jump(0.99, 0.8)}), severity=Severity.MEDIUM, near=51)
    steady = np.full(50, 0.9)
    broken(judged("policy-drift", {"policy/cosine_to_ref": np.r_[np.full(50, 0.99), steady]}), severity=Severity.LOW)
    healthy(judged("policy-drift", {"policy/cosine_to_ref": np.full(100, 0.97)}))
    healthy(
        judged("policy-drift", {"policy/cosine_to_ref": np.r_[np.full(40, 0.99), np.full(20, 0.8), np.full(60, 0.99)]})
    )
    not_judged(judged("policy-drift", {"policy/cosine_to_ref": np.full(9, 0.5)}))


@pytest.mark.parametrize("rule", [name for name, rule in BY_ID.items() if rule.link is Link.POLICY_UPDATE])
def test_nan_is_never_healthy(rule: str) -> None:
    names = ("kl/ref", "kl/old", "clip/frac", "clip/frac_low", "clip/frac_high", "is/ratio_max", "policy/cosine_to_ref")
    not_judged(judged(rule, {name: np.full(100, np.nan) for name in names}))


def test_offline_training_is_not_asked() -> None:
    dpo = Algorithm(name="dpo", family=Family.PREFERENCE, critic=False, groups=False)
    evidence = Evidence(run=run_of(), algorithm=dpo)
    for rule in ("kl-over-target", "update-too-large", "clip-fraction-high", "one-sided-clipping", "ratio-explosion"):
        not_judged(BY_ID[rule].run(evidence), applies=False)


# --- reward drops sharply, KL spikes, the clip fraction stays at 0.5


def aggressive_ppo(folder: Path, *, broken_at: int = 80, steps: int = 160) -> Path:
    """Write the log of a PPO run whose updates get too aggressive at a known step."""
    draw = np.random.default_rng(20_260_128)
    lines = []
    for step in range(1, steps + 1):
        gone = step >= broken_at
        since = min(1.0, max(0, step - broken_at) / 15)
        noise = 1 + 0.05 * draw.normal(size=8)
        row = {
            "actor/ppo_kl": (0.25 if gone else 0.004) * noise[0],
            "actor/reward_kl_penalty": (0.02 + 1.6 * since) * noise[1],
            "actor/pg_clipfrac": (0.5 if gone else 0.03) * noise[2],
            "critic/score/mean": (0.8 - 0.7 * since) * noise[3],
            "actor/entropy": (0.4 - 0.1 * since) * noise[4],
            "critic/vf_loss": 0.05 * noise[5],
            "actor/pg_loss": -0.01 * noise[6],
            "actor/grad_norm": 0.5 * noise[7],
        }
        lines.append(json.dumps({"step": step, "data": row}))
    folder.mkdir()
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"algorithm": "ppo"}), encoding="utf-8")
    return folder


def test_the_guide_s_aggressive_update_is_told_as_the_guide_tells_it(tmp_path: Path) -> None:
    found = ptt.diagnose(aggressive_ppo(tmp_path / "ppo"))
    assert found.verdict.first_broken_link is Link.POLICY_UPDATE
    assert "clipped" in found.verdict.headline or "updates move the policy too far" in found.verdict.headline
    assert "since step 80" in found.verdict.headline
    told = " | ".join(found.verdict.next)
    order = ["roll back", "half the learning rate", "fewer PPO epochs", "target", "advantage normalisation"]
    places = [told.index(word) for word in order]
    assert places == sorted(places)
    assert "before step 79" in told
    mine = {f.id: f for f in found.findings if f.link is Link.POLICY_UPDATE and f.severity.at_least(Severity.MEDIUM)}
    assert {"clip-fraction-high", "kl-over-target", "update-too-large"} <= set(mine)
    assert sum(one.consequence_of is None for one in mine.values()) == 1
    (fell,) = (finding for finding in found.findings if finding.id == "reward-fell")
    assert fell.consequence_of in mine


def only_note(verdict: Any) -> Any:
    (note,) = healthy(verdict).notes
    return note


def reference(metrics: Mapping[str, Any], pairs: Mapping[str, PairSteps] | None = None, **context: Any) -> Any:
    """Run the rule on what is gathered of the reference."""
    made = evidence_of(metrics=metrics)
    run = replace(made.run, context=context)
    found = gather_reference(made.metrics, pairs or {}, context)
    return BY_ID["moving-reference"].run(replace(made, run=run, reference=found, pairs=pairs or {}))


def synced(interval: int, steps: int = 300) -> Array:
    """Return a KL that begins anew every `interval` steps."""
    since = np.arange(steps) % interval
    noise: Array = np.exp(0.2 * np.random.default_rng(8).normal(size=steps))
    return 0.01 * (since + 1) * noise


def restarting(period: int, steps: int = 300) -> Array:
    """Return a cosine of the learning rate that begins anew every `period` steps."""
    phase = (np.arange(steps) % period) / period
    return np.asarray(1e-5 * (0.05 + 0.95 * 0.5 * (1 + np.cos(np.pi * phase))))


def test_falls_at_restarts_of_the_learning_rate_are_the_schedules() -> None:
    climbing = 0.02 * 3 ** ((np.arange(300) % 60) / 60) * level(1.0, 300)
    note = only_note(reference({"kl/ref": climbing, "lr": restarting(60)}))
    assert "learning rate restarts" in note.claim
    assert note.evidence["interval"] == 60
    made = evidence_of(metrics={"kl/ref": climbing, "lr": restarting(60)})
    found = gather_reference(made.metrics, {}, {})
    assert found.seen is None
    assert found.restarts is not None
    assert found.period_starts(1, 300) == ()
    moved = only_note(reference({"kl/ref": climbing, "lr": restarting(45)}))
    assert "reference is moved" in moved.claim
    told = only_note(
        reference({"kl/ref": climbing, "lr": restarting(60)}, sync_ref_model=True, ref_model_sync_steps=60)
    )
    assert "reference is moved" in told.claim


SWAPPED = "reference-swapped"
QUIET = {"entropy": level(1.0, 100, seed=3), "reward/mean": level(0.6, 100, seed=4)}


def with_slices(text: Array, post: Array, **metrics: Array) -> Evidence:
    """Return what is gathered of a reference at these means of |r| before and after tool output."""
    slices = {"text_only": series_of("text", text), "post_tool": series_of("post", post)}
    pairs = {"policy/ref": replace(pair("policy/ref", text)["policy/ref"], slices=slices)}
    made = evidence_of(metrics={"kl/ref": text**2 / 2, **QUIET, **metrics})
    return replace(made, pairs=pairs, reference=gather_reference(made.metrics, pairs, {}))


def swapped(evidence: Evidence) -> Any:
    return BY_ID[SWAPPED].run(evidence)


def test_a_reference_that_is_swapped_in_one_step_is_named_with_it() -> None:
    made = with_slices(jump(0.05, 0.15), jump(0.1, 0.3))
    assert made.reference is not None
    assert made.reference.swapped is not None
    assert made.reference.swapped.step == 51
    verdict = swapped(made)
    assert isinstance(verdict, Broken)
    (finding,) = verdict.findings
    assert (finding.severity, finding.onset_step, finding.onset_interval) == (Severity.MEDIUM, 51, (51, 51))
    assert finding.evidence["contaminates"] == "policy/ref"
    assert "swapped" in finding.claim


def test_a_reference_that_is_set_to_the_policy_once_is_told_as_low() -> None:
    since = np.where(np.arange(100) < 40, np.arange(100) + 1.0, np.arange(100) - 40 + 0.001)
    course = 0.02 * np.sqrt(since)
    verdict = swapped(with_slices(course * level(1.0), 2 * course * level(1.0, seed=9)))
    assert isinstance(verdict, Broken)
    (finding,) = verdict.findings
    assert (finding.severity, finding.onset_step) == (Severity.LOW, 41)
    assert "set to a policy of this run" in finding.claim


@pytest.mark.parametrize(
    "metrics",
    [
        {"entropy": jump(1.0, 0.4)},
        {"reward/mean": jump(0.6, 0.2)},
        {"kl/ref": level(0.02)},
        {"lr": jump(1e-6, 1e-4)},
    ],
    ids=["entropy jumps too", "the reward falls too", "the logged KL stays", "the learning rate leaps"],
)
def test_a_jump_that_the_policy_may_have_made_is_no_swap(metrics: dict[str, Array]) -> None:
    healthy(swapped(with_slices(jump(0.05, 0.15), jump(0.1, 0.3), **metrics)))


def test_a_swap_is_seen_where_only_every_tenth_logged_step_is_recorded() -> None:
    recorded = list(range(10, 1001, 10))
    slow = np.interp(np.arange(1, 1001), recorded, np.where(np.arange(100) % 2 == 0, 0.35, 0.8))
    slices = {
        name: series_of(name, jump(early, 4 * early), steps=recorded)
        for name, early in (("text_only", 0.05), ("post_tool", 0.1))
    }
    pairs = {"policy/ref": replace(pair("policy/ref", level(0.1))["policy/ref"], slices=slices)}
    found = gather_reference({"reward/mean": series_of("reward/mean", slow)}, pairs, {})
    assert found.swapped is not None
    assert found.swapped.step == 510


def test_growth_after_tools_alone_or_over_many_steps_is_no_swap() -> None:
    healthy(swapped(with_slices(level(0.05), jump(0.1, 0.5))))
    slow = np.linspace(0.05, 0.3, 100) * level(1.0)
    healthy(swapped(with_slices(slow, 2 * slow)))


def test_without_a_reference_or_what_the_policy_does_no_swap_is_judged_or_found() -> None:
    assert not_judged(swapped(evidence_of())).absent
    silent = with_slices(jump(0.05, 0.15), jump(0.1, 0.3))
    found = gather_reference({"kl/ref": silent.metrics["kl/ref"]}, silent.pairs, {})
    healthy(swapped(replace(silent, reference=found)))


def test_a_reference_that_is_synced_is_told_with_interval_and_steps() -> None:
    verdict = reference({"kl/ref": synced(50)})
    note = only_note(verdict)
    assert (note.severity, note.onset_step) == (Severity.INFO, 51)
    assert note.evidence["interval"] == 50
    assert str(note.evidence["sync_steps"]).startswith("51, 101, 151")
    assert "every 50 steps" in note.claim
    assert healthy(reference({"kl/ref": level(0.05, 300)})).notes == ()
    rising = np.linspace(0.001, 0.4, 300) * level(1.0, 300)
    assert healthy(reference({"kl/ref": rising})).notes == ()


def test_recorded_tokens_show_the_syncs_unless_the_engine_is_refreshed_at_the_same_steps() -> None:
    drift = pair("policy/ref", p99=10 * synced(40))
    assert only_note(reference({}, drift)).evidence["seen_in"] == drift["policy/ref"].mean_abs.raw_name
    agreeing = drift | pair("old/rollout", p99=np.full(300, 0.02))
    assert only_note(reference({}, agreeing)).evidence["interval"] == 40
    refreshed = drift | pair("old/rollout", p99=5 * synced(40))
    assert healthy(reference({}, refreshed)).notes == ()


def test_falls_that_neither_slice_shows_are_of_how_many_tokens_follow_tools() -> None:
    drift = pair("policy/ref", p99=10 * synced(40))
    one = drift["policy/ref"]
    still = {name: series_of(name, level(0.05, 300, seed=7)) for name in ("text_only", "post_tool")}
    assert healthy(reference({}, {"policy/ref": replace(one, slices=still)})).notes == ()
    shared = still | {"post_tool": series_of("post_tool", synced(40))}
    assert only_note(reference({}, {"policy/ref": replace(one, slices=shared)})).evidence["interval"] == 40


def test_settings_tell_a_reference_that_moves_where_no_fall_does() -> None:
    settings: dict[str, Any] = {"sync_ref_model": True, "ref_model_sync_steps": 1, "ref_model_mixup_alpha": 0.05}
    note = only_note(reference({"kl/ref": level(0.02, 300)}, **settings))
    assert note.evidence["mixing"] == 0.05
    assert "by 5.0% of the way" in note.claim
    assert healthy(reference({"kl/ref": level(0.02, 300)}, sync_ref_model=True)).notes == ()  # only after 512 steps
    assert healthy(reference({"kl/ref": level(0.02, 300)}, sync_ref_model=False)).notes == ()
    assert only_note(reference({"kl/ref": level(0.02, 300)}, ref_update_interval=20)).evidence["set_interval"] == 20
    not_judged(reference({}))


def test_steps_that_share_their_rollouts_are_one_value_of_a_distance() -> None:
    """Their nearly equal values make noise look small, and a few of its falls regular: as here, in one run of eight."""
    steps = [step for first in range(1, 320, 10) for step in (first, first + 1)]
    tokens = pair("policy/ref", level(0.1, 64))["policy/ref"]
    for seed in range(40):
        noise = np.exp(np.random.default_rng(seed).normal(-2.5, 0.7, size=32))
        twice = series_of("policy/ref mean_abs", np.repeat(noise, 2), steps=steps)
        assert gather_reference({}, {"policy/ref": replace(tokens, mean_abs=twice)}, {}).seen is None


def test_a_kl_that_begins_anew_at_every_sync_is_no_recovery() -> None:
    values = np.concatenate([20 * synced(60, 240), np.full(20, 0.01)])
    moving = judged("kl-over-target", {"kl/ref": values}, reference=gather_reference({"kl/ref": kl_of(values)}, {}, {}))
    found = broken(moving)
    assert "reset at every sync" in found.claim
    assert "came back" not in found.claim
    assert "came back" in broken(judged("kl-over-target", {"kl/ref": values})).claim


@pytest.mark.parametrize(
    ("kl", "equal_at"),
    [
        (np.linspace(0, 0.4, 60), 1),
        (np.linspace(0.02, 0.4, 60), None),
        (np.zeros(60), None),  # not measured
    ],
)
def test_policy_and_reference_were_equal_where_the_first_kl_is_none(kl: Array, equal_at: int | None) -> None:
    assert gather_reference({"kl/ref": kl_of(kl)}, {}, {}).equal_at == equal_at


def test_tokens_that_differ_at_the_first_step_deny_a_kl_of_none() -> None:
    kl = {"kl/ref": kl_of(np.linspace(0, 0.4, 60))}
    apart = series_of("policy/ref mean_abs", np.linspace(0.2, 0.4, 60))
    tokens = PairSteps(pair="policy/ref", p99=apart, p999=apart, mean_abs=apart)
    assert gather_reference(kl, {"policy/ref": tokens}, {}).equal_at is None
    later = series_of("policy/ref mean_abs", np.linspace(0.2, 0.4, 30), steps=range(20, 50))
    tokens = PairSteps(pair="policy/ref", p99=later, p999=later, mean_abs=later)
    assert gather_reference(kl, {"policy/ref": tokens}, {}).equal_at == 1


def kl_of(values: Array) -> Series:
    return series_of("kl/ref", values)


@pytest.mark.parametrize(("interval", "steps"), first_fast([(40, 120), (12, 160)]))
def test_what_grows_within_each_period_alone_is_no_growth(interval: int, steps: int, tmp_path: Path) -> None:
    """Tails that climb to 2 nats and more between syncs, to the same height in every period."""

    def climb(done: float) -> float:
        return 0.05 + ((round(done * (steps - 1)) % interval) + 1) / interval

    story = Story(
        steps=steps, sequences=12, post=climb, text=lambda done: climb(done) / 3, step_noise=0.15, seed=interval
    )
    frame = sequences_of(story).drop("seq")
    names = [["lookup"] if not all(mask) else [] for mask in frame["model_mask"].to_list()]
    (tmp_path / "tokens").mkdir()
    frame.with_columns(pl.Series("tool_names", names)).write_parquet(tmp_path / "tokens" / "all.parquet")
    found = ptt.diagnose(tmp_path)
    ids = {one.id: one for one in found.findings}
    assert ids["moving-reference"].evidence["interval"] == interval
    assert not {"tool-tail-growth", "tail-growth-everywhere"} & set(ids)
    assert found.signature.status == ("not_found" if steps // interval >= 12 else "cannot_say")
    assert steps // interval >= 12 or "whole periods are too few" in found.signature.reason


def test_a_clip_fraction_of_exactly_1_is_counted_wrongly() -> None:
    verdict = judged("clip-fraction-high", {"clip/frac": np.ones(60), "kl/ref": level(1e-8, 60)})
    assert "exactly 1 at all 60" in not_judged(verdict).reason
    broken(judged("clip-fraction-high", {"clip/frac": np.minimum(level(0.98, 60), 1.0)}))


def test_a_kl_off_from_the_start_is_a_finding_where_the_reward_never_rose() -> None:
    apart = {"kl/ref": level(1.8, 60)}
    found = broken(judged("kl-over-target", apart | {"reward/mean": level(0.07, 60)}), severity=Severity.MEDIUM)
    assert "the reward never rose" in found.claim
    healthy(judged("kl-over-target", apart | {"reward/mean": np.linspace(0.1, 0.9, 60)}))


# --- a KL that never changes


@pytest.mark.parametrize(
    ("kl", "loss", "severity"),
    [
        (0.018731, 0.0417, Severity.HIGH),  # neither moves
        (0.018731, 0.0, Severity.MEDIUM),  # the loss of centred advantages, trained or not
        (0.018731, None, Severity.MEDIUM),
        (0.02, 0.0417, None),  # may be many values, rounded
        (float(np.float32(0.02)), 0.0417, None),
        (2**-8, 0.0417, None),  # the same in bfloat16
    ],
)
def test_a_kl_of_one_number_is_not_measured(kl: float, loss: float | None, severity: Severity | None) -> None:
    metrics = {"kl/ref": np.full(16, kl), "loss/policy": np.arange(16) / 7 if loss is None else np.full(16, loss)}
    verdict = judged("kl-zero", metrics)
    assert (broken(verdict).severity if isinstance(verdict, Broken) else None) == severity


# --- a proxy of the reward, and a KL of nobody knows what


def test_a_gold_score_that_falls_beneath_its_proxy_is_dated_at_its_peak(tmp_path: Path) -> None:
    steps = np.arange(0, 700, 5)
    proxy, gold = 2.2 - 2.7 * np.exp(-steps / 40), 0.7 + 0.5 * np.exp(-steps / 200) - 1.2 * np.exp(-steps / 20)
    rows = zip(steps, proxy, gold, 5.5 - 5.5 * np.exp(-steps / 60), strict=True)
    text = "step,proxy,gold,kl\n" + "".join(",".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "training_dynamics.csv").write_text(text)
    found = {one.id: one for one in ptt.diagnose(tmp_path).findings}
    assert "gold fell" in found["reward-hacking"].claim
    assert abs((found["reward-hacking"].onset_step or 0) - int(steps[gold.argmax()])) <= 5
    assert found["kl-over-target"].severity is Severity.MEDIUM
    assert "a token," not in found["kl-over-target"].claim


def test_a_key_that_never_holds_a_number_is_a_kl_that_is_not_logged(tmp_path: Path) -> None:
    rows = [{"step": step, "reward": 0.5 + step / 100, "loss": 1 / step, "kl": None} for step in range(1, 41)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    unjudged = {one.id: one for one in ptt.diagnose(tmp_path).not_judged}
    assert unjudged["kl-over-target"].absent
    assert "holds no number" in unjudged["kl-over-target"].reason
