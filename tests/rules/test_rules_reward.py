"""The rules on evaluation and on the reward: broken, healthy, not judged, and quiet on noise and on learning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from builders import Array, evidence_of, series_of
from rule_cases import BY_ID, finding, healthy
from slow_cases import first_fast

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.counts import Counts
from ptt.diagnostics.evidence.environment import Environment, Tool
from ptt.diagnostics.evidence.evaluation import Condition, EvalMetric, Evaluation, Setting
from ptt.diagnostics.evidence.rewards import Rewards, Samples, reward_component
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.metrics.name_words import is_outcome
from ptt.diagnostics.model import Broken, Healthy, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules import EVALUATION_RULES, REWARD_RULES

MINE = {rule.id: rule for rule in (*EVALUATION_RULES, *REWARD_RULES)}
POINTS = 12
STEPS = 240


def noisy(levels: Array | float, *, sd: float = 0.02, rho: float = 0.0, count: int = STEPS, seed: int = 0) -> Array:
    generator = np.random.default_rng(seed)
    noise = generator.normal(size=count) * sd * np.sqrt(1 - rho * rho)
    for place in range(1, count):
        noise[place] += rho * noise[place - 1]
    found: Array = np.broadcast_to(levels, (count,)) + noise
    return found


def ramp(early: float, late: float, count: int = STEPS) -> Array:
    return np.linspace(early, late, count)


def step_at(early: float, late: float, at: int = STEPS // 2, count: int = STEPS) -> Array:
    return np.where(np.arange(count) < at, early, late)


def every(values: Sequence[float] | Array, name: str = "accuracy") -> Series:
    steps = np.linspace(STEPS / len(values), STEPS, len(values)).round().astype(int)
    return series_of(name, values, steps=steps.tolist())


def figure(values: Array, name: str = "accuracy", twin: Array | None = None, split: str = "eval") -> EvalMetric:
    beside = None if twin is None else series_of(name, twin)
    return EvalMetric(
        name=name, split=split, outcome=is_outcome(name), series=every(values, f"{split}/{name}"), twin=beside
    )


def samples(rewards: Array, outcomes: Array | None = None) -> Samples:
    count = len(rewards)
    held = np.full(count, np.nan) if outcomes is None else outcomes
    return Samples(
        steps=np.arange(1, count + 1) // 8,
        rewards=np.asarray(rewards, np.float64),
        advantages=np.full(count, np.nan),
        outcomes=np.asarray(held, np.float64),
        outcome_name=None if outcomes is None else "success",
        ids=tuple(f"t{place:05d}" for place in range(count)),
        sources=("samples.jsonl",) * count,
    )


def made(
    metrics: Mapping[str, Array] | None = None,
    *,
    parts: Mapping[str, Array] | None = None,
    outcomes: Mapping[str, Array] | None = None,
    other: Mapping[str, Array] | None = None,
    singles: Samples | None = None,
    figures: Sequence[EvalMetric] = (),
    settings: Sequence[Setting] = (),
    conditions: Mapping[str, Array] | None = None,
) -> Evidence:
    def series(given: Mapping[str, Array] | None) -> dict[str, Series]:
        return {name: series_of(name, values) for name, values in (given or {}).items()}

    held = {**{name: one for name, one in (parts or {}).items() if is_outcome(name)}, **(outcomes or {})}
    rewards = Rewards(components=series(parts), outcomes=series(held), samples=singles)
    return replace(
        evidence_of(metrics=metrics),
        other=series(other),
        rewards=rewards if parts or held or singles else None,
        evaluation=Evaluation(
            figures=tuple(figures),
            settings=tuple(settings),
            conditions=tuple(Condition(name=name, series=every(values, name)) for name, values in conditions.items())
            if conditions
            else (),
        )
        if figures or settings or conditions
        else None,
    )


def run(rule: str, evidence: Evidence) -> RuleVerdict:
    return MINE[rule].run(evidence)


def points(values: Array | float, seed: int = 3, sd: float = 0.015) -> Array:
    return noisy(values, sd=sd, count=POINTS, seed=seed)


CUT, CALLS = "len/clipped_frac", "tools/call_frequency"
UP = noisy(ramp(0.3, 0.9), seed=1)
PEAKED = np.concatenate([np.linspace(0.3, 0.6, 12), np.linspace(0.6, 0.4, 12)])  # an evaluation that turns half-way
LONGER = noisy(ramp(200, 900), sd=20, seed=2)
MORE_CALLS = noisy(ramp(1.2, 4.5), sd=0.2, seed=2)
LATE_LONGER = noisy(np.concatenate([np.full(140, 200.0), np.linspace(200, 500, 100)]), sd=10, seed=2)
RNG = np.random.default_rng(8)
DONE = RNG.random(600) < 0.5
SPIKED = points(0.5)
SPIKED[6] = 0.9
OUTLIERS = RNG.normal(size=600)
OUTLIERS[[100, 300]] = 500.0
JUDGED = noisy(step_at(0.4, 0.8), seed=5)


def leaping(*steps: int, seed: int = 5) -> Array:
    values = noisy(0.4, seed=seed)
    values[list(steps)] += 0.4
    return values


LEAPING = leaping(60, 120)
WAY = {"refusal_rate": noisy(step_at(0.05, 0.3), sd=0.01)}

RIGHT, FORM = noisy(ramp(0.3, 0.8), seed=11), noisy(0.6, sd=0.05, seed=12)
LATE = np.arange(STEPS) >= 150
STYLE = noisy(0.7, sd=0.05, seed=13)
PAID, SPREAD, SCALE = noisy(0.7, sd=0.05, seed=11), noisy(0.4, sd=0.05, seed=12), np.where(LATE, 100.0, 1.0)
EPOCHS = np.repeat([1.0, 2.0, 3.0], 40)
BY_ROW = np.tile(np.random.default_rng(5).choice([0.0, 0.1, 0.45], 40), 3) + noisy(0.0, count=120)
LOGITS = np.random.default_rng(6).uniform(-1.0, 0.6, 40)
ALIKE = np.isin(np.arange(STEPS), STEPS - np.array([4, 9, 15]))  # steps whose samples all earn the same
PAYS = np.where(LATE, noisy(0.5, sd=0.05, seed=14), 0.0)
PAYS_STD = np.sqrt(0.01 * FORM * (1 - FORM) + PAYS * (1 - PAYS))
SUCCESS = noisy(step_at(0.05, 0.85), sd=0.005, seed=13)  # of tasks that pay 1

BROKEN: dict[str, tuple[Evidence, Severity]] = {
    "constant-component": (made(parts={"correctness": RIGHT, "strict_format": np.zeros(STEPS)}), Severity.LOW),
    "constant-component/at its highest": (made(parts={"correctness": RIGHT, "language": np.ones(STEPS)}), Severity.LOW),
    "reward-hacking/outcome lost": (
        made({"reward/mean": UP}, outcomes={"env/accuracy": noisy(step_at(0.6, 0.05, 60))}),
        Severity.CRITICAL,
    ),
    "reward-hacking/outcome worse": (
        made({"reward/mean": UP}, outcomes={"env/accuracy": noisy(step_at(0.6, 0.4, 60))}),
        Severity.HIGH,
    ),
    "reward-hacking/benchmark flat, longer": (
        made({"reward/mean": UP, "len/response_mean": LONGER}, figures=[figure(points(0.4))]),
        Severity.HIGH,
    ),
    "reward-hacking/benchmark turned, longer": (
        made({"reward/mean": UP, "len/response_mean": LONGER}, figures=[figure(noisy(PEAKED, count=24, seed=3))]),
        Severity.HIGH,
    ),
    "reward-hacking/what is paid rose, held-out flat, longer": (
        made(
            {"reward/mean": UP, "len/response_mean": LONGER},
            parts={"correct": UP - 0.1, "style": noisy(0.1)},
            figures=[figure(points(0.4))],
        ),
        Severity.HIGH,
    ),
    "eval-not-following/turned half-way": (
        made({"reward/mean": UP}, figures=[figure(noisy(PEAKED, count=24, seed=3))]),
        Severity.HIGH,
    ),
    "eval-not-following/flat": (made({"reward/mean": UP}, figures=[figure(points(0.4))]), Severity.MEDIUM),
    "eval-not-following/fell": (
        made({"reward/mean": UP}, figures=[figure(points(ramp(0.5, 0.3, POINTS)), twin=UP)]),
        Severity.HIGH,
    ),
    "eval-spikes/one point": (made({"reward/mean": noisy(0.5)}, figures=[figure(SPIKED)]), Severity.MEDIUM),
    "eval-protocol-changed/temperature": (
        made(settings=[Setting(suite="aime", name="temperature", points=((10, 0.6), (20, 0.6), (30, 1.0)))]),
        Severity.MEDIUM,
    ),
    "eval-protocol-changed/smaller suite": (
        made(settings=[Setting(suite="aime", name="samples", points=((10, 500), (20, 100), (30, 100)), exact=False)]),
        Severity.MEDIUM,
    ),
    "reward-revised/other weights": (
        made({"reward/mean": RIGHT * np.where(LATE, 2.0, 1.0) + 0.1 * FORM}, parts={"right": RIGHT, "form": FORM}),
        Severity.MEDIUM,
    ),
    "reward-revised/more for every row of each epoch": (
        made({"reward/mean": BY_ROW + 0.15 * EPOCHS, "epoch": EPOCHS}),
        Severity.MEDIUM,
    ),
    "reward-revised/a part more": (
        made(
            {"reward/mean": RIGHT + 0.1 * FORM + np.where(LATE, STYLE, 0.0)},
            parts={"right": RIGHT, "form": FORM, "style": np.where(LATE, STYLE, np.nan)},
        ),
        Severity.MEDIUM,
    ),
    "reward-revised/a hundred times as much": (
        made({"reward/mean": PAID * SCALE, "reward/std": SPREAD * SCALE}, parts={"right": PAID * SCALE}),
        Severity.MEDIUM,
    ),
    "reward-variance/a hundred times as much, and steps that all earn the same": (
        made({"reward/mean": PAID * SCALE, "reward/std": np.where(ALIKE, 1e-7, SPREAD * SCALE)}),
        Severity.MEDIUM,
    ),
    **{
        f"reward-revised/{factor:g} times as much": (
            made({"reward/mean": PAID * np.where(LATE, factor, 1), "reward/std": SPREAD * np.where(LATE, factor, 1)}),
            Severity.MEDIUM,
        )
        for factor in (3, 10, 1000)
    },
    "eval-unlike-training/cut from half-way on": (
        made({CUT: noisy(0.02, sd=0.005)}, conditions={CUT: points(step_at(0.02, 0.45, 6, POINTS))}),
        Severity.MEDIUM,
    ),
    "eval-unlike-training/junk at every evaluation": (
        made(
            {CUT: noisy(0.02, sd=0.005)},
            conditions={CUT: points(0.95)},
            figures=[figure(points(0.01, sd=0.002), twin=noisy(0.6))],
        ),
        Severity.MEDIUM,
    ),
    "eval-unlike-training/no tools": (
        made({CALLS: noisy(1.5)}, conditions={CALLS: np.zeros(POINTS)}),
        Severity.MEDIUM,
    ),
    "split-gap/public and private": (
        made(
            figures=[
                figure(points(ramp(0.4, 0.8, POINTS)), "public/accuracy"),
                figure(points(0.4, seed=4), "private/accuracy"),
            ]
        ),
        Severity.MEDIUM,
    ),
    "split-gap/by a step": (
        made(
            figures=[
                figure(noisy(step_at(0.5, 0.8, 8, 24), sd=0.012, count=24, seed=3), "public/accuracy"),
                figure(noisy(0.5, sd=0.012, count=24, seed=4), "private/accuracy"),
            ]
        ),
        Severity.MEDIUM,
    ),
    "split-gap/training and held-out": (made(figures=[figure(points(0.3), twin=UP)]), Severity.MEDIUM),
    "reward-dips/every tenth step": (
        made({"reward/mean": np.where(np.arange(STEPS) % 10 == 9, 0.0, noisy(0.6))}),
        Severity.HIGH,
    ),
    "reward-fell/little left": (made({"reward/mean": noisy(step_at(0.8, 0.1))}), Severity.HIGH),
    "reward-fell/in the last four values": (
        made({"reward/mean": np.where(np.arange(STEPS) < STEPS - 4, noisy(0.6, sd=0.05, seed=4), 0.1)}),
        Severity.HIGH,
    ),
    "reward-fell/half below zero, in the last four values": (
        made({"reward/mean": np.where(np.arange(STEPS) < STEPS - 4, noisy(-0.05, sd=0.002, seed=4), -0.1)}),
        Severity.MEDIUM,
    ),
    "reward-fell/half left": (made({"reward/mean": noisy(step_at(0.8, 0.4))}), Severity.MEDIUM),
    "reward-fell/from a level that never rose": (
        made({"reward/mean": noisy(np.interp(np.arange(STEPS), [0, 130, 160], [0.62, 0.6, 0.3]), sd=0.01)}),
        Severity.MEDIUM,
    ),
    "reward-fell/below zero": (made({"reward/mean": noisy(step_at(-0.5, -3.0))}), Severity.HIGH),
    "reward-shape/sparse": (made(singles=samples((np.arange(600) % 50 == 0).astype(float))), Severity.MEDIUM),
    "reward-shape/too easy": (made(singles=samples((np.arange(600) % 50 != 0).astype(float))), Severity.MEDIUM),
    "reward-outliers/two": (made(singles=samples(OUTLIERS)), Severity.MEDIUM),
    "reward-stuck/at its floor": (
        made({"reward/mean": np.concatenate([noisy(0.5)[:40], np.full(80, -5.0)])}),
        Severity.HIGH,
    ),
    "reward-stuck/rare successes": (
        made({"reward/mean": (np.arange(120) % 17 == 3).astype(float)}),
        Severity.MEDIUM,
    ),
    "reward-stuck/never rose": (made({"reward/mean": noisy(0.05, sd=0.01, count=300)}), Severity.MEDIUM),
    "reward-fell/twelve values": (
        made({"reward/mean": np.array([5.0, 10, 20, 40, 60, 75, 80, 60, 30, 5, 0, 0])}),
        Severity.HIGH,
    ),
    "reward-fell/by the eighth of thirty": (
        made({"reward/mean": np.array([144.0, 112, 116, 84, 35, 22, 4, 1] + [0, 1] * 11)}),
        Severity.HIGH,
    ),
    "reward-stuck/never moved": (made({"reward/mean": np.zeros(60)}), Severity.HIGH),
    "reward-sign/by samples": (
        made(singles=samples(1.0 - DONE + RNG.normal(size=600) * 0.1, DONE.astype(float))),
        Severity.HIGH,
    ),
    "reward-sign/steadily down": (made({"reward/mean": noisy(ramp(0.6, 0.1))}), Severity.MEDIUM),
    "components-diverge/task for style": (
        made(parts={"correct": noisy(step_at(0.6, 0.2)), "style": noisy(ramp(0.2, 0.9), seed=4)}),
        Severity.MEDIUM,
    ),
    "components-diverge/a price": (
        made(parts={"length_penalty": noisy(step_at(-0.1, -0.5)), "correct": noisy(ramp(0.2, 0.9), seed=4)}),
        Severity.LOW,
    ),
    "judge-spikes/alone": (made(parts={"judge_score": JUDGED, "correct": noisy(0.4, seed=6)}), Severity.MEDIUM),
    "reward-variance/wider": (
        made({"reward/std": noisy(step_at(0.2, 0.9)), "reward/mean": noisy(0.5)}),
        Severity.MEDIUM,
    ),
    "calls-inflation/no outcome": (made({"tools/call_frequency": MORE_CALLS}), Severity.LOW),
    "calls-inflation/outcome flat": (
        made({"tools/call_frequency": MORE_CALLS, "reward/mean": UP}, outcomes={"env/accuracy": noisy(0.4)}),
        Severity.MEDIUM,
    ),
    "calls-inflation/from the start": (
        made(
            {"tools/call_frequency": noisy(np.minimum(ramp(0.5, 9.0), 2.5), sd=0.2, seed=2)},
            outcomes={"env/accuracy": noisy(0.4)},
        ),
        Severity.MEDIUM,
    ),
    "length-inflation/no outcome": (made({"len/response_mean": LONGER}), Severity.LOW),
    "length-inflation/outcome flat": (
        made({"len/response_mean": LONGER, "reward/mean": UP}, outcomes={"env/accuracy": noisy(0.4)}),
        Severity.MEDIUM,
    ),
    "length-inflation/learnt before, not since": (
        made({"len/response_mean": LATE_LONGER, "reward/mean": noisy(step_at(0.3, 0.7, 60), seed=3)}),
        Severity.MEDIUM,
    ),
    "length-inflation/with longer tasks": (
        made({"len/response_mean": noisy(step_at(200, 400), sd=15, seed=2), "reward/mean": noisy(0.5, seed=3)}),
        Severity.LOW,
    ),
    "length-inflation/at once, and the reward fell": (
        made({"len/response_mean": noisy(step_at(200, 400), sd=15, seed=2), "reward/mean": noisy(step_at(0.5, 0.2))}),
        Severity.MEDIUM,
    ),
    "calls-inflation/tools are learnt, and nothing rises": (
        made(
            {"tools/call_frequency": noisy(ramp(0.1, 1.9), sd=0.1, seed=2)},
            outcomes={"env/accuracy": noisy(0.4)},
        ),
        Severity.LOW,
    ),
    "calls-inflation/with longer tasks": (
        made({"tools/call_frequency": noisy(step_at(1.5, 3.0), sd=0.1, seed=2), "reward/mean": noisy(0.5, seed=3)}),
        Severity.LOW,
    ),
    "length-inflation/noise hides it": (
        made({"len/response_mean": LATE_LONGER, "reward/mean": noisy(0.3, sd=0.4, rho=0.6, seed=3)}),
        Severity.LOW,
    ),
    "judge-spikes/single steps": (
        made(parts={"judge_score": LEAPING, "correct": noisy(0.4, seed=6)}),
        Severity.LOW,
    ),
    "judge-spikes/in a short run": (
        made(
            parts={
                "judge": noisy(step_at(0.4, 0.8, 30, 64), count=64, seed=5),
                "correct": noisy(ramp(0.4, 0.5, 64), count=64, sd=0.05, seed=6),
            }
        ),
        Severity.MEDIUM,
    ),
    "refusals-rise/to a third": (made(other=WAY), Severity.MEDIUM),
    "repetition-rise/to a third": (
        made(other={"rollout/repetition_frac": np.abs(noisy(step_at(0.02, 0.35)))}),
        Severity.MEDIUM,
    ),
    "slice-degradation/by a tenth": (made(other={"slice:math": noisy(step_at(0.8, 0.7))}), Severity.MEDIUM),
    "slice-degradation/by a half": (made(other={"slice:math": noisy(step_at(0.8, 0.4))}), Severity.HIGH),
}

LATE_DECAY = 1 - np.exp(-np.maximum(ramp(-1.0, 2.0), 0))
HELD_BETWEEN = (0.6, 0.35, 0.35, 0.1)
HEALTHY: dict[str, Evidence] = {
    "constant-component": made(parts={"correctness": RIGHT, "format": FORM}),
    "constant-component/nothing to punish": made(parts={"correctness": RIGHT, "overlong_penalty": np.zeros(STEPS)}),
    "constant-component/no error, no repetition": made(
        parts={"correctness": RIGHT, "tool_error": np.zeros(STEPS), "repetition": np.zeros(STEPS)}
    ),
    "reward-hacking/both rise": made(
        {"reward/mean": UP, "len/response_mean": LONGER}, outcomes={"env/accuracy": noisy(ramp(0.2, 0.7), seed=9)}
    ),
    "reward-hacking/solved": made({"reward/mean": UP}, figures=[figure(points(0.97, sd=0.005))]),
    "reward-hacking/both fall": made(
        {"reward/mean": noisy(step_at(0.8, 0.1))}, outcomes={"env/accuracy": noisy(step_at(0.7, 0.0), seed=9)}
    ),
    "reward-hacking/flat, nothing shifted": made({"reward/mean": UP}, figures=[figure(points(0.4))]),
    "eval-not-following/follows": made({"reward/mean": UP}, figures=[figure(points(ramp(0.3, 0.6, POINTS)))]),
    "eval-not-following/one of two follows": made(
        {"reward/mean": UP}, figures=[figure(points(ramp(0.3, 0.6, POINTS))), figure(points(0.1), "aime/accuracy")]
    ),
    "eval-not-following/nothing learnt": made({"reward/mean": noisy(0.5)}, figures=[figure(points(0.4))]),
    "eval-spikes/a jump that stays": made(figures=[figure(points(step_at(0.4, 0.8, 6, POINTS)))]),
    "eval-protocol-changed/fixed": made(
        settings=[Setting(suite="aime", name="samples", points=((10, 500.0), (20, 500.3), (30, 212)), exact=False)]
    ),
    "reward-revised/one set of weights": made(
        {"reward/mean": RIGHT + 0.1 * FORM}, parts={"right": RIGHT, "form": FORM}
    ),
    "reward-revised/parts that are 0 for a while": made(
        {"reward/mean": RIGHT + FORM * LATE + STYLE * ~LATE},
        parts={"right": RIGHT, "form": FORM * LATE, "style": STYLE * ~LATE},
    ),
    "reward-revised/a part that is 0 until it pays": made(
        {"reward/mean": 0.1 * FORM + PAYS, "reward/std": PAYS_STD}, parts={"form": FORM, "right": PAYS}
    ),
    "reward-revised/a small part more": made(
        {"reward/mean": RIGHT + 0.1 * FORM + np.where(LATE, 0.1 * STYLE, 0.0)},
        parts={"right": RIGHT, "form": FORM, "style": np.where(LATE, STYLE, np.nan)},
    ),
    "reward-revised/sudden success": made(
        {"reward/mean": SUCCESS, "reward/std": np.sqrt(SUCCESS * (1 - SUCCESS))}, parts={"right": SUCCESS, "form": FORM}
    ),
    "eval-unlike-training/a harder suite": made({CUT: noisy(0.02, sd=0.005)}, conditions={CUT: points(0.45)}),
    "eval-unlike-training/cut in training too": made(
        {CUT: noisy(step_at(0.02, 0.45), sd=0.01)}, conditions={CUT: points(step_at(0.02, 0.45, 6, POINTS))}
    ),
    "eval-unlike-training/tools given up everywhere": made(
        {CALLS: noisy(step_at(1.5, 0.0))}, conditions={CALLS: points(step_at(1.5, 0.0, 6, POINTS))}
    ),
    "split-gap/steady": made(figures=[figure(points(ramp(0.3, 0.8, POINTS)), twin=UP)]),
    "reward-dips/noise": made({"reward/mean": noisy(0.4, sd=0.15, seed=6)}),
    "reward-dips/one step": made({"reward/mean": np.where(np.arange(STEPS) == 99, 0.0, noisy(0.6))}),
    "reward-fell/rises": made({"reward/mean": UP}),
    "reward-fell/low at the last two": made(
        {"reward/mean": np.where(np.arange(STEPS) < STEPS - 2, noisy(0.6, sd=0.05, seed=4), 0.1)}
    ),
    "reward-shape/mixed": made(singles=samples(DONE.astype(float))),
    "reward-shape/solved at last": made(singles=samples((RNG.random(600) < np.linspace(0.2, 1.0, 600)).astype(float))),
    "reward-outliers/Gaussian": made(singles=samples(RNG.normal(size=600))),
    "reward-outliers/rare success": made(singles=samples((np.arange(600) % 200 == 0).astype(float))),
    "reward-stuck/solved": made({"reward/mean": np.concatenate([noisy(0.5)[:40], np.ones(40)])}),
    "reward-stuck/solved from the start": made({"reward/mean": np.ones(40)}),
    "reward-stuck/first successes become common": made(
        {"reward/mean": ((np.arange(120) % 17 == 3) | (np.arange(120) > 90)).astype(float)}
    ),
    "reward-stuck/risen at once": made({"reward/mean": noisy(np.where(np.arange(STEPS) < 4, 0.1, 0.6))}),
    "reward-stuck/mostly right from the start": made({"reward/mean": noisy(0.95, count=300)}),
    "reward-stuck/noise hides a rise that matters": made({"reward/mean": noisy(0.4, sd=0.4, count=100)}),
    "reward-stuck/an outcome rose": made(
        {"reward/mean": noisy(0.2, count=400)}, outcomes={"env/accuracy": noisy(ramp(0.2, 0.7), seed=9)}
    ),
    "reward-fell/few, noisy": made({"reward/mean": noisy(0.4, sd=0.15, count=12, seed=6)}),
    "reward-fell/few, and risen": made({"reward/mean": noisy(ramp(0.1, 0.6))[:: STEPS // 8]}),
    "reward-sign/paid for success": made(singles=samples(DONE + RNG.normal(size=600) * 0.1, DONE.astype(float))),
    "reward-sign/held, then fell": made({"reward/mean": noisy(0.6 - 0.5 * np.maximum(ramp(-0.5, 1.0), 0))}),
    "reward-sign/held for a third, then fell ever less": made({"reward/mean": noisy(0.6 - 0.55 * LATE_DECAY)}),
    "reward-sign/held between two falls": made({"reward/mean": noisy(np.interp(ramp(0, 3), range(4), HELD_BETWEEN))}),
    "reward-sign/rose, then fell": made({"reward/mean": noisy(0.6 - 0.7 * np.abs(ramp(-0.3, 0.7)))}),
    "components-diverge/both rise": made(parts={"correct": UP, "style": noisy(ramp(0.2, 0.9), seed=4)}),
    "judge-spikes/shared": made(parts={"judge_score": JUDGED, "correct": noisy(step_at(0.4, 0.8), seed=6)}),
    "reward-variance/first successes": made(
        {
            "reward/mean": noisy(ramp(0.02, 0.5), sd=0.002),
            "reward/std": np.sqrt(ramp(0.02, 0.5) * (1 - ramp(0.02, 0.5))),
        }
    ),
    "calls-inflation/steady": made({"tools/call_frequency": noisy(3.0, sd=0.2)}),
    "calls-inflation/tools are learnt": made({"tools/call_frequency": noisy(ramp(0.2, 1.1), sd=0.05)}),
    "calls-inflation/it pays": made(
        {"tools/call_frequency": MORE_CALLS}, outcomes={"env/accuracy": noisy(ramp(0.2, 0.9), seed=6)}
    ),
    "length-inflation/steady": made({"len/response_mean": noisy(200.0, sd=20)}),
    "reward-hacking/an evaluation alone gives way": made(
        {"reward/mean": UP, "len/response_mean": noisy(200.0, sd=10)}, figures=[figure(points(ramp(0.5, 0.35, POINTS)))]
    ),
    "judge-spikes/one step": made(parts={"judge_score": leaping(60), "correct": noisy(0.4, seed=6)}),
    "judge-spikes/steps that were solved": made(parts={"judge_score": LEAPING, "correct": leaping(60, 120, seed=7)}),
    "judge-spikes/heavy tails": made(
        parts={"judge_score": 0.4 + 0.02 * RNG.standard_t(3, size=STEPS), "correct": noisy(0.4, seed=6)}
    ),
    "judge-spikes/a climb": made(
        parts={
            "judge": noisy(np.interp(np.arange(STEPS), [100, 130], [0.4, 0.8]), seed=5),
            "correct": noisy(0.5, seed=6),
        }
    ),
    "split-gap/held-out ahead at first": made(
        figures=[figure(points(ramp(0.5, 0.9, POINTS)), twin=noisy(ramp(0.2, 0.95), seed=1))]
    ),
    "length-inflation/the reward follows": made({"len/response_mean": LONGER, "reward/mean": UP}),
    "length-inflation/it paid for as long as it grew": made(
        {"len/response_mean": noisy(np.concatenate([ramp(200, 900)[::2], np.linspace(900, 700, 120)]), sd=20, seed=2)},
        figures=[figure(noisy(np.concatenate([np.linspace(0.4, 0.6, 9), np.full(8, 0.55)]), count=17, sd=0.01))],
    ),
    "length-inflation/it pays": made(
        {"len/response_mean": LONGER, "reward/mean": UP}, outcomes={"env/accuracy": noisy(ramp(0.2, 0.7), seed=9)}
    ),
    "refusals-rise/rare": made(other={"refusal_rate": noisy(0.05, sd=0.01)}),
    "repetition-rise/rare": made(other={"rollout/repetition_frac": np.full(STEPS, 0.01)}),
    "slice-degradation/kept": made(other={"slice:math": noisy(0.8)}),
    "reward-jump/steady": made({"reward/mean": UP}),
}

FEW: dict[str, Evidence] = {
    "constant-component": made(parts={"correctness": RIGHT[:4], "format": np.zeros(4)}),
    "constant-component/none varies": made(parts={"correctness": np.zeros(STEPS), "format": np.ones(STEPS)}),
    "reward-hacking/no outcome": made({"reward/mean": UP}),
    "reward-hacking/five points": made({"reward/mean": UP}, figures=[figure(points(0.4)[:5])]),
    "reward-hacking/noise hides it": made({"reward/mean": UP}, figures=[figure(points(0.4, sd=0.2))]),
    "reward-stuck/nineteen values": made({"reward/mean": np.zeros(19)}),
    "eval-not-following/five points": made({"reward/mean": UP}, figures=[figure(points(0.4)[:5])]),
    "eval-not-following/noise hides it": made({"reward/mean": UP}, figures=[figure(points(0.4, sd=0.2))]),
    "eval-spikes/six points": made(figures=[figure(points(0.4)[:6])]),
    "reward-revised/no sum of its parts": made(
        {"reward/mean": noisy(RIGHT + 0.1 * FORM, seed=14)}, parts={"right": RIGHT, "form": FORM}
    ),
    "reward-revised/weights that move all the time": made(
        {"reward/mean": RIGHT * ramp(1.0, 2.0) + 0.1 * FORM}, parts={"right": RIGHT, "form": FORM}
    ),
    "reward-revised/stands still": made(
        {"reward/mean": np.where(LATE, -1.0, RIGHT + 0.1 * FORM)},
        parts={"right": np.where(LATE, 0.0, RIGHT), "form": np.where(LATE, 0.0, FORM)},
    ),
    "eval-unlike-training/five points": made({CUT: noisy(0.02)}, conditions={CUT: points(0.45)[:5]}),
    "split-gap/one split": made(figures=[figure(points(0.4))]),
    "reward-dips/twenty values": made({"reward/mean": UP[:20]}),
    "reward-fell/four values": made({"reward/mean": UP[:4]}),
    "reward-shape/few samples": made(singles=samples(np.ones(100))),
    "reward-outliers/few samples": made(singles=samples(np.ones(100))),
    "components-diverge/one part": made(parts={"correct": UP}),
    "judge-spikes/nothing that could share it": made(parts={"judge_score": JUDGED}),
    "calls-inflation/all NaN": made({"tools/call_frequency": np.full(STEPS, np.nan)}),
    "length-inflation/all NaN": made({"len/response_mean": np.full(STEPS, np.nan)}),
    "eval-protocol-changed/one point": made(settings=[Setting(suite="a", name="samples", points=((10, 64.0),))]),
    "reward-sign/few of a kind": made(singles=samples(np.ones(60), np.ones(60))),
    "reward-variance/short": made({"reward/std": UP[:20]}),
    "repetition-rise/short": made(other={"repetition_rate": np.full(20, 0.1)}),
    "slice-degradation/five points": made(other={"slice:math": np.full(5, 0.1)}),
    "reward-jump/short": made({"reward/mean": UP[:40]}),
    "refusals-rise/a count": made(other={"refusals": np.arange(STEPS, dtype=float)}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken(case: str) -> None:
    evidence, severity = BROKEN[case]
    rule = case.partition("/")[0]
    found = finding(run(rule, evidence))
    assert (found.id, found.severity) == (rule, severity)
    assert found.causes
    assert found.confirm
    assert found.next
    assert not found.claim.endswith(".")
    assert found.onset_step is not None


@pytest.mark.parametrize("places", [(6,), (3, 8), (2, 6, 12)])
def test_spikes_of_an_evaluation_do_not_hide_one_another(places: tuple[int, ...]) -> None:
    """With five points in fifteen nobody can say which are the rule: so many are left alone."""
    curve = np.random.default_rng(3).normal(0.5, 0.012, 15)
    assert isinstance(run("eval-spikes", made(figures=[figure(curve)])), Healthy)
    curve[list(places)] += np.linspace(0.25, 0.35, len(places))
    found = finding(run("eval-spikes", made(figures=[figure(curve)])))
    assert found.severity is Severity.MEDIUM
    assert found.evidence["spikes"] == len(places)
    curve[1::3] = 0.8
    assert isinstance(run("eval-spikes", made(figures=[figure(curve)])), Healthy)


def test_one_answer_of_a_small_suite_is_no_spike_to_choose_a_checkpoint_by() -> None:
    solved = np.zeros(POINTS)
    solved[6] = 1 / 30
    assert finding(run("eval-spikes", made(figures=[figure(solved)]))).severity is Severity.LOW
    solved[[1, 6]] = 1 / 30, 4 / 30
    assert isinstance(run("eval-spikes", made(figures=[figure(solved)])), Healthy)
    solved[6] = 20 / 30
    assert finding(run("eval-spikes", made(figures=[figure(solved)]))).severity is Severity.MEDIUM


@pytest.mark.parametrize("case", HEALTHY)
def test_healthy(case: str) -> None:
    verdict = run(case.partition("/")[0], HEALTHY[case])
    assert isinstance(verdict, Healthy), verdict
    assert verdict.reason


@pytest.mark.parametrize(
    ("successes", "claim"),
    [(0, "All single rewards are zero"), (1, "At least 99.9% of single rewards are zero"), (9, "At least 99.1% of")],
)
def test_a_share_of_rewards_that_is_not_all_is_not_rounded_to_all(successes: int, claim: str) -> None:
    rewards = np.zeros(3000)
    rewards[:successes] = 1.0
    assert finding(run("reward-shape", made(singles=samples(rewards)))).claim.startswith(claim)


@pytest.mark.parametrize(("metric", "usual", "odd"), [("reward/mean", 0.5, 55.0), ("reward/std", 0.4, 150.0)])
def test_one_wild_step_of_the_logged_reward_is_a_finding_of_low_severity(metric: str, usual: float, odd: float) -> None:
    values = noisy(usual)
    values[70] = odd
    found = finding(run("reward-outliers", made({metric: values})))
    assert (found.severity, found.onset_step) == (Severity.LOW, 71)
    assert f"is {odd:.3g} at one step" in found.claim
    left = np.r_[noisy(usual)[:5] * [1, 0.7, 1.4, 0.8, 0.9], 1e-4 * np.abs(noisy(usual)[5:])]
    assert isinstance(run("reward-outliers", made({metric: left})), NotJudged)  # where a level ends, no step stands out
    values[71] = odd  # two in a row are no single step
    assert isinstance(run("reward-outliers", made({metric: values})), NotJudged)
    assert isinstance(run("reward-outliers", made({metric: noisy(usual)})), NotJudged)


def test_refusals_that_rise_below_the_limit_are_a_note() -> None:
    verdict = run("refusals-rise", made(other={"refusal_rate": np.abs(noisy(step_at(0.01, 0.1), sd=0.002))}))
    assert isinstance(verdict, Healthy)
    (note,) = verdict.notes
    assert note.severity is Severity.LOW
    assert note.claim.startswith("Refusals rose 1.01% → 9.89%")


@pytest.mark.parametrize("case", FEW)
def test_not_judged(case: str) -> None:
    verdict = run(case.partition("/")[0], FEW[case])
    assert isinstance(verdict, NotJudged), verdict
    assert verdict.reason
    assert verdict.enable


def test_every_rule_has_a_broken_a_healthy_and_a_not_judged_case() -> None:
    def told(cases: Mapping[str, object]) -> set[str]:
        return {case.partition("/")[0] for case in cases}

    of_samples = {"reward-follows-length", "source-never-rewarded", "right-answers-unpaid", "mean-over-turns"}
    # test_faults_of_rules, test_rules_samples, test_rules_sample_faults
    mine = set(MINE) - of_samples
    assert told(BROKEN) | {"reward-jump"} == mine  # a jump is a note: it has a test of its own
    assert told(HEALTHY) == mine
    assert told(FEW) == mine


@pytest.mark.parametrize("follows", [True, False], ids=["grokking", "nothing follows"])
def test_a_late_jump_is_a_note_that_tells_understanding_from_its_rival(follows: bool) -> None:
    jump = noisy(step_at(0.1, 0.9, 160))
    outcome = noisy(step_at(0.1, 0.8, 160) if follows else 0.1, seed=4)
    beside = made({"reward/mean": jump, "len/response_mean": LONGER}, outcomes={"env/accuracy": outcome})
    verdict = run("reward-jump", beside)
    assert isinstance(verdict, Healthy)
    (note,) = verdict.notes
    assert note.severity is (Severity.INFO if follows else Severity.LOW)
    assert note.onset_step is not None
    assert abs(note.onset_step - 160) < 30
    assert note.evidence["outcome_rose"] is follows


def test_reward_and_outcome_part_where_the_outcome_is_lost() -> None:
    beside = made({"reward/mean": UP}, outcomes={"env/accuracy": noisy(step_at(0.6, 0.05, 60))})
    found = finding(run("reward-hacking", beside))
    assert found.onset_step is not None
    assert 60 <= found.onset_step <= 80
    assert found.onset_interval is not None
    assert found.onset_interval[0] <= 62


def loud(evidence: Evidence) -> list[str]:
    found = []
    for rule in MINE.values():
        verdict = rule.run(evidence)
        findings = verdict.findings if isinstance(verdict, Broken) else ()
        found += [f"{one.id}: {one.claim}" for one in findings if one.severity.at_least(Severity.MEDIUM)]
    return found


def healthy_run(seed: int) -> Evidence:
    """A run that learns, or has learnt, with whatever noise; its outcomes go along."""
    generator = np.random.default_rng(seed)
    count = int(generator.choice([40, 100, 240, 600]))
    rho, sd = float(generator.choice([0.0, 0.3, 0.6, 0.8])), float(generator.uniform(0.01, 0.08))
    low, high = sorted(generator.uniform(0.3, 0.9, size=2))
    low = min(low, high - 0.15)
    curve = low + (high - low) * (1 - np.exp(-np.linspace(0, max(1.0, generator.uniform(0.0, 8)), count)))

    def series(levels: Array | float, scale: float = sd) -> Array:
        return noisy(levels, sd=scale, rho=rho, count=count, seed=int(generator.integers(1 << 30)))

    at = np.linspace(count / POINTS, count, POINTS).round().astype(int)
    places = at - 1
    held = curve[places] + noisy(0.0, sd=sd / 2, rho=rho, count=POINTS, seed=int(generator.integers(1 << 30)))
    growth = 1 + generator.uniform(0, 0.6) * (curve - low)
    base = evidence_of(
        metrics={
            "reward/mean": series(curve + 0.1),
            "reward/std": np.abs(series(np.sqrt(curve * (1 - curve)))),
            "len/response_mean": np.exp(series(np.log(200 * growth), 0.1)),
            "tools/call_frequency": series(curve),
        }
    )
    accuracy = series(curve)
    outcomes = {"env/accuracy": series_of("env/accuracy", accuracy)}
    parts = {"correct": outcomes["env/accuracy"], "judge_score": series_of("judge_score", series(curve))}
    shown = EvalMetric(
        name="env/accuracy",
        split="eval",
        outcome=True,
        series=series_of("eval_env/accuracy", held, steps=at.tolist()),
        twin=outcomes["env/accuracy"],
    )
    paid = (generator.random(count * 4) < np.repeat(curve, 4)).astype(float)
    return replace(
        base,
        other={"slice:math": series_of("slice:math", series(curve)),
               "refusal_rate": series_of("refusal_rate", np.clip(series(0.05, 0.01), 0, 1)),
               "repetition_rate": series_of("repetition_rate", np.clip(series(0.05, 0.01), 0, 1))},
        rewards=Rewards(components=parts, outcomes=outcomes, samples=samples(paid + 0.1, paid)),
        evaluation=Evaluation(figures=(shown,)),
    )  # fmt: skip


@pytest.mark.parametrize("block", first_fast(range(10)))
def test_two_hundred_healthy_runs_raise_nothing(block: int) -> None:
    assert [text for seed in range(block * 20, block * 20 + 20) for text in loud(healthy_run(seed))] == []


def test_a_fall_is_dated_where_its_values_fall_and_not_where_a_mean_over_twenty_does() -> None:
    values = np.r_[noisy(0.9, sd=0.08, count=30), noisy(0.25, sd=0.08, count=30, seed=1)]
    reward = series_of("reward/mean", values, steps=range(1, 121, 2))  # every second step
    found = finding(run("reward-fell", made({"reward/mean": reward})))  # type: ignore[dict-item]
    assert found.onset_step == 61
    assert found.onset_interval is not None
    assert found.onset_interval[0] <= 61 <= found.onset_interval[1] <= 65


@pytest.mark.parametrize(("name", "judged"), [("format/reward", False), ("accuracy", True)])
def test_what_leans_along_within_its_noise_leaves_open_whether_a_reward_beside_it_follows(
    name: str, judged: bool
) -> None:
    leaning, flat = figure(points(ramp(0.3, 0.7, POINTS), sd=0.15), "help/reward"), figure(points(0.4), name)
    verdict = run("eval-not-following", made({"reward/mean": UP}, figures=[leaning, flat]))
    assert isinstance(verdict, Broken if judged else NotJudged)
    assert judged or "which its noise may explain" in str(verdict)


def test_an_evaluation_that_turned_is_left_behind_where_it_fell() -> None:
    found = finding(run("eval-not-following", made({"reward/mean": UP}, figures=[figure(noisy(PEAKED, count=24))])))
    assert found.onset_step is not None
    assert STEPS // 2 - 30 <= found.onset_step <= STEPS // 2 + 60


@pytest.mark.parametrize("sudden", [True, False], ids=["jumps too", "climbs beside it"])
def test_an_outcome_shares_a_jump_only_by_jumping(sudden: bool) -> None:
    outcome = step_at(0.3, 0.5) if sudden else np.interp(np.arange(STEPS), [90, 150], [0.3, 0.5])
    parts = {"judge": JUDGED, "correct": noisy(outcome, sd=0.01, seed=7)}
    assert isinstance(run("judge-spikes", made(parts=parts)), Healthy if sudden else Broken)


def test_a_reward_that_never_rose_says_how_small_a_rise_would_have_shown() -> None:
    found = finding(run("reward-stuck", made({"reward/mean": noisy(0.05, sd=0.01, count=300)})))
    would_show = found.evidence["would_show"]
    assert isinstance(would_show, float)
    assert 0.001 < would_show < 0.1
    assert f"a rise by {would_show:.3g} would have shown" in found.claim


@pytest.mark.parametrize(("count", "level"), [(12, 0.05), (60, 0.05), (300, 0.75)])
def test_a_short_run_or_one_that_is_mostly_right_is_told_of_a_flat_reward_in_a_note(count: int, level: float) -> None:
    (note,) = healthy(run("reward-stuck", made({"reward/mean": noisy(level, sd=0.01, count=count)}))).notes
    assert note.severity is Severity.LOW
    assert note.claim.startswith("The reward never rose")


def test_a_reward_that_rose_and_stands_still_since_is_a_note() -> None:
    (note,) = healthy(run("reward-stuck", made({"reward/mean": noisy(np.minimum(ramp(0.1, 2.6), 0.6))}))).notes
    assert note.severity is Severity.LOW
    assert note.claim.startswith("The reward has stood still at 0.599 since step 49, for 192 of 240 logged steps")
    assert note.onset_step == 49


def test_distillation_is_not_asked_for_a_reward() -> None:
    answer = run("reward-stuck", made({"reward/mean": np.zeros(60)}, other={"teacher_kl": noisy(ramp(4.5, 0.1))}))
    assert isinstance(answer, NotJudged)
    assert not answer.applies


EASY = {"format": noisy(ramp(0.2, 1.0), sd=0.01)}


@pytest.mark.parametrize("task", [noisy(0.44, sd=0.01, seed=3), noisy(ramp(0.009, 0.033), sd=0.002, seed=3)])
def test_a_format_that_is_learnt_while_the_task_stands_still_is_told(task: Array) -> None:
    found = finding(run("components-diverge", made(parts=EASY | {"correctness": task})))
    assert found.severity is Severity.MEDIUM
    assert "correctness stood still" in found.claim


@pytest.mark.parametrize("task", [noisy(ramp(0.2, 0.6), sd=0.01, seed=3), noisy(0.9, sd=0.01, seed=3)])
def test_a_format_that_is_learnt_beside_the_task_or_when_it_is_solved_is_not(task: Array) -> None:
    assert healthy(run("components-diverge", made(parts=EASY | {"correctness": task}))).notes == ()


def test_a_true_score_near_nothing_beside_a_proxy_that_rises_is_hacking() -> None:
    proxy = {"reward/mean": noisy(ramp(0.22, 0.74))}
    true = np.abs(noisy(ramp(0.002, 0.014), sd=0.002, seed=4))
    found = finding(run("reward-hacking", made(proxy | {"reward/true": true})))
    assert found.severity is Severity.HIGH
    assert "stayed flat" in found.claim
    assert isinstance(run("reward-hacking", made(proxy | {"reward/true": noisy(ramp(0.2, 0.6), seed=4)})), Healthy)


def test_ranking_lost_in_training_and_held_out_is_hacking_and_a_low_flat_one_is_not() -> None:
    paid = {"reward/mean": noisy(ramp(0.08, 0.17), sd=0.01)}
    held = np.array([0.0222, 0.0213, 0.0201, 0.0189, 0.0179, 0.0165])
    lost = {"ndcg_mean": noisy(ramp(0.038, 0.028), sd=0.004, seed=4)}
    found = finding(run("reward-hacking", made(paid, outcomes=lost, figures=[figure(held, "ndcg@10")])))
    assert found.severity is Severity.HIGH
    assert "fell" in found.claim
    flat = {"ndcg_mean": noisy(0.042, sd=0.002, seed=4)}
    stood = held[[3, 4, 2, 3, 4, 3]]
    quiet = made(paid, outcomes=flat, figures=[figure(stood, "ndcg@10")])
    assert not isinstance(run("reward-hacking", quiet), Broken)
    assert not isinstance(run("eval-not-following", quiet), Broken)
    alone = made(paid, outcomes=flat, figures=[figure(held, "ndcg@10")])
    assert not isinstance(run("reward-hacking", alone), Broken)


@pytest.mark.parametrize(
    ("part", "severity"), [("env_reward", Severity.MEDIUM), ("drift", None), ("overlong_cost", None)]
)
def test_a_part_that_hardly_any_answer_earns_while_the_reward_rises(part: str, severity: Severity | None) -> None:
    rare = np.where(np.arange(STEPS) % 10 == 3, 0.02, 0.0)
    paid = {"reward/mean": np.minimum(noisy(ramp(0.3, 2.5)), 0.97), "reward/zero_std_frac": noisy(ramp(0.05, 0.9))}
    rising = made(paid, parts={"format": FORM, part: rare})
    verdict = run("constant-component", rising)
    if severity is None:
        told = [one.claim for one in healthy(verdict).notes]
        assert bool(told) is (part == "drift")
    else:
        assert finding(verdict).severity is severity
        assert "is 0 at 216 of 240 logged steps" in finding(verdict).claim
    silent = finding(BY_ID["no-signal-groups"].run(rising))
    assert ("hardly ever earned" in silent.claim) is (part != "overlong_cost")
    assert ("looks solved" in silent.claim) is (part == "overlong_cost")
    stood = made({"reward/mean": noisy(0.4, seed=1)}, parts={"format": FORM, part: rare})
    assert isinstance(run("constant-component", stood), Healthy)


def test_each_constant_component_is_told_with_its_own_count() -> None:
    lost = np.where(np.arange(STEPS) < 30, 1.0, np.nan)
    parts = {"correctness": RIGHT, "format": np.ones(STEPS), "xml": np.zeros(12), "language": lost}
    claim = finding(run("constant-component", made(parts=parts))).claim
    assert "`logged/format` is 1.0 at all 240 logged steps" in claim
    assert "`logged/xml` is 0 at all 12 logged steps" in claim
    assert "`logged/language` is 1.0 at 30 of 240 logged steps" in claim


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *((f"reward/{name}", None) for name in ("scale", "threshold", "num_samples", "p10", "clip_ratio", "nan_count")),
        ("reward/format_weight", None),
        ("reward/tool_count", "tool_count"),
        ("rewards/length/mean", "length"),
    ],
)
def test_settings_and_statistics_of_the_reward_are_no_components(name: str, part: str | None) -> None:
    assert reward_component(name) == part


JUNK = figure(points(0.01, sd=0.002), twin=noisy(0.6))


@pytest.mark.parametrize(
    "figures",
    [
        [JUNK, figure(points(0.6), "reward", twin=noisy(0.6))],  # another figure is as in training
        [figure(points(0.7), "reward", twin=noisy(20.0))],  # paid on another scale
        [figure(points(0.04, sd=0.003), twin=noisy(0.6))],  # a suite that is far harder
        [figure(points(step_at(0.0, 0.5, 8, POINTS)), twin=noisy(0.6))],  # learnt late
    ],
)
def test_an_evaluation_that_earns_something_is_no_junk(figures: list[EvalMetric]) -> None:
    often = {CUT: points(0.6)}
    beside = run("eval-unlike-training", made({CUT: noisy(0.02, sd=0.005)}, conditions=often, figures=figures))
    assert [note.severity for note in healthy(beside).notes] == [Severity.LOW]
    junk = finding(run("eval-unlike-training", made({CUT: noisy(0.02, sd=0.005)}, conditions=often, figures=[JUNK])))
    assert "may be junk" in junk.claim
    summed = [JUNK, figure(points(0.02, sd=0.002), "reward", twin=noisy(20.0))]  # by its parts, what is summed is too
    of_parts = run("eval-unlike-training", made({CUT: noisy(0.02, sd=0.005)}, conditions=often, figures=summed))
    assert "may be junk" in finding(of_parts).claim


RISEN_THEN_LOST = np.where(np.arange(STEPS) < 150, np.minimum(ramp(0.2, 2.6), 0.8), 0.45)


@pytest.mark.parametrize(
    ("beside", "explained"),
    [
        ({"env/accuracy": noisy(RISEN_THEN_LOST, seed=3)}, False),  # lost with the reward
        ({"env/accuracy": noisy(np.minimum(ramp(0.2, 2.6), 0.8), seed=3)}, True),
        ({"success_steps": ramp(12, 50)}, False),  # how long successes take
    ],
)
def test_a_fall_is_explained_by_an_outcome_only_where_that_one_did_not_fall_too(
    beside: dict[str, Array], explained: bool
) -> None:
    found = finding(run("reward-fell", made({"reward/mean": noisy(RISEN_THEN_LOST)}, parts=beside)))
    assert ("yet " in found.claim) is explained


@pytest.mark.parametrize(
    "reward",
    [
        np.minimum(BY_ROW + 0.15 * EPOCHS, 0.5),  # what was solved gains no more
        np.linspace(0, 1, 120),
        1 / (1 + np.exp(-np.tile(LOGITS, 3) - np.arange(120) * 0.9 / 40)),  # each logit grows alike
        noisy(0.3, sd=0.15, count=120) + 0.15 * EPOCHS,  # rows in another order
    ],
)
def test_learning_over_epochs_is_no_revision_of_the_reward(reward: Array) -> None:
    assert isinstance(run("reward-revised", made({"reward/mean": reward, "epoch": EPOCHS})), NotJudged)


@pytest.mark.parametrize(
    ("tool", "calls", "part", "told"),
    [
        ("visit_tool", 60, "visit_tool_reward_func", True),
        ("visit_tool", 6, "visit_tool_reward_func", False),
        ("run", 60, "visit_tool_reward_func", False),
        ("search", 60, "search_hop3_bonus", False),  # it asks for more than a call
    ],
)
def test_a_part_named_after_a_tool_that_is_called_and_never_paid(tool: str, calls: int, part: str, told: bool) -> None:
    counts = Counts(name=f"calls of {tool}", steps=np.arange(1, 7), hits=np.full(6, calls / 6), trials=np.full(6, 20.0))
    tools = {tool: Tool(name=tool, calls=counts, failures=None)}
    called = Environment(split="train", trajectories=120, steps=6, calls=calls, tools=tools)
    parts = made(parts={"correctness": RIGHT, part: np.zeros(STEPS)})
    found = finding(run("constant-component", replace(parts, environment=called)))
    assert (found.severity is Severity.HIGH) == told
    assert ("does not see these calls" in found.claim) == told
