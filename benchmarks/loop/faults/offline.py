"""Faults of training on given data: pairs that teach nothing, likelihoods that fall, answers learnt by heart."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from benchmarks.loop.faults.fault import DPO, SFT, Break, Fault, begin
from benchmarks.loop.made import Made
from benchmarks.loop.noise import Generator, ar
from benchmarks.loop.offline import BETA
from ptt.diagnostics.model import Link, Severity

LN2: Final = float(np.log(2))


def chance(run: Made, generator: Generator, _size: float) -> int:
    """Nothing is learnt: labels at random, or a rate of nothing."""
    _to_chance(run, generator, np.ones(run.count), np.ones(len(run.evals.steps)))
    return int(run.steps[0])


def collapsed(run: Made, generator: Generator, _size: float) -> int:
    """The margin goes, and with it what was learnt."""
    onset = begin(run, generator, 0.45, 0.6)
    run.change("margin", 1.0, 0.5)
    _to_chance(run, generator, run.ramp(onset, 0.12), run.ramp_evals(onset, 0.12))
    return onset


def _to_chance(run: Made, generator: Generator, weight: Any, of_evals: Any) -> None:
    count, points = run.count, len(run.evals.steps)
    goals = {"margin": (0.0, 0.02), "accuracy": (0.5, 0.06), "loss": (LN2, 0.006), "r_chosen": (0.0, 0.02),
             "r_rejected": (0.0, 0.02)}  # fmt: skip
    for name, (level, sd) in goals.items():
        run.blend(name, level + generator.normal(0, sd, count), weight)
        run.blend_evals(name, level + generator.normal(0, sd / 3, points), of_evals)


def both_fall(run: Made, generator: Generator, size: float) -> int:
    """Chosen answers become less likely too; the margin still grows."""
    onset = begin(run, generator, 0.3, 0.5)
    base = -float(np.median(run.train["lp_chosen"][: run.count // 5]))
    fall = 1.6 * base * size * run.ramp(onset, 0.4)
    for side in ("chosen", "rejected"):
        run.change(f"lp_{side}", plus=-fall * (1.0 if side == "chosen" else 1.1))
        run.change(f"r_{side}", plus=-BETA * fall)
        held = 1.6 * base * size * run.ramp_evals(onset, 0.4)
        run.evals.values[f"lp_{side}"] = run.evals.values[f"lp_{side}"] - held
        run.evals.values[f"r_{side}"] = run.evals.values[f"r_{side}"] - BETA * held
    return onset


def rejected_falls(run: Made, generator: Generator, size: float) -> int:
    """The margin comes from destroying the rejected side alone."""
    onset = begin(run, generator, 0.3, 0.5)
    base = -float(np.median(run.train["lp_rejected"][: run.count // 5]))
    fall, held = (16 * base * size * weight for weight in (run.ramp(onset, 0.4), run.ramp_evals(onset, 0.4)))
    for name, sign, scale in (("lp_rejected", -1, 1.0), ("r_rejected", -1, BETA), ("margin", 1, BETA)):
        run.change(name, plus=sign * scale * fall)
        run.evals.values[name] = run.evals.values[name] + sign * scale * held
    return onset


def driven_apart(run: Made, generator: Generator, size: float) -> int:
    """Margins grow without end, and the loss is gone."""
    onset = begin(run, generator, 0.3, 0.5)
    grown = 120 * size * run.ramp(onset, 0.3)
    run.change("margin", plus=grown)
    run.change("r_rejected", plus=-grown)
    run.change("lp_rejected", plus=-grown / BETA)
    run.train["loss"] = np.where(grown > 0, np.logaddexp(0, -run.train["margin"]), run.train["loss"])
    run.change("grad_norm", np.where(grown > 0, np.exp(-np.minimum(grown, 20.0)), 1.0))
    run.blend("accuracy", 1.0, run.ramp(onset, 0.05))
    return onset


def unstable(run: Made, generator: Generator, size: float) -> int:
    """From batch to batch the preference turns over."""
    onset = begin(run, generator)
    late = run.late(onset)
    swing = ar(generator, run.count, likeness=0.6, sd=0.28 * size)
    run.train["accuracy"] = np.clip(np.where(late > 0, np.round((0.55 + swing) * 16) / 16, run.train["accuracy"]), 0, 1)
    run.train["margin"] = np.where(late > 0, 2.5 * swing, run.train["margin"])
    run.train["loss"] = np.where(late > 0, np.logaddexp(0, -2.5 * swing), run.train["loss"])
    return onset


def plateau(run: Made, generator: Generator, _size: float) -> int:
    """Slightly better than chance, and no better for the rest of the run."""
    onset = begin(run, generator, 0.25, 0.35)
    early, of_evals = np.clip(1 - run.ramp(onset, 0.01), 0, 1), np.ones(len(run.evals.steps))
    level = 0.61 - 0.1 * early * np.linspace(1, 0, run.count)
    run.train["accuracy"] = np.clip(np.round((level + generator.normal(0, 0.015, run.count)) * 128) / 128, 0, 1)
    run.train["margin"] = 0.12 * (1 - 0.5 * early) + generator.normal(0, 0.03, run.count)
    run.train["loss"] = 0.66 + 0.02 * early + generator.normal(0, 0.01, run.count)
    for name, goal in (("accuracy", 0.61), ("margin", 0.12), ("loss", 0.66)):
        run.blend_evals(name, goal + generator.normal(0, 0.006, len(of_evals)), of_evals)
    return onset


def by_heart(run: Made, _generator: Generator, size: float) -> int:
    """Training loss goes on falling; the loss on held-out data turns and rises."""
    place = max(1, int(0.4 * len(run.evals.steps)))
    onset = int(run.evals.steps[place])
    weight = np.clip((run.steps - onset) / (run.steps[-1] - onset), 0, 1)
    run.change("loss", np.exp(-1.8 * weight))
    run.change("entropy", np.exp(-1.0 * weight))
    best = float(run.evals.values["loss"][place])
    later = np.clip((run.evals.steps - onset) / (run.evals.steps[-1] - onset), 0, 1)
    rising = best * (1 + 0.4 * size * later)
    run.evals.values["loss"] = np.where(run.evals.steps >= onset, rising, run.evals.values["loss"])
    return onset


def spikes(run: Made, generator: Generator, size: float) -> int:
    """Single batches are far worse than the rest."""
    onset = begin(run, generator)
    hit = generator.binomial(1, 0.08, run.count) * run.late(onset)
    hit[run.place(onset)] = 1
    run.change("loss", 1 + 1.8 * size * hit)
    run.change("grad_norm", 1 + 3 * hit)
    return onset


def stuck(run: Made, generator: Generator, _size: float) -> int:
    """The loss never falls."""
    level = float(np.median(run.train["loss"][:5]))
    run.train["loss"] = level * np.exp(ar(generator, run.count, likeness=0.2, sd=0.02))
    run.evals.values["loss"] = level * (1 + generator.normal(0, 0.004, len(run.evals.steps)))
    return int(run.steps[0])


def negative(run: Made, generator: Generator, size: float) -> int:
    """A cross entropy falls below 0, where none can be."""
    onset = begin(run, generator)
    run.change("loss", plus=-1.2 * size * float(np.median(run.train["loss"])) * run.ramp(onset, 0.1))
    return onset


def odds(run: Made, generator: Generator, size: float) -> int:
    """ORPO's log odds swing by more than they are."""
    onset = begin(run, generator)
    sd = 0.08 + 1.4 * size * run.late(onset)
    run.extra["log_odds_ratio"] = -0.6 + sd * generator.normal(size=run.count)
    run.extra["log_odds_chosen"] = 0.5 + sd * generator.normal(size=run.count)
    run.extra["nll_loss"] = 1.2 + generator.normal(0, 0.05, run.count)
    return onset


