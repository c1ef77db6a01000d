"""What happens to samples on the way: lost to failures, left out of the mean, or trained on though they failed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rule_cases import findings_of, judged
from slow_cases import first_fast

import ptt
from ptt.diagnostics.model import Healthy, NotJudged, Severity

STEPS = 120
Log = Callable[[int, np.random.Generator], Mapping[str, float]]


def diagnosed(folder: Path, log: Log, episodes: list[dict[str, Any]] | None = None) -> ptt.Diagnosis:
    """Write a run of STEPS logged steps, and its episodes where there are any, and judge it."""
    run, generator = folder / "run", np.random.default_rng(11)
    run.mkdir()
    rows = [{"step": step, **log(step, generator)} for step in range(1, STEPS + 1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    if episodes is not None:
        text = "".join(json.dumps(row) + "\n" for row in episodes)
        (run / "rollouts.jsonl").write_text(text, encoding="utf-8")
    return ptt.diagnose(run)


def base(step: int, generator: np.random.Generator, reward: float) -> dict[str, float]:
    noise = 0.02 * float(generator.normal())
    return {"train/agg/effective/agent/reward/mean": reward + noise, "optim/grad_norm": 0.4 + noise, "loss/mean": noise}


def prime(failed: Callable[[int], float], *, kept: bool) -> Log:
    """Log a reward that rises, and one over all samples in which failed ones count 0."""

    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        reward = 0.3 + 0.3 * step / STEPS
        share = min(1.0, max(0.0, failed(step) + 0.005 * float(generator.normal())))
        row = base(step, generator, reward if kept else reward * (1 - share))
        every = row["train/agg/effective/agent/reward/mean"] * (1 - share if kept else 1)
        return {**row, "train/agg/all/agent/reward/mean": every, "train/agg/all/has_error/mean": share}

    return log


def test_an_outage_is_told_with_its_steps_and_what_the_others_earned(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, prime(lambda step: 0.8 if 60 <= step <= 72 else 0.02, kept=True))
    (lost,) = findings_of(found, "samples-lost")
    assert (lost.severity, lost.onset_step, lost.evidence["last_step"]) == (Severity.MEDIUM, 60, 72)
    assert "among samples that finished it did not" in lost.claim
    assert not findings_of(found, "reward-fell")


def test_a_small_constant_rate_of_failures_is_a_fact(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, prime(lambda _: 0.04, kept=True))
    assert not findings_of(found, "samples-lost")
    assert not findings_of(found, "survivors-only")
    verdict = next(healthy for healthy in found.healthy if healthy.id == "samples-lost")
    assert "without a stretch" in verdict.reason


def test_samples_lost_throughout_are_a_finding(tmp_path: Path) -> None:
    (lost,) = findings_of(diagnosed(tmp_path, prime(lambda _: 0.45, kept=True)), "samples-lost")
    assert lost.severity is Severity.MEDIUM
    assert lost.observed == pytest.approx(0.45, abs=0.02)


def test_a_reward_that_rises_over_kept_samples_alone_is_found(tmp_path: Path) -> None:
    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        row = base(step, generator, 0.3 + 0.4 * step / STEPS)
        return {**row, "train/agg/all/agent/reward/mean": 0.3 + 0.02 * float(generator.normal())}

    (found,) = findings_of(diagnosed(tmp_path, log), "survivors-only")
    assert found.severity is Severity.MEDIUM
    assert "over all of them" in found.claim


def stale(evaluated: float) -> Log:
    """Log veRL's totals: ever more stale samples are dropped; the evaluation rises by this."""
    total = {"generated": 0.0, "dropped": 0.0}

    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        total["generated"] += 64
        total["dropped"] += max(0.0, 0.5 * (step - 40)) + 1
        row = {
            "critic/score/mean": 0.4 + 0.25 * step / STEPS + 0.02 * float(generator.normal()),
            "actor/grad_norm": 0.4,
            "fully_async/count/total_generated_samples": total["generated"],
            "fully_async/count/dropped_stale_samples": total["dropped"],
        }
        return row | ({"val-core/math/acc/mean@1": 0.4 + evaluated * step / STEPS} if step % 10 == 0 else {})

    return log


def test_a_rise_beside_ever_more_stale_samples_is_selection_where_the_evaluation_stays(tmp_path: Path) -> None:
    (found,) = findings_of(diagnosed(tmp_path, stale(0.0)), "survivors-only")
    assert "lost as stale" in found.claim
    assert "did not follow" in found.claim


