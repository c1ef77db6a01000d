"""What the reward is turned into: each rule broken, healthy and not judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from builders import Array, frame_of, run_of, series_of, tokens_of
from numpy.typing import NDArray
from rule_cases import BY_ID, PPO, broken, healthy, judged, jump, level, not_judged

from ptt.diagnostics.evidence.evaluation import EvalMetric, Evaluation
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tokens_by_step import Signal, gather_pairs, gather_signal
from ptt.diagnostics.model import Broken, Finding, Link, Severity

FELL, ROSE = {"reward/mean": jump(0.8, 0.1)}, {"reward/mean": jump(0.3, 0.9)}


def signal(**values: Array) -> Signal:
    return Signal(**{name: series_of(name, held) for name, held in values.items()})


def test_advantages_explode_or_vanish() -> None:
    grew = broken(judged("advantage-scale", {"advantage/std": jump(1.0, 8.0)}), severity=Severity.MEDIUM, near=51)
    assert "grew" in grew.claim
    gone = broken(judged("advantage-scale", {"advantage/std": jump(1.0, 0.01)} | FELL), severity=Severity.MEDIUM)
    assert "vanished" in gone.claim
    broken(judged("advantage-scale", {"advantage/std": jump(1.0, 0.01)} | ROSE), severity=Severity.LOW)
    broken(judged("advantage-scale", {}, signal=signal(advantage_std=jump(1.0, 8.0))), near=51)
    healthy(judged("advantage-scale", {"advantage/std": jump(0.95, 0.45)}))  # groups get solved
    healthy(judged("advantage-scale", {"advantage/std": np.r_[level(1.0, 40), level(9.0, 20), level(1.0, 60)]}))
    not_judged(judged("advantage-scale", {"advantage/std": level(1.0, 20)}))


def test_the_extremes_of_advantages_stand_in_for_their_spread() -> None:
    def between(scale: Array) -> dict[str, Series]:
        return {
            "critic/advantages/max": series_of("critic/advantages/max", 3.0 * scale),
            "critic/advantages/min": series_of("critic/advantages/min", -4.0 * scale),
        }

    grew = broken(judged("advantage-scale", {}, other=between(jump(1.0, 15.0))), severity=Severity.MEDIUM, near=51)
    assert grew.evidence["metric"] == "critic/advantages/max"
    healthy(judged("advantage-scale", {}, other=between(jump(1.0, 3.0))))
    healthy(judged("advantage-scale", {"advantage/std": level(1.0)}, other=between(jump(1.0, 15.0))))
    one = {"critic/advantages/max": between(jump(1.0, 15.0))["critic/advantages/max"]}
    not_judged(judged("advantage-scale", {}, other=one))


def test_rewards_that_are_logged_without_their_baseline_are_no_missing_one() -> None:
    def extremes(shift: float) -> dict[str, Series]:
        high, low = level(1.6 + shift), level(-1.4 + shift)
        sides = {"max": high, "min": low, "mean": level(shift)}
        kinds = ("rewards", "advantages")
        names = {f"critic/{kind}/{side}": values for kind in kinds for side, values in sides.items()}
        return {name: series_of(name, values) for name, values in names.items()}

    for shift, answer in ((0.0, not_judged), (0.5, broken)):
        logged = extremes(shift)
        mean = {"advantage/mean": level(shift), "reward/mean": level(0.3)}
        answer(judged("advantages-without-baseline", mean, other=logged))


def test_advantages_that_end_at_exactly_zero_beside_an_evaluation_that_stands_still_are_a_collapse() -> None:
    zeros = np.where((np.arange(100) >= 40) & (np.arange(100) % 20 > 0), 0.0, level(1.0))

    def found(score: float) -> Finding:
        at = np.asarray([20, 50, 75, 100])
        points = replace(series_of("val/reward", np.asarray([0.99, score, score, score])), steps=at)
        evaluation = Evaluation(figures=(EvalMetric(name="reward", split="val", outcome=False, series=points),))
        return broken(judged("advantage-scale", {"advantage/std": zeros} | ROSE, evaluation=evaluation), near=42)

    assert found(1.6792043760068593).severity is Severity.MEDIUM
    assert "val/reward is 1.68 to the last digit at all 3 points since then" in found(1.6792043760068593).claim
    assert found(1.0).severity is Severity.LOW  # all solved
    assert found(14 / 15).severity is Severity.LOW  # few tasks


def test_advantages_of_a_step_that_were_divided_by_almost_nothing_are_told() -> None:
    def spiked(high: float) -> dict[str, Series]:
        scale = level(2.6)
        return {
            "train/advantages/max": series_of("train/advantages/max", np.where(np.arange(100) == 60, high, scale)),
            "train/advantages/min": series_of("train/advantages/min", -scale),
        }

    found = broken(judged("advantage-scale", {}, other=spiked(7428.0)), severity=Severity.MEDIUM, near=61)
    assert "7,430 apart at step 61" in found.claim
    assert found.limit == pytest.approx(30 * 5.2, rel=0.05)
    assert found.observed == pytest.approx(7430, rel=0.01)
    healthy(judged("advantage-scale", {}, other=spiked(40.0)))  # a rare success in a large group
    beside = {"grad_norm": level(0.3), "loss/total": np.where(np.arange(100) == 60, 40.0, level(0.1))}
    claim = broken(judged("advantage-scale", beside, other=spiked(7428.0))).claim
    assert "loss/total is 40 instead" in claim
    assert "grad_norm" not in claim  # as ever


def extremes(high: Array, low: Array, kind: str, prefix: str = "critic") -> dict[str, Series]:
    names = {f"{prefix}/{kind}/max": high, f"{prefix}/{kind}/min": low}
    return {name: series_of(name, values) for name, values in names.items()}


def test_advantages_as_far_apart_as_their_rewards_were_divided_by_nothing_small() -> None:
    rare = np.arange(100) % 25 == 9
    fined = extremes(np.where(rare, 2.1, level(0.6)), np.where(rare, -98.0, -level(0.6)), "advantages")
    paid = extremes(level(1.0), np.where(rare, -100.0, 0.0), "rewards")
    healthy(judged("advantage-scale", {}, other=fined | paid))
    healthy(judged("advantage-scale", {}, other=fined | {"critic/score/min": paid["critic/rewards/min"]}))
    broken(judged("advantage-scale", {}, other=fined | extremes(level(1.0), np.zeros(100), "rewards")))
    assert "unless its rewards" in broken(judged("advantage-scale", {}, other=fined)).claim
    sparse = extremes(np.where(rare, 98.4, 0.0), np.where(rare, -1.6, 0.0), "advantages")
    healthy(judged("advantage-scale", {}, other=sparse))  # nothing is usual


def test_infinite_advantages_are_spikes_and_both_sides_are_of_one_prefix() -> None:
    spiked = level(2.6)
    spiked[[49, 89]] = np.inf
    verdict = judged("advantage-scale", {}, other=extremes(spiked, -level(2.6), "advantages"))
    assert isinstance(verdict, Broken)
    assert "are infinite at step 50 and 1 more" in verdict.findings[0].claim
    other = {"train/advantages/max": series_of("train/advantages/max", level(2.6))}
    calm = extremes(level(2.6), -level(2.6), "advantages")
    for logged in (other | calm, calm | other):
        wild = logged | {"rollout/advantages/min": series_of("rollout/advantages/min", level(-9000.0))}
        assert "ends at 5.18" in healthy(judged("advantage-scale", {}, other=wild)).reason


def test_later_turns_are_cut_where_turns_grow_at_the_limit() -> None:
    turns = {"batch/steps_per_traj": series_of("batch/steps_per_traj", jump(6.0, 13.0))}
    told = judged("truncated-share", {"len/clipped_frac": jump(0.02, 0.9)}, other=turns)
    assert "later turns then never reach the loss" in broken(told).claim
    for name, values in {
        "batch/steps_per_traj": level(6.0),
        "config/max_turns": np.repeat([4.0, 8.0], 50),  # what is allowed
        "num_turns/mean": np.full(100, np.nan),
    }.items():
        others = {name: series_of(name, values)}
        found = broken(judged("truncated-share", {"len/clipped_frac": jump(0.02, 0.9)}, other=others))
        assert "turns" not in found.claim


def test_advantages_that_begin_with_the_first_successes_do_not_explode() -> None:
    for early in (np.zeros(60), level(0.02, 60)):
        healthy(judged("advantage-scale", {"advantage/std": np.r_[early, np.linspace(0.1, 0.9, 90)]} | ROSE))
    healthy(judged("advantage-scale", {"advantage/std": np.r_[np.zeros(60), level(8.0, 60)]}))
    broken(judged("advantage-scale", {"advantage/std": jump(0.4, 2.4)}), severity=Severity.MEDIUM, near=51)


def test_answers_are_cut_lastingly() -> None:
    broken(judged("truncated-share", {"len/clipped_frac": jump(0.02, 0.9)}), severity=Severity.MEDIUM, near=51)
    broken(judged("truncated-share", {"len/clipped_frac": jump(0.02, 0.9)} | FELL), severity=Severity.HIGH)
    broken(judged("truncated-share", {"len/clipped_frac": jump(0.02, 0.35)}), severity=Severity.MEDIUM, near=51)
    broken(judged("truncated-share", {"len/clipped_frac": level(0.7)}), severity=Severity.MEDIUM)
    masked = judged(
        "truncated-share",
        {"len/clipped_frac": level(0.7)},
        run=replace(run_of(), context={"mask_truncated_completions": True}),
    )
    assert broken(masked).evidence["masked_out"] is True
    healthy(judged("truncated-share", {"len/clipped_frac": level(0.06)}))
    healthy(judged("truncated-share", {"len/clipped_frac": level(0.35)}))
    healthy(judged("truncated-share", {"len/clipped_frac": jump(0.7, 0.1)}))  # learnt away
    not_judged(judged("truncated-share", {"len/clipped_frac": level(0.7, 9)}))


def test_tokens_are_masked_and_responses_empty() -> None:
    broken(judged("masked-share", {}, signal=signal(masked=level(0.6))), severity=Severity.MEDIUM)
    broken(judged("masked-share", {"mask/share": jump(0.1, 0.95)}), severity=Severity.HIGH, near=51)
    healthy(judged("masked-share", {"mask/share": level(0.35)}))
    not_judged(judged("masked-share", {"mask/share": level(0.6, 9)}))
    broken(judged("empty-responses", {}, signal=signal(empty=jump(0.0, 0.1))), severity=Severity.MEDIUM, near=51)
    broken(judged("empty-responses", {"len/empty_frac": jump(0.0, 0.6)}), severity=Severity.HIGH)
    healthy(judged("empty-responses", {"len/empty_frac": level(0.01)}))
    not_judged(judged("empty-responses", {"len/empty_frac": level(0.6, 9)}))


@pytest.mark.parametrize("rule", [name for name, rule in BY_ID.items() if rule.link is Link.TRAINING_SIGNAL])
def test_nan_is_never_healthy(rule: str) -> None:
    names = ("advantage/std", "len/clipped_frac", "len/empty_frac", "mask/share", "reward/zero_std_frac")
    not_judged(judged(rule, {name: np.full(100, np.nan) for name in names}))


def test_without_groups_none_can_lack_signal() -> None:
    not_judged(judged("no-signal-groups", {"reward/zero_std_frac": level(0.9)}, algorithm=PPO), applies=False)


def skipping(rewards: Array, *, learns: Array) -> dict[str, Series]:
    """Return what a loop logs that skips steps on which all answers earn the same."""
    return {"reward/mean": series_of("reward/mean", rewards), "skipped": series_of("skipped", 1.0 - learns)}


@pytest.mark.parametrize(
    ("at_best", "severity"), [(0.95, Severity.LOW), (0.6, Severity.MEDIUM), (0.0, Severity.MEDIUM)]
)
def test_skipped_steps_say_themselves_whether_they_were_solved(at_best: float, severity: Severity) -> None:
    generator = np.random.default_rng(4)
    learns = (generator.random(200) < 0.2).astype(np.float64)
    rewards = np.where(learns == 1, 0.8, np.where(generator.random(200) < at_best, 1.0, 0.6))
    logged = skipping(rewards, learns=learns)
    verdict = judged("no-signal-groups", {"reward/mean": logged["reward/mean"]}, other=logged)
    assert isinstance(verdict, Broken)
    (found,) = verdict.findings
    assert found.severity is severity
    assert ("solved" in found.claim) == (severity is Severity.LOW)
    assert ("below the best reward" in found.claim) == (severity is Severity.MEDIUM)


def test_groups_that_were_silent_throughout_are_so_from_the_first_step() -> None:
    silent = np.random.default_rng(4).choice([0.0, 1.0], p=[0.35, 0.65], size=100)
    reward = 0.4 + 0.05 * np.random.default_rng(5).normal(size=100)
    found = broken(judged("no-signal-groups", {"reward/zero_std_frac": silent, "reward/mean": reward}))
    assert found.onset_step == 1
    assert f"{100 * silent.mean():.0f}% over all logged steps" in found.claim
    late = broken(judged("no-signal-groups", {"reward/zero_std_frac": jump(0.05, 0.8), "reward/mean": reward}))
    assert late.onset_step is not None
    assert late.onset_step > 40
    assert "over all logged steps" not in late.claim


def test_a_rise_that_was_over_long_ago_does_not_excuse_silent_groups() -> None:
    silent = {"reward/zero_std_frac": level(0.8, 200)}
    noise = 0.02 * np.random.default_rng(5).normal(size=200)
    early = np.r_[np.linspace(0.1, 0.5, 60), np.full(140, 0.5)] + noise
    for reward, severity in ((early, Severity.MEDIUM), (np.linspace(0.1, 0.5, 200) + noise, Severity.LOW)):
        verdict = judged("no-signal-groups", silent | {"reward/mean": reward})
        assert isinstance(verdict, Broken)
        (found,) = verdict.findings
        assert found.severity is severity
        assert ("the reward rose anyway" in found.claim) == (severity is Severity.LOW)


# --- from tables to the series


def test_masked_tokens_are_counted_by_step_among_the_policy_s_own() -> None:
    rows = [
        {"r": [0.1, 0.2, 0.3, 0.4], "step": step, "model_mask": [True, True, True, False], "train_mask": mask}
        for step, mask in ((1, [True, True, True, False]), (1, [False] * 4), (2, [True, False, True, False]))
    ]
    frame = frame_of([{key: value for key, value in row.items() if key != "train_mask"} for row in rows])
    frame = frame.with_columns(pl.Series("train_mask", [row["train_mask"] for row in rows]))
    masked = gather_signal(
        tokens_of(frame), pl.DataFrame(schema={"split": pl.String, "step": pl.Int64, "advantage": pl.Float64})
    ).masked
    assert masked is not None
    assert masked.steps.tolist() == [1, 2]
    assert masked.values.tolist() == pytest.approx([0.5, 1 / 3])


def test_advantages_are_those_of_training_samples_that_have_one() -> None:
    table = pl.DataFrame(
        {
            "split": ["train"] * 6 + ["eval"] * 4,
            "step": [1] * 5 + [2] + [1] * 4,
            "advantage": [1.0, -1.0, 1.0, -1.0, None, 3.0, *[99.0, -99.0] * 2],
        }
    )
    found = gather_signal(None, table).advantage_std
    assert found is not None
    assert found.steps.tolist() == [1]  # one sample of step 2 has no deviation
    assert found.values.tolist() == pytest.approx([np.std([1, -1, 1, -1], ddof=1)])


def test_pairs_by_step_are_those_of_a_plain_computation() -> None:
    generator = np.random.default_rng(3)
    drawn = {step: generator.normal(size=400) for step in (3, 7)}
    found = gather_pairs(tokens_of(frame_of([{"r": values, "step": step} for step, values in drawn.items()])))
    held = found["policy/ref"]
    assert held.p99.steps.tolist() == [3, 7]
    for place, values in enumerate(drawn.values()):
        assert held.p99.values[place] == pytest.approx(np.quantile(np.abs(values), 0.99), rel=0.01)
        assert held.p999.values[place] == pytest.approx(np.quantile(np.abs(values), 0.999), rel=0.01)
        assert held.mean_abs.values[place] == pytest.approx(np.abs(values).mean(), rel=1e-6)


def test_a_spread_within_groups_that_vanishes_is_found_under_any_name() -> None:
    spread = {"group_reward_std_mean": series_of("group_reward_std_mean", jump(0.3, 0.01))}
    low = {"reward/mean": level(0.4)}
    found = broken(judged("no-signal-groups", low, other=spread), severity=Severity.MEDIUM, near=51)
    assert "within groups vanished" in found.claim
    solved = {"reward/mean": jump(0.5, 0.97)}
    broken(judged("no-signal-groups", solved, other=spread), severity=Severity.LOW)
    steady = {"within_group_std": series_of("within_group_std", level(0.3))}
    healthy(judged("no-signal-groups", low | {"reward/zero_std_frac": level(0.1)}, other=steady))


def test_answers_that_all_reach_one_length_are_cut_though_no_share_is_logged() -> None:
    lengths = np.concatenate([np.linspace(858, 3900, 13) + level(0.0, 13), np.full(22, 4096.0)])
    found = broken(judged("truncated-share", {"len/response_mean": lengths}), severity=Severity.HIGH, near=14)
    assert "4096 tokens long" in found.claim
    not_judged(judged("truncated-share", {"len/response_mean": level(800.0)}))


def test_a_reward_of_distillation_says_nothing_of_what_happened() -> None:
    taught = {
        "reward/mean": np.zeros(60),
        "kl/teacher": level(0.1, 60),
        "len/response_mean": np.r_[level(900.0, 40), np.full(20, 4096.0)],
    }
    assert "reward" not in broken(judged("truncated-share", taught)).claim.replace("no reward is logged", "")


@pytest.mark.parametrize(("early", "late", "severity"), [(0.95, 0.01, Severity.LOW), (0.01, 0.95, Severity.MEDIUM)])
def test_a_task_is_solved_where_its_answers_are_whole_since_groups_fell_silent(
    early: float, late: float, severity: Severity
) -> None:
    metrics = {
        "reward/zero_std_frac": jump(0.1, 0.9, at=130, count=240),
        "reward/mean": jump(0.3, 0.99, at=130, count=240),
        "len/clipped_frac": jump(early, late, at=130, count=240),
    }
    broken(judged("no-signal-groups", metrics), severity=severity, near=131)


def test_rewards_of_0_show_no_missing_baseline() -> None:
    rewards = np.zeros(60)
    rewards[[20, 40]] = 0.01
    not_judged(judged("advantages-without-baseline", {"reward/mean": rewards, "advantage/mean": 0.0 * rewards}))
    earned = level(0.5, 60)
    broken(judged("advantages-without-baseline", {"reward/mean": earned, "advantage/mean": earned}))


def test_one_wrong_answer_to_all_is_no_solved_task() -> None:
    silent = np.arange(60) % 4 > 0
    spread = series_of("reward/std", np.where(silent, 0.0, 0.2))
    for usual, severity in ((0.64, Severity.MEDIUM), (1.0, Severity.LOW)):
        reward = np.where(silent, usual, usual - 0.05)
        found = broken(judged("no-signal-groups", {"reward/mean": reward, "reward/std": spread}), severity=severity)
        assert ("one answer to all may earn it" in found.claim) == (severity is Severity.MEDIUM)


def test_a_reward_that_rose_from_below_0_did_not_fall_by_ending_under_half_of_its_best() -> None:
    cut = {"len/clipped_frac": level(0.95)}
    rose = np.r_[level(-3.0, 30), level(0.3, 30), level(0.1, 40)]
    assert "rose meanwhile" in broken(judged("truncated-share", cut | {"reward/mean": rose})).claim
    fell = np.r_[level(-3.0, 30), level(0.3, 30), level(-2.5, 40)]
    assert "while the reward fell" in broken(judged("truncated-share", cut | {"reward/mean": fell})).claim


TASKS = np.random.default_rng(7).integers(0, 5, 120)  # of four prompts, how many are partly solved


SAMPLED = ("score/mean", "response_length/mean", "prompt_length/mean")


def without_updates(updated: NDArray[np.bool_], beside: Sequence[str] = SAMPLED) -> dict[str, Series]:
    """Return what a run logs that samples at each step, and trains at some."""
    partly = {"batch/solve_partial": series_of("batch/solve_partial", TASKS.astype(float))}
    every = {name: series_of(name, level(0.5, 120, seed=seed)) for seed, name in enumerate(beside)}
    steps = (np.flatnonzero(updated) + 1).tolist()
    shown = {"grad_norm": series_of("grad_norm", level(0.3, 120)[updated], steps=steps)}
    return {**partly, **every, **shown}


def test_steps_that_sample_and_log_no_update_are_told_with_the_count_that_decides() -> None:
    logged = without_updates(TASKS >= 2)
    settings = {"filter.min_partial_tasks": 2, "filter.min_trajs": 2}
    found = broken(judged("steps-without-update", logged, settings=settings), severity=Severity.MEDIUM)
    assert "batch/solve_partial below 2 (filter.min_partial_tasks=2)" in found.claim
    drawn = np.random.default_rng(3).random(120) < 0.6
    empty = {"foo": series_of("foo", np.full(120, np.nan))}
    assert broken(judged("steps-without-update", without_updates(drawn) | empty)).evidence["told_apart_by"] is None
    assert broken(judged("steps-without-update", without_updates(drawn))).evidence["told_apart_by"] is None


@pytest.mark.parametrize(
    "updated",
    [
        np.arange(120) % 4 == 0,
        np.arange(120) % 3 != 0,
        np.arange(120) >= 40,
        (np.arange(120) < 50) | (np.arange(120) >= 85),
        np.arange(120) != 60,
        np.ones(120, bool),
    ],
)
def test_a_schedule_a_late_start_and_a_lost_line_are_no_skipped_updates(updated: NDArray[np.bool_]) -> None:
    healthy(judged("steps-without-update", without_updates(updated)))
    not_judged(judged("steps-without-update", {"reward/mean": level(0.4)}))


def test_steps_that_log_the_machine_alone_sampled_nothing() -> None:
    drawn = np.random.default_rng(3).random(120) < 0.6
    logged = without_updates(drawn, ("gpu_util", "cpu_mem_gb", "temperature"))
    healthy(judged("steps-without-update", logged))
