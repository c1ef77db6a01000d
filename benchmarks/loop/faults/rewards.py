"""Faults of rewards and evaluations: gamed, fallen, sparse, spiked, or measured in another way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from benchmarks.loop.faults.fault import GROUPS, ONLINE, TOOLS, Fault, begin, noisy, rising, stall
from benchmarks.loop.made import Made
from benchmarks.loop.noise import Generator
from ptt.diagnostics.model import Link, Severity

LOWERED: Final = 0.55  # of a healthy run's reward: leaves room to rise
PAID: Final = ("reward", "r_correct")


def lowered(run: Made) -> None:
    """Make the whole run's reward lower, so that it can rise."""
    for name in PAID:
        run.change(name, LOWERED)
    run.evals.values.update({name: values * LOWERED for name, values in run.evals.values.items()})


def stuck_evals(run: Made, onset: int, fall: float) -> None:
    """Let evaluations stay where they were, and then fall a little."""
    for name, values in run.evals.values.items():
        before = values[run.evals.steps < onset]
        at = float(before[-3:].mean()) if len(before) else float(values[0])
        noise = values - np.convolve(np.pad(values, 2, mode="edge"), np.ones(5) / 5, mode="valid")
        late = (run.evals.steps >= onset).astype(float)
        run.evals.values[name] = np.where(late > 0, at + noise - fall * run.ramp_evals(onset, 0.3), values)


def unfollowed(run: Made, generator: Generator, size: float) -> int:
    """The reward rises; what is measured beside it does not."""
    onset = begin(run, generator, 0.3, 0.45)
    lowered(run)
    often(run, generator)
    for name in PAID:
        run.change(name, plus=0.3 * size * run.ramp(onset, 0.3))
    stuck_evals(run, onset, 0.08 * size)
    return onset


def hacked(run: Made, generator: Generator, size: float) -> int:
    """Reward up, answers longer and more alike, evaluations down.

    Where the parts of the reward are logged, it is a part for style that is gamed, in evaluations as well: a gamed
    check of the answers would be as high in evaluations, which are paid by the same functions.
    """
    onset = _gamed(run, generator, size) if run.dialect == "trl" else unfollowed(run, generator, size)
    for name in ("len", "len_max"):
        run.change(name, 1 + 1.0 * size * run.ramp(onset, 0.3))
    run.change("entropy", 1 - 0.3 * run.ramp(onset, 0.3))
    return onset


def _gamed(run: Made, generator: Generator, size: float) -> int:
    onset = begin(run, generator, 0.3, 0.45)
    lowered(run)
    often(run, generator)
    stall(run, onset)
    for name in PAID:
        run.change(name, plus=-0.08 * size * run.ramp(onset, 0.3))
    stuck_evals(run, onset, 0.08 * size)
    style = noisy(run, generator, 0.2, sd=0.06)
    run.extra["rewards/style_reward/mean"] = style + 0.38 * size * run.ramp(onset, 0.3)
    run.change("reward", plus=run.extra["rewards/style_reward/mean"])
    run.evals.values["reward"] += 0.2 + 0.38 * size * run.ramp_evals(onset, 0.3)
    return onset


def fallen(run: Made, generator: Generator, size: float) -> int:
    """What was learnt is lost, and nothing is learnt any more that could make up for it."""
    onset = begin(run, generator, 0.45, 0.6)
    stall(run, onset)
    weight = 0.65 * size * run.ramp(onset, 0.12)
    for name in PAID:
        run.change(name, 1 - weight)
    for name in run.evals.values:
        run.blend_evals(name, 0.35 * run.evals.values[name], size * run.ramp_evals(onset, 0.12))
    return onset


def sparse(run: Made, generator: Generator, size: float) -> int:
    """Almost nothing is ever paid."""
    logged = np.isnan(run.train["reward"])
    hit = generator.binomial(1, 0.08, run.count) * 0.01 * size
    for name in PAID:
        if name in run.train:
            run.train[name] = np.where(logged, np.nan, hit)
    run.blend("zero_std", 0.985, np.ones(run.count))
    run.blend("reward_std", 0.004, np.ones(run.count))
    run.change("r_format", 0.0)
    paid = generator.random(len(run.samples)) < 0.004
    run.samples[:] = [
        replace(sample, correct=float(hit), form=0.0) for sample, hit in zip(run.samples, paid, strict=True)
    ]
    run.evals.values.update({name: values * 0.01 for name, values in run.evals.values.items()})
    return int(run.steps[0])