def imbalanced(run: Made, generator: Generator, size: float) -> int:
    """KTO learns from one side alone. It has no pairs to rank, so its trainer logs a KL and no accuracy."""
    onset = begin(run, generator)
    for name in ("accuracy", "token_accuracy"):
        run.train.pop(name, None)
        run.evals.values.pop(name, None)
    run.extra["kl"] = np.abs(generator.normal(0.05, 0.01, run.count))
    run.extra["desirable_loss"] = 0.4 * np.exp(generator.normal(0, 0.08, run.count))
    run.extra["undesirable_loss"] = 0.4 * np.exp(generator.normal(0, 0.08, run.count))
    run.change("undesirable_loss", 1 / (1 + 6 * size * run.ramp(onset, 0.1)))
    run.train["loss"] = (run.extra["desirable_loss"] + run.extra["undesirable_loss"]) / 2
    return onset


def _of(name: str, about: str, breaks: Break, algorithms: tuple[str, ...], *ids: str, **other: Any) -> Fault:
    link = other.pop("link", Link.POLICY_UPDATE)
    return Fault(name=name, about=about, ids=ids or (name,), link=link, algorithms=algorithms, breaks=breaks, **other)


FAULTS: Final = (
    _of("at-chance", "loss at ln 2, accuracy at a half, from the start", chance, DPO, link=Link.TRAINING_SIGNAL,
        of_start=True),
    _of("margin-collapse", "the margin goes to nothing", collapsed, DPO, "margin-collapse", "at-chance"),
    _of("likelihood-falls", "both sides fall to 2.6 times their log-likelihood", both_fall, DPO),
    _of("rejected-collapse", "the rejected side falls 17-fold, the chosen one stays", rejected_falls, DPO),
    _of("preference-saturated", "margins past 100 nats, loss and gradients gone", driven_apart, DPO,
        "preference-saturated", "rejected-collapse"),
    _of("preference-unstable", "accuracy swings between 0.2 and 0.9", unstable, DPO, link=Link.TRAINING_SIGNAL),
    _of("preference-plateau", "accuracy stands at 0.61", plateau, DPO, "preference-plateau", "at-chance",
        link=Link.TRAINING_SIGNAL, least=Severity.INFO),
    _of("overfitting", "held-out loss rises by 40%, training loss falls", by_heart, SFT, link=Link.EVALUATION,
        sizes={"small": 0.5, "usual": 1.0}),
    _of("perplexity-spikes", "one batch in twelve has 2.8 times the loss", spikes, SFT, link=Link.NUMERICS),
    _of("loss-plateau", "the loss never falls", stuck, SFT, "loss-plateau",
        link=Link.TRAINING_SIGNAL, least=Severity.INFO, of_start=True),
    _of("loss-below-zero", "the training loss falls by 1.2 times what it is, to below 0", negative, SFT,
        link=Link.NUMERICS),
    _of("odds-ratio-unstable", "log odds swing by 1.5", odds, DPO, link=Link.NUMERICS),
    _of("kto-imbalance", "one side's loss is a seventh of the other's", imbalanced, DPO, link=Link.TRAINING_SIGNAL),
)  # fmt: skip