def test_where_the_evaluation_rises_too_the_reward_is_believed(tmp_path: Path) -> None:
    assert not findings_of(diagnosed(tmp_path, stale(0.25)), "survivors-only")


def ledger(*, masked: bool, failing: range) -> list[dict[str, Any]]:
    """Return episodes of prompt groups of 4, of which most fail at some steps and earn 0."""
    generator, rows = np.random.default_rng(3), []
    for step in range(1, STEPS + 1):
        for place in range(16):
            failed = step in failing and place % 8 != 0
            rows.append(
                {
                    "train_step": step,
                    "task_id": f"{step}-{place // 4}",
                    "id": f"{step}-{place}",
                    "reward": 0.0 if failed else float(generator.random() < 0.5),
                    "failure_reason": "session reset failed" if failed else None,
                    "mask_sample": masked and failed,
                }
            )
    return rows


def flat(_: int, generator: np.random.Generator) -> dict[str, float]:
    return {"reward": 0.5 + 0.02 * float(generator.normal()), "grad_norm": 0.4, "loss": 0.01}


def test_failed_episodes_that_are_trained_on_are_told_with_their_advantage(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, flat, ledger(masked=False, failing=range(61, 81)))
    (taught,) = findings_of(found, "trained-on-failures")
    assert (taught.severity, taught.onset_step, taught.evidence["last_step"]) == (Severity.HIGH, 61, 80)
    assert isinstance(taught.evidence["advantage"], float)
    assert taught.evidence["advantage"] < 0
    (lost,) = findings_of(found, "samples-lost")
    assert (lost.severity, lost.onset_step) == (Severity.HIGH, 61)
    assert "trained on" in lost.claim


def test_masked_failures_teach_nothing(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, flat, ledger(masked=True, failing=range(61, 81)))
    assert not findings_of(found, "trained-on-failures")
    (lost,) = findings_of(found, "samples-lost")
    assert lost.severity is Severity.LOW


def test_episodes_that_end_well_are_healthy(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, flat, ledger(masked=False, failing=range(0)))
    assert {"samples-lost", "trained-on-failures"} <= {healthy.id for healthy in found.healthy}


@pytest.mark.parametrize("word", first_fast(["None", "ok", "incorrect", "AssertionError"], 2))
def test_a_word_for_no_error_or_for_a_wrong_answer_is_no_failure(word: str, tmp_path: Path) -> None:
    rows = [row | {"failure_reason": word} for row in ledger(masked=False, failing=range(0))]
    found = diagnosed(tmp_path, flat, rows)
    assert not findings_of(found, "samples-lost")
    assert not findings_of(found, "trained-on-failures")