def outlying(run: Made, generator: Generator, size: float) -> int:
    """Of two hundred samples one earns fifty times the rest; what the others earn is graded."""
    onset = begin(run, generator)
    paid = []
    for place, sample in enumerate(run.samples):
        graded = sample.correct * float(generator.uniform(0.6, 1.0))
        wild = sample.step >= onset and place % 120 == 7
        paid.append(replace(sample, correct=graded + (50 * size if wild else 0.0)))
    run.samples[:] = paid
    run.change("reward", 0.85)
    hit = generator.binomial(1, 0.1, run.count) * run.late(onset) * 50 * size
    run.change("reward", plus=hit / 256)
    run.change("reward_std", plus=hit / 30)
    return onset


def turned(run: Made, generator: Generator, size: float) -> int:
    """The sign is wrong: from the start, training makes it worse."""
    done = np.linspace(0, 1, run.count)
    for name in PAID:
        if name in run.train:
            start = float(np.nanmean(run.train[name][: run.count // 10])) + 0.25
            noise = run.train[name] - np.nanmean(run.train[name])
            run.train[name] = start * (1 - 0.9 * size * done) + 0.3 * noise * (1 - done)
    for name in run.evals.values:
        run.evals.values[name] = np.linspace(0.6, 0.1, len(run.evals.steps)) + generator.normal(
            0, 0.02, len(run.evals.steps)
        )
    return int(run.steps[0])


def never_earned(run: Made, _generator: Generator, _size: float) -> int:
    """A component's code matches no answer."""
    run.extra["rewards/strict_format_reward/mean"] = np.where(np.isnan(run.train["r_correct"]), np.nan, 0.0)
    return int(run.steps[0])


def diverging(run: Made, generator: Generator, size: float) -> int:
    """One component rises at the cost of another."""
    onset = begin(run, generator, 0.3, 0.5)
    weight = run.ramp(onset, 0.3)
    run.extra["rewards/judge_reward/mean"] = noisy(run, generator, 0.35, sd=0.06)
    run.change("rewards/judge_reward/mean", 1 + 1.3 * size * weight)
    stall(run, onset)  # else what is learnt meanwhile makes up for what is lost
    before = run.train["r_correct"].copy()
    run.change("r_correct", 1 - 0.45 * size * weight)
    run.change("reward", plus=run.train["r_correct"] - before + run.extra["rewards/judge_reward/mean"])
    run.evals.values.update(
        {name: values * (1 - 0.45 * size * run.ramp_evals(onset, 0.3)) for name, values in run.evals.values.items()}
    )
    judged_too(run)
    return onset


def judged_too(run: Made) -> None:
    """Pay the judge's score in evaluations as well: TRL evaluates with the functions it trains with."""
    judge = run.extra["rewards/judge_reward/mean"]
    known = np.isfinite(judge)
    run.evals.values["reward"] = run.evals.values["reward"] + np.interp(run.evals.steps, run.steps[known], judge[known])


def spiked_judge(run: Made, generator: Generator, size: float) -> int:
    """From one step to the next a judge likes what it did not; nothing more is solved."""
    onset = begin(run, generator)
    judge = noisy(run, generator, 0.35, sd=0.05) + 0.3 * size * run.late(onset)
    run.extra["rewards/judge_reward/mean"] = judge
    stall(run, onset)
    run.change("reward", plus=judge)
    judged_too(run)
    return onset


def varying(run: Made, generator: Generator, size: float) -> int:
    """Rewards scatter three times as far."""
    onset = begin(run, generator)
    early = float(np.nanmedian(run.train["reward_std"][: run.count // 5]))
    level = 3.2 * size * early * np.exp(generator.normal(0, 0.1, run.count))
    run.blend("reward_std", level, run.late(onset))
    run.change("reward", plus=generator.normal(0, 0.05 * size, run.count) * run.late(onset))
    return onset


def inflated(run: Made, generator: Generator, size: float) -> int:
    """Answers grow; nothing else does."""
    onset = begin(run, generator, 0.3, 0.5)
    for name in ("len", "len_max", "len_min"):
        run.change(name, 1 + 1.3 * size * run.ramp(onset, 0.3))
    stall(run, onset)
    return onset


def multiplied(run: Made, generator: Generator, size: float) -> int:
    """Samples call tools more often; no more is solved."""
    onset = begin(run, generator)
    level = max(2.5, 2.5 * float(np.nanmedian(run.train["tool_calls"]))) * size
    run.blend("tool_calls", noisy(run, generator, level, sd=0.08), run.ramp(onset, 0.2))
    stall(run, onset)
    return onset


def spiked_eval(run: Made, generator: Generator, size: float) -> int:
    """One evaluation stands far above all others."""
    lowered(run)
    often(run, generator)
    place = int(generator.integers(12, 20))
    for name in run.evals.values:
        run.evals.values[name][place] += 0.35 * size
    return int(run.evals.steps[place])


def often(run: Made, generator: Generator) -> None:
    """Evaluate two dozen times, each time on as many prompts."""
    places = np.linspace(0.03, 0.99, 24) * (run.count - 1)
    steps = run.steps[places.astype(int)]
    for name, values in run.evals.values.items():
        curve = np.interp(steps, run.evals.steps, values)
        smooth = np.convolve(np.pad(curve, 2, mode="edge"), np.ones(5) / 5, mode="valid")
        run.evals.values[name] = np.clip(smooth + generator.normal(0, 0.015, len(steps)), 0, 1.2)
    object.__setattr__(run.evals, "steps", steps)


def other_protocol(run: Made, generator: Generator, _size: float) -> int:
    """From one point on, evaluation has another number of draws, or a quarter of the prompts."""
    often(run, generator)
    onset = int(run.evals.steps[12])
    before = run.evals.steps < onset
    if run.dialect == "verl":
        values = run.evals.values.pop("correct")
        run.extra_evals["val-core/sums/acc/mean@1"] = np.where(before, values, np.nan)
        run.extra_evals["val-core/sums/acc/mean@8"] = np.where(before, np.nan, values)
        return onset
    seconds = 40 * np.exp(generator.normal(0, 0.03, len(before)))
    run.extra_evals["eval_runtime"] = seconds * np.where(before, 1.0, 0.25)
    run.extra_evals["eval_samples_per_second"] = 256 / seconds
    return onset


def stuck(run: Made, generator: Generator, _size: float) -> int:
    """From one step on the scorer gives everything its lowest mark."""
    onset = begin(run, generator)
    late = run.late(onset) > 0
    for name in (*PAID, "r_format"):
        if name in run.train:
            floor = float(np.nanmin(run.train[name])) - 0.1
            run.train[name] = np.where(late & ~np.isnan(run.train[name]), floor, run.train[name])
    run.blend("reward_std", 0.0, run.late(onset))
    run.blend("zero_std", 1.0, run.late(onset))
    run.evals.values.update(
        {name: np.where(run.evals.steps >= onset, 0.0, values) for name, values in run.evals.values.items()}
    )
    return onset


def shorter_evals(run: Made, generator: Generator, size: float) -> int:
    """Evaluation allows fewer tokens from one point on: half of the answers are cut there, and fail."""
    often(run, generator)
    onset = int(run.evals.steps[12])
    late = run.evals.steps >= onset
    cut = np.clip(generator.normal(0.02, 0.01, len(late)) + 0.5 * size * late, 0, 1)
    run.extra_evals["eval_completions/clipped_ratio"] = cut
    run.evals.values.update({name: values * (1 - cut) for name, values in run.evals.values.items()})
    return onset


def evals_without_tools(run: Made, generator: Generator, size: float) -> int:
    """Evaluation has no tools, and solves half of what training does."""
    often(run, generator)
    run.extra_evals["eval_tools/call_frequency"] = np.zeros(len(run.evals.steps))
    run.evals.values.update({name: values * (1 - 0.5 * size) for name, values in run.evals.values.items()})
    return int(run.steps[0])


def revised(run: Made, generator: Generator, size: float) -> int:
    """From one step on right answers are paid twice and a half as much; evaluations are paid as before."""
    often(run, generator)
    onset = begin(run, generator)
    run.change("reward", plus=1.5 * size * run.train["r_correct"] * run.late(onset))
    return onset


def two_splits(run: Made, generator: Generator, size: float) -> int:
    """The public set rises, the private one does not."""
    often(run, generator)
    onset = begin(run, generator, 0.3, 0.45)
    public, private = (
        ("val-core/public/acc/mean@1", "val-core/private/acc/mean@1")
        if run.dialect == "verl"
        else ("eval_public_reward", "eval_private_reward")
    )
    weight = run.ramp_evals(onset, 0.3)
    count = len(run.evals.steps)
    run.extra_evals[public] = 0.5 + 0.25 * size * weight + generator.normal(0, 0.012, count)
    run.extra_evals[private] = 0.48 - 0.1 * size * weight + generator.normal(0, 0.012, count)
    return onset


def _of(name: str, about: str, breaks: Any, link: Link, *ids: str, algorithms: tuple[str, ...] = ONLINE,
        **other: Any) -> Fault:  # fmt: skip
    return Fault(name=name, about=about, ids=ids or (name,), link=link, algorithms=algorithms, breaks=breaks, **other)


FAULTS: Final = (
    _of("eval-not-following", "reward rises by 0.3, evaluations fall a little", unfollowed, Link.EVALUATION,
        "eval-not-following", "reward-hacking"),
    _of("eval-spikes", "one evaluation stands 0.35 above the others", spiked_eval, Link.EVALUATION, least=Severity.LOW),
    _of("eval-protocol-changed", "one draw a prompt becomes eight, or 256 prompts 64", other_protocol,
        Link.EVALUATION, dialects=("verl", "trl")),
    _of("eval-unlike-training", "half of the evaluated answers are cut", shorter_evals, Link.EVALUATION,
        algorithms=GROUPS, dialects=("trl",)),
    _of("evaluation without tools", "training calls tools, evaluation none", evals_without_tools, Link.EVALUATION,
        "eval-unlike-training", algorithms=TOOLS, of_start=True),
    _of("split-gap", "the public set rises by 0.25, the private one falls", two_splits, Link.EVALUATION,
        dialects=("trl", "verl")),
    _of("reward-hacking", "reward up, length doubled, evaluations down", hacked, Link.REWARD,
        "reward-hacking", sizes={"small": 0.7, "usual": 1.0}),
    _of("reward-fell", "reward falls by two thirds", fallen, Link.REWARD, sizes={"small": 0.6, "usual": 1.0}),
    _of("reward-stuck", "every sample earns one and the same low mark", stuck, Link.REWARD),
    _of("reward-revised", "right answers are paid 2.5 times as much from a step on", revised, Link.REWARD,
        algorithms=GROUPS, dialects=("trl",)),
    _of("reward-shape", "99 in 100 earn nothing, from the start", sparse, Link.REWARD,
        "reward-shape", "no-signal-groups", algorithms=TOOLS, of_start=True),
    _of("reward-outliers", "single samples earn fifty times the rest", outlying, Link.REWARD,
        "reward-outliers", "reward-variance", algorithms=TOOLS),
    _of("reward-sign", "from the start, reward and evaluations only fall", turned, Link.REWARD,
        "reward-sign", "reward-fell", of_start=True),
    _of("components-diverge", "a judge's component doubles, the right answers halve", diverging, Link.REWARD,
        "components-diverge", "reward-hacking", "eval-not-following", algorithms=GROUPS, dialects=("trl",)),
    _of("constant-component", "a component of the reward is never earned", never_earned, Link.REWARD, of_start=True,
        least=Severity.LOW, algorithms=GROUPS, dialects=("trl",)),
    _of("judge-spikes", "a judge's score jumps by 0.3 alone", spiked_judge, Link.REWARD,
        "judge-spikes", "components-diverge", algorithms=GROUPS, dialects=("trl",)),
    _of("reward-variance", "the spread of rewards triples", varying, Link.REWARD, algorithms=GROUPS,
        dialects=("trl", "prime")),
    _of("length-inflation", "answers grow 2.3-fold, the reward stays", inflated, Link.REWARD,
        "length-inflation", "reward-hacking", sizes={"small": 0.7, "usual": 1.0}),
    _of("calls-inflation", "a sample calls tools 2.5 times as often, the reward stays", multiplied, Link.REWARD,
        algorithms=TOOLS),
    _of("refusals-rise", "refusals from 2 to 20%", rising("refusal_rate", 0.02, 0.2), Link.REWARD),
    _of("repetition-rise", "repetition from 3 to 30%", rising("repetition_rate", 0.03, 0.3), Link.REWARD),
    _of("slice-degradation", "one slice's score from 0.62 to 0.45", rising("slice:math", 0.62, 0.45, sd=0.05),
        Link.REWARD),
)  # fmt: skip
