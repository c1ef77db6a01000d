"""False alarms: healthy runs of every length and noise, with the movements that healthy training makes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import Array, evidence_of, series_of
from rule_cases import BY_ID, PPO, wander, worst

from benchmarks.loop.faults import FAULTS
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.reference import gather_reference
from ptt.diagnostics.evidence.tokens_by_step import PairSteps, Signal
from ptt.diagnostics.model import Healthy
from ptt.diagnostics.rules import (
    CRITIC_RULES,
    DATA_FRESHNESS_RULES,
    EXPLORATION_RULES,
    POLICY_UPDATE_RULES,
    TRAINING_SIGNAL_RULES,
)

FOLDERS = (TRAINING_SIGNAL_RULES, POLICY_UPDATE_RULES, CRITIC_RULES, EXPLORATION_RULES, DATA_FRESHNESS_RULES)
OURS = sorted({rule.id for rules in FOLDERS for rule in rules} - {"no-signal-groups"})
LIKENESS = (0.0, 0.3, 0.6, 0.8)
COUNTS = (12, 30, 60, 120, 300, 900)
RUNS = 200
QUICK = 24  # of them: one of each likeness and length
MOST = 19  # rules whose metrics these runs hold


def healthy_run(number: int) -> Evidence:
    """A healthy run: noise on the log scale, alike from step to step, around levels that drift as learning does."""
    likeness, count = LIKENESS[number % len(LIKENESS)], COUNTS[number // len(LIKENESS) % len(COUNTS)]
    rough = (0.05, 0.15, 0.3)[number % 3]
    done = np.linspace(0, 1, count)
    streams = iter(range(1000 * number, 1000 * number + 999, 2))

    def around(early: float, late: float | None = None, *, noise: float = rough) -> Array:
        held = early * ((late or early) / early) ** np.sqrt(done)
        return held * np.exp(noise * wander(next(streams), count=count, likeness=likeness))

    def share(early: float, late: float) -> Array:
        return np.clip(
            early + (late - early) * np.sqrt(done) + 0.03 * wander(next(streams), count=count, likeness=likeness), 0, 1
        )

    returns = around(0.4, 0.9, noise=0.05)
    metrics = {
        "reward/mean": share(0.4, 0.9),
        "lr": 1e-6 * np.minimum(1.0, np.arange(1, count + 1) / 10) * (1 - 0.9 * done),
        "kl/ref": around(0.002, 0.08),
        "kl/old": around(0.004, 0.001),
        "clip/frac": share(0.05, 0.1),
        "clip/frac_low": share(0.03, 0.06),
        "clip/frac_high": share(0.02, 0.04),
        "is/ratio_max": np.exp(np.abs(around(0.5))),
        "is/ratio_min": np.exp(-np.abs(around(0.5))),
        "entropy": around(0.4, 0.06 if number % 2 else 0.6),
        "len/response_mean": around(200, 500 if number % 2 else 130, noise=min(rough, 0.15)),
        "len/clipped_frac": share(0.15, 0.05),
        "len/empty_frac": np.maximum(0.0, 0.01 * wander(next(streams), count=count, likeness=likeness)),
        "advantage/std": around(0.95, 0.4),
        "mask/share": share(0.15, 0.2),
        "critic/value_loss": around(0.1, 0.01 if number % 2 else 0.12),
        "critic/explained_variance": share(0.1, 0.6),
        "critic/return_mean": returns,
        "critic/value_mean": returns * (1 - np.exp(-np.arange(count) / 3)),
        "mismatch/kl": around(0.001, 0.002),
        "mismatch/prob_diff": around(0.001, 0.002),
        "mismatch/logp_abs_mean": around(0.004, 0.008),
        "staleness/mean": np.maximum(0.0, around(2.0)),
    }
    tokens = {
        name: PairSteps(
            pair=name,
            p99=series_of("p99", around(0.03, level)),
            p999=series_of("p999", around(0.1, 4 * level)),
            mean_abs=series_of("mean_abs", around(0.002, level / 15)),
        )
        for name, level in (("policy/old", 0.05), ("old/rollout", 0.05), ("policy/rollout", 0.08), ("policy/ref", 0.6))
    }
    signal = Signal(masked=series_of("", share(0.05, 0.1)), empty=series_of("", np.zeros(count)))
    evidence = evidence_of(metrics=metrics)
    reference = gather_reference(evidence.metrics, tokens, {})
    return replace(evidence, algorithm=PPO, pairs=tokens, reference=reference, signal=signal)


@pytest.mark.parametrize("numbers", [range(QUICK), pytest.param(range(QUICK, RUNS), marks=pytest.mark.slow)])
def test_nothing_of_medium_severity_on_healthy_runs(numbers: range) -> None:
    found = {number: worst(healthy_run(number), OURS) for number in numbers}
    assert {number: findings for number, findings in found.items() if findings} == {}


def test_a_rule_has_an_answer_here_or_where_its_fault_is_put_into_runs() -> None:
    """What a rule answers before its fault is in test_faults_of_rules.py."""
    evidence = healthy_run(19)
    answered = {name for name in OURS if isinstance(BY_ID[name].run(evidence), Healthy)}
    of_their_own = {"tool-diversity", "mismatch-after-tools", "rank-mismatch", "negative-entropy-bonus"}
    of_their_own |= {
        "trained-on-failures",
        "old-weights-in-batch",
    }  # test_rules_samples.py, test_rules_sample_faults.py
    of_their_own |= {"advantages-against-rewards", "advantages-of-other-samples", "groups-of-other-prompts"}
    of_their_own |= {"groups-of-one", "batch-wide-advantages", "advantages-off-centre"}  # test_recomputed_advantages.py
    assert set(OURS) - answered - {fault.name for fault in FAULTS} == of_their_own
    assert len(answered) >= MOST
