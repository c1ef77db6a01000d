"""Faults of rewards and evaluations: gamed, fallen, sparse, spiked, or measured in another way."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from benchmarks.loop.faults.fault import GROUPS, ONLINE, Fault, begin, noisy
from benchmarks.loop.made import Made
from benchmarks.loop.noise import Generator
from ptt.diagnostics.model import Link, Severity

LOWERED: Final = 0.55  # of a healthy run's reward: leaves room to rise
PAID: Final = ("reward", "r_correct")
HALF: Final = ("verl",)


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
    for name in PAID:
        run.change(name, plus=0.3 * size * run.ramp(onset, 0.3))
    stuck_evals(run, onset, 0.08 * size)
    return onset


def hacked(run: Made, generator: Generator, size: float) -> int:
    """Reward up, answers longer and more alike, evaluations down."""
    onset = unfollowed(run, generator, size)
    for name in ("len", "len_max"):
        run.change(name, 1 + 1.0 * size * run.ramp(onset, 0.3))
    run.change("entropy", 1 - 0.3 * run.ramp(onset, 0.3))
    return onset


def fallen(run: Made, generator: Generator, size: float) -> int:
    """What was learnt is lost."""
    onset = begin(run, generator, 0.45, 0.6)
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
    run.evals.values.update({name: values * 0.01 for name, values in run.evals.values.items()})
    return int(run.steps[0])


def outlying(run: Made, generator: Generator, size: float) -> int:
    """Single samples earn fifty times the rest."""
    onset = begin(run, generator)
    hit = generator.binomial(1, 0.3, run.count) * run.late(onset) * generator.uniform(20, 60, run.count) * size
    run.change("score_max", plus=hit)
    run.change("reward", plus=hit / 256)
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


def diverging(run: Made, generator: Generator, size: float) -> int:
    """One component rises at the cost of another."""
    onset = begin(run, generator, 0.3, 0.5)
    weight = run.ramp(onset, 0.3)
    run.extra["rewards/judge_reward/mean"] = noisy(run, generator, 0.35, sd=0.06)
    run.change("rewards/judge_reward/mean", 1 + 1.3 * size * weight)
    before = run.train["r_correct"].copy()
    run.change("r_correct", 1 - 0.45 * size * weight)
    run.change("reward", plus=run.train["r_correct"] - before + run.extra["rewards/judge_reward/mean"])
    run.evals.values.update(
        {name: values * (1 - 0.45 * size * run.ramp_evals(onset, 0.3)) for name, values in run.evals.values.items()}
    )
    return onset


def spiked_judge(run: Made, generator: Generator, size: float) -> int:
    """For a few generations the judge likes everything."""
    onset = begin(run, generator)
    place = run.place(onset)
    lowered(run)
    paid = np.flatnonzero(~np.isnan(run.train["reward"]))
    for row in paid[paid >= place][:4]:
        for name in PAID:
            if name in run.train:
                run.train[name][row] += 0.55 * size
    return onset


def varying(run: Made, generator: Generator, size: float) -> int:
    """Rewards scatter three times as far."""
    onset = begin(run, generator)
    run.change("reward_std", 1 + 2.2 * size * run.late(onset))
    run.change("reward", plus=generator.normal(0, 0.12 * size, run.count) * run.late(onset))
    return onset


def inflated(run: Made, generator: Generator, size: float) -> int:
    """Answers grow; nothing else does."""
    onset = begin(run, generator, 0.3, 0.5)
    for name in ("len", "len_max", "len_min"):
        run.change(name, 1 + 1.3 * size * run.ramp(onset, 0.3))
    for name in PAID:  # from there on nothing more is learnt
        if name in run.train:
            held = run.train[name]
            before = held[(run.steps < onset) & (run.steps >= onset - 0.2 * run.count)]
            shift = np.nanmean(held[run.steps >= onset]) - np.nanmean(before)
            run.train[name] = held - shift * run.ramp(onset, 0.15)
    stuck_evals(run, onset, 0.0)
    return onset


def rising(metric: str, first: float, last: float) -> Any:
    """Give a fault in one more metric, which the run logs from the start."""

    def breaks(run: Made, generator: Generator, size: float) -> int:
        onset = begin(run, generator)
        run.extra[metric] = noisy(run, generator, first, sd=0.12)
        run.change(metric, 1 + (last / first - 1) * size * run.ramp(onset, 0.15))
        return onset

    return breaks


def spiked_eval(run: Made, generator: Generator, size: float) -> int:
    """One evaluation is far off all others."""
    count = len(run.evals.steps)
    place = int(generator.integers(count // 2, max(count // 2 + 1, count - 1)))
    for name in run.evals.values:
        run.evals.values[name][place] *= 1 - 0.6 * size
    return int(run.evals.steps[place])


def other_protocol(run: Made, _generator: Generator, _size: float) -> int:
    """From one point on, evaluation takes the best of several samples."""
    place = max(2, len(run.evals.steps) // 2)
    onset = int(run.evals.steps[min(place, len(run.evals.steps) - 1)])
    values = run.evals.values.pop("correct")
    before = run.evals.steps < onset
    run.extra_evals["val-core/sums/acc/mean@1"] = np.where(before, values, np.nan)
    run.extra_evals["val-core/sums/acc/best@8/mean"] = np.where(before, np.nan, 1 - (1 - values) ** 3)
    return onset


def two_splits(run: Made, generator: Generator, size: float) -> int:
    """The public set rises, the private one does not."""
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
    _of("eval-not-following", "reward rises by .3, evaluations fall a little", unfollowed, Link.EVALUATION,
        "eval-not-following", "reward-hacking"),
    _of("eval-spikes", "one evaluation is 60 % lower", spiked_eval, Link.EVALUATION, least=Severity.LOW),
    _of("eval-protocol-changed", "mean of one sample becomes best of eight", other_protocol, Link.EVALUATION,
        algorithms=("ppo", "grpo"), dialects=("verl",)),
    _of("split-gap", "the public set rises by .25, the private one falls", two_splits, Link.EVALUATION,
        dialects=("trl", "verl")),
    _of("reward-hacking", "reward up, length doubled, evaluations down", hacked, Link.REWARD,
        "reward-hacking", sizes={"small": 0.7, "usual": 1.0}),
    _of("reward-fell", "reward falls by two thirds", fallen, Link.REWARD, sizes={"small": 0.6, "usual": 1.0}),
    _of("reward-shape", "99 in 100 earn nothing, from the start", sparse, Link.REWARD,
        "reward-shape", "no-signal-groups", of_start=True),
    _of("reward-outliers", "single samples earn fifty times the rest", outlying, Link.REWARD,
        algorithms=("ppo", "grpo"), dialects=HALF),
    _of("reward-sign", "from the start, reward and evaluations only fall", turned, Link.REWARD,
        "reward-sign", "reward-fell", of_start=True),
    _of("components-diverge", "a judge's component doubles, the right answers halve", diverging, Link.REWARD,
        "components-diverge", "reward-hacking", "eval-not-following", algorithms=GROUPS, dialects=("trl",)),
    _of("judge-spikes", "four generations earn .55 more", spiked_judge, Link.REWARD,
        "judge-spikes", least=Severity.LOW),
    _of("reward-variance", "the spread of rewards triples", varying, Link.REWARD, algorithms=GROUPS,
        dialects=("trl", "prime")),
    _of("length-inflation", "answers grow 2.3-fold, the reward stays", inflated, Link.REWARD,
        "length-inflation", "reward-hacking", sizes={"small": 0.7, "usual": 1.0}),
    _of("refusals-rise", "refusals from 2 to 20 %", rising("refusal_rate", 0.02, 0.2), Link.REWARD),
    _of("repetition-rise", "repetition from 3 to 30 %", rising("repetition_rate", 0.03, 0.3), Link.REWARD),
    _of("slice-degradation", "one slice's score from .62 to .45", rising("slice:math", 0.62, 0.45), Link.REWARD),
)  # fmt: skip