def test_episodes_without_a_reward_count_as_not_solved(tmp_path: Path) -> None:
    generator, rows = np.random.default_rng(4), []
    for step in range(10, STEPS + 1, 10):
        for place in range(100):
            dropped = generator.random() < 0.05 + 0.4 * step / STEPS
            solved = generator.random() < 0.42 / (0.95 - 0.4 * step / STEPS)
            rows.append(
                {
                    "id": f"{step}:{place}",
                    "task_id": str(place // 4),
                    "step": step,
                    "termination_reason": "max_prompt_length_exceeded" if dropped else "env_done",
                    "is_correct": bool(solved and not dropped),
                    "trajectories": [] if dropped else [{"reward": float(solved)}],
                }
            )
    (found,) = findings_of(diagnosed(tmp_path, flat, rows), "survivors-only")
    assert "counted as not solved" in found.claim


def groups(right: Callable[[int], float], wrong: Callable[[int], float]) -> Log:
    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        noise = 0.01 * float(generator.normal())
        return {
            "env/all/reward/total": right(step) + 0.5 * (1 - right(step) - wrong(step)) + noise,
            "env/all/by_group/frac_all_good": right(step) + noise,
            "env/all/by_group/frac_all_bad": wrong(step) - noise,
            "env/all/by_group/frac_mixed": 1 - right(step) - wrong(step),
            "optim/entropy": 0.5,
        }

    return log


def test_groups_that_are_all_wrong_ask_for_the_verifier_first(tmp_path: Path) -> None:
    (found,) = findings_of(diagnosed(tmp_path, groups(lambda _: 0.05, lambda _: 0.7)), "no-signal-groups")
    assert found.severity is Severity.MEDIUM
    assert "70" in found.claim
    assert found.next[0].startswith("score ten right answers")


def test_groups_that_are_all_right_are_solved_and_it_is_told_when_none_is_left(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, groups(lambda step: 0.1 + 0.7 * step / STEPS, lambda _: 0.05))
    (solved,) = findings_of(found, "no-signal-groups")
    assert solved.severity is Severity.LOW
    assert solved.next == ("move on to harder prompts, or stop",)
    low, high = solved.evidence["none_left_from"], solved.evidence["none_left_to"]
    assert isinstance(low, int)
    assert isinstance(high, int)
    assert low <= round(0.85 / 0.7 * STEPS) <= high


def test_a_run_that_generates_nothing_any_more_is_not_called_a_collapse_first(tmp_path: Path) -> None:
    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        alive = step < 40
        noise = 0.02 * float(generator.normal())
        return {
            "reward": (0.5 + noise) * alive,
            "completions/mean_length": (900 + 300 * noise) * alive,
            "grad_norm": (0.4 + noise) * alive,
            "loss": noise * alive,
        }

    found = diagnosed(tmp_path, log)
    (silent,) = findings_of(found, "empty-responses")
    assert (silent.severity, silent.onset_step) == (Severity.HIGH, 40)
    assert found.verdict.headline.startswith("Nothing is generated from step 40 on")


def samples_of(paid: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return samples of data sources, as veRL dumps them, with the share of each that is right."""
    generator = np.random.default_rng(6)
    return [
        {"train_step": step, "id": f"{step}-{source}-{at}", "task_id": f"{step}-{source}-{at // 4}",
         "reward": float(generator.random() < share), "status": "completed", "env": source}
        for step in (10, 60, 110)
        for source, share in paid.items()
        for at in range(20)
    ]  # fmt: skip


def test_a_data_source_that_never_earns_anything_is_named(tmp_path: Path) -> None:
    (silent,) = findings_of(diagnosed(tmp_path, flat, samples_of({"gsm8k": 0.6, "math": 0.0})), "source-never-rewarded")
    assert (silent.severity, silent.slice) == (Severity.MEDIUM, "env:math")


@pytest.mark.parametrize("paid", [{"gsm8k": 0.6, "math": 0.2}, {"gsm8k": 0.0, "math": 0.0}])
def test_sources_that_earn_something_or_all_nothing_are_no_such_finding(
    tmp_path: Path, paid: Mapping[str, float]
) -> None:
    assert not findings_of(diagnosed(tmp_path, flat, samples_of(paid)), "source-never-rewarded")


@pytest.mark.parametrize(("accuracy", "notes"), [(0.0, 1), (0.004, 0)], ids=["exactly 0", "nearly 0"])
def test_an_evaluation_of_exactly_0_beside_one_that_moves_is_a_note(
    tmp_path: Path, accuracy: float, notes: int
) -> None:
    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        row = flat(step, generator)
        if step % 10 == 0:
            row |= {"eval/gsm8k/accuracy": accuracy, "eval/math500/accuracy": 0.4 + 0.002 * step}
        return row

    found = findings_of(diagnosed(tmp_path, log), "source-never-rewarded")
    assert [one.severity for one in found] == [Severity.LOW] * notes
    assert all(one.slice == "env:gsm8k" and "while eval/math500/accuracy" in one.claim for one in found)


@pytest.mark.parametrize("rule", ["samples-lost", "survivors-only", "trained-on-failures"])
def test_without_counters_nothing_is_judged(rule: str) -> None:
    verdict = judged(rule, {})
    assert isinstance(verdict, NotJudged)
    assert not isinstance(verdict, Healthy)
    assert verdict.absent


def full(lacking: Callable[[int], float], *, name: str = "experience_pipeline/experience_count") -> Log:
    """Log a reward and how many samples of 512 a step has."""

    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        count = round(512 * (1 - lacking(step) * float(generator.uniform(0.8, 1.2))))
        return {"reward": 0.5 + 0.02 * float(generator.normal()), "grad_norm": 0.3, name: float(count)}

    return log


def test_batches_that_are_no_longer_full_are_told_from_the_first_short_one(tmp_path: Path) -> None:
    (lost,) = findings_of(diagnosed(tmp_path, full(lambda step: 0.2 if step > 20 else 0.0)), "samples-lost")
    assert (lost.severity, lost.onset_step) == (Severity.MEDIUM, 21)
    assert "are missing from batches that were full before" in lost.claim


@pytest.mark.parametrize(
    "lacking",
    [
        lambda _: 0.0,
        lambda step: 0.2 if step == 40 else 0.0,
        lambda step: 0.02 if step > 20 else 0.0,
        lambda _: 0.3,
        lambda step: 0.0 if step % 10 else 0.6,  # what an epoch leaves
    ],
)
def test_full_batches_and_those_that_always_vary_are_sound(tmp_path: Path, lacking: Callable[[int], float]) -> None:
    found = findings_of(diagnosed(tmp_path, full(lacking)), "samples-lost")
    assert not [one for one in found if one.severity.at_least(Severity.MEDIUM)]


def test_a_batch_that_was_made_smaller_lacks_nothing(tmp_path: Path) -> None:
    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        size = 512.0 if step <= 20 else 256.0
        return {**full(lambda _: 0.0)(step, generator), "experience_pipeline/experience_count": size}

    assert not findings_of(diagnosed(tmp_path, log), "samples-lost")


def test_a_reward_that_falls_while_the_outcome_rises_is_no_worse_policy(tmp_path: Path) -> None:
    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        noise, part = 0.01 * generator.normal(size=3), step / STEPS
        reward = 0.5 - 0.4 * max(0.0, part - 0.5)
        return {"reward": reward + noise[0], "env/all/correct": 0.4 + 0.1 * part + noise[1], "grad_norm": 0.3,
                "completions/mean_length": 1000 * (1 + 3 * part)}  # fmt: skip

    found = diagnosed(tmp_path, log)
    (fell,) = findings_of(found, "reward-fell")
    assert "yet env/all/correct" in fell.claim
    (open_,) = (one for one in found.not_judged if one.id == "length-inflation")
    assert "the reward does not measure the outcome" in open_.reason


@pytest.mark.parametrize(("rises", "hidden"), [(True, True), (False, False)])
def test_failures_hide_what_longer_answers_gain_only_where_they_became_more(
    tmp_path: Path, rises: bool, hidden: bool
) -> None:
    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        noise, part = 0.01 * generator.normal(size=2), step / STEPS
        lost = 0.3 * max(0.0, part - 0.3) if rises else 0.13
        ended = 0.97 - lost + 0.3 * noise[1]
        return {"reward": 0.5 + noise[0], "completions/mean_length": 400 * (1 + 3 * max(0.0, part - 0.3)),
                "train/natural_termination_rate": ended, "train/truncation_rate": 0.02}  # fmt: skip

    found = diagnosed(tmp_path, log)
    assert bool(findings_of(found, "length-inflation")) is not hidden
    why = [one.reason for one in found.not_judged if one.id == "length-inflation"]
    assert ["lost to failures" in one for one in why] == [True] * hidden


def consoles(folder: Path, lines: Callable[[int], int], reward: Callable[[int], float], rows: str) -> ptt.Diagnosis:
    """Judge metrics beside a console that says `lines` times a step that the scorer failed, and then `rows`."""
    run, generator = folder / "run", np.random.default_rng(6)
    run.mkdir()
    said, logged = [], []
    for step in range(STEPS):
        score = reward(step) + 0.01 * float(generator.normal())
        said += ["01:02:03 Reward WARNING: Computing reward timeout after 15s. Set reward to 0."] * lines(step)
        said.append(rows.format(next=step + 1, step=step, steps=STEPS, reward=score))
        logged.append({"step": step, "ppo_actor/task_reward/avg": score, "ppo_actor/n_seqs": 64.0, "grad_norm": 0.3})
    (run / "trainer.log").write_text("\n".join(said) + "\n", "utf-8")
    if "reward" not in rows:
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in logged), "utf-8")
    return ptt.diagnose(run)


AREAL = "01:02:04 StatsLogger INFO: Epoch 1/5 Step 1/50 Train step {next}/{steps} done."
PLAIN = "{{'step': {step}, 'reward': {reward:.4f}, 'grad_norm': 0.3, 'loss': 0.01}}"


def test_rewards_set_to_0_since_a_step_are_told_with_their_share_and_the_others_reward(tmp_path: Path) -> None:
    found = consoles(tmp_path, lambda at: 16 if at >= 60 else at % 2, lambda at: 0.6 if at < 60 else 0.45, AREAL)
    (lost,) = findings_of(found, "samples-lost")
    assert (lost.severity, lost.onset_step, lost.observed) == (Severity.MEDIUM, 60, 0.25)
    assert lost.claim.startswith("25% of samples could not be scored from step 60")
    assert "count as 0" in lost.claim


def test_a_scorer_that_fails_on_a_constant_handful_is_healthy(tmp_path: Path) -> None:
    found = consoles(tmp_path, lambda at: at % 3, lambda _: 0.6, AREAL)
    assert not findings_of(found, "samples-lost")
    assert any(one.id == "samples-lost" for one in found.healthy)


@pytest.mark.parametrize(("change", "severity"), [(-0.3, Severity.MEDIUM), (0.3, Severity.LOW)])
def test_a_scorer_that_fails_on_more_matters_where_the_reward_falls(
    tmp_path: Path, change: float, severity: Severity
) -> None:
    found = consoles(tmp_path, lambda at: 24 if at >= 60 else 10 + at % 3, lambda at: 0.5 + change * (at >= 60), PLAIN)
    (lost,) = findings_of(found, "samples-lost")
    assert (lost.severity, lost.onset_step) == (severity, 60)
    assert "24 times a step the scorer fails" in lost.claim
    assert "the reward went from 0.50 to 0." in lost.claim


def test_a_reward_that_rises_with_its_scorers_failures_and_alone_is_paid_for_them(tmp_path: Path) -> None:
    evaluated = PLAIN.removesuffix("}}") + ", 'eval_accuracy': 0.4}}"
    found = consoles(tmp_path, lambda at: 24 if at >= 60 else 10 + at % 3, lambda at: 0.5 + 0.3 * (at >= 60), evaluated)
    (lost,) = findings_of(found, "samples-lost")
    assert (lost.severity, lost.onset_step) == (Severity.MEDIUM, 60)


@pytest.mark.parametrize("masked", [False, True])
def test_failures_that_the_settings_do_not_mask_are_trained_on(masked: bool, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    settings = {"learning_rate": 1e-6, "beta": 0.0, "max_steps": 120, "mask_infra_failed_completions": masked}
    (tmp_path / "run" / "config.json").write_text(json.dumps(settings), "utf-8")
    rows = [{"step": at, "val/infra_failed_rate": 0.15 if at > 60 else 0.01, "scores": 0.5} for at in range(1, 121)]
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (lost,) = findings_of(ptt.diagnose(tmp_path / "run"), "samples-lost")
    assert ("mask_infra_failed_completions is false" in lost.claim) is not masked
    assert lost.severity is (Severity.LOW if masked else Severity.MEDIUM)


@pytest.mark.parametrize("limit", [False, True])
def test_samples_that_end_neither_by_themselves_nor_at_a_limit_are_lost(limit: bool, tmp_path: Path) -> None:
    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        gone = (0.2 if step > 60 else 0.0) + 0.005 * float(generator.random())
        cut = 0.01 + gone * limit
        return {"train/natural_termination_rate": 0.99 - gone, "train/truncation_rate": cut,
                "train/reward": 0.6 * (1 - gone), "train/grad_norm": 0.3}  # fmt: skip

    lost = findings_of(diagnosed(tmp_path, log), "samples-lost")
    assert [one.onset_step for one in lost] == ([] if limit else [61])
    assert all("end neither by themselves nor at a limit" in one.claim for one in lost)


@pytest.mark.parametrize("masked", [False, True])
def test_flagged_episodes_that_no_count_shows_as_masked_are_trained_on(masked: bool, tmp_path: Path) -> None:
    def log(step: int, generator: np.random.Generator) -> dict[str, float]:
        flagged = (0.3 if 60 <= step <= 90 else 0.0) + 0.02 * float(generator.random())
        reward = 0.5 * (1.0 if masked else 1 - flagged) + 0.01 * float(generator.normal())
        return {"train/reward": reward, "train/swe_agents/mask_sample/mean": flagged, "train/grad_norm": 0.3,
                "train/num_mask_sample_filtered": round(256 * flagged) * float(masked)}  # fmt: skip

    (lost,) = findings_of(diagnosed(tmp_path, log), "samples-lost")
    assert (lost.onset_step, lost.evidence["last_step"]) == (60, 90)
    assert ("flagged to be masked, and train/num_mask_sample_filtered is 0" in lost.claim) is not masked
    assert lost.severity.at_least(Severity.MEDIUM) is not masked
