"""Healthy runs on given data: SFT over some epochs, and DPO with its margins, as TRL logs them."""

from __future__ import annotations

import numpy as np

from benchmarks.loop.made import Evals, Made, generator_of
from benchmarks.loop.noise import heavy, log_uniform, progress, schedule, some_ar

BETA = 0.1


def sft(seed: int, dialect: str) -> Made:
    """Make a run of SFT: a steep start, a slow tail, a small drop where an epoch begins anew."""
    generator = generator_of("sft", seed)
    count = int(log_uniform(generator, 80, 600))
    every = int(generator.choice([1, 5, 10]))  # steps a logged row
    steps = every * np.arange(1, count + 1)
    u = np.linspace(0, 1, count)
    first, last = generator.uniform(1.4, 6.0), generator.uniform(0.15, 1.3)
    fast, rate = generator.uniform(0.6, 0.97), generator.uniform(15, 90)
    shape = fast * np.exp(-rate * u) + (1 - fast) * (1 - u) ** generator.uniform(1.0, 2.5)
    epochs = int(generator.choice([1, 2, 3]))
    drop = 1 - generator.uniform(0.01, 0.06) * np.minimum(np.floor(u * epochs), epochs - 1)
    level = (last + (first - last) * shape) * drop
    noise = np.exp(some_ar(generator, count, generator.uniform(0.02, 0.12)))
    loss = level * noise
    grads = (
        log_uniform(generator, 0.1, 2)
        * (0.6 + 0.8 * level / first)
        * heavy(generator, count, generator.uniform(0.15, 0.4))
    )
    spike = 1 + generator.uniform(0, 6) * np.exp(-np.arange(count) / 4)
    rows = {
        "loss": loss,
        "grad_norm": grads * spike,
        "lr": log_uniform(generator, 1e-6, 2e-4) * schedule(generator, count, constant=0.15),
        "entropy": level * generator.uniform(0.9, 1.1) * np.exp(some_ar(generator, count, 0.04)),
        "token_accuracy": np.clip(np.exp(-0.45 * level) + generator.normal(0, 0.006, count), 0, 1),
        "num_tokens": np.cumsum(np.full(count, log_uniform(generator, 2e3, 2e5))),
    }
    points = int(generator.integers(5, 21))
    places = np.unique(np.linspace(count / points, count, points).astype(int)) - 1
    gap = 1 + generator.uniform(0, 0.08)
    creep = 1 + generator.uniform(0, 0.015) * u[places] ** 3  # the last epoch of a healthy run learns a little by heart
    held = (last + (first - last) * shape[places]) * gap * creep
    values = {
        "loss": held * np.exp(generator.normal(0, 0.004, len(places))),
        "token_accuracy": np.clip(np.exp(-0.45 * held) + generator.normal(0, 0.002, len(places)), 0, 1),
    }
    evals = Evals(steps=steps[places], values=values)
    return Made(algorithm="sft", dialect=dialect, seed=seed, steps=steps, train=rows, evals=evals,
                planned=int(steps[-1]))  # fmt: skip


def dpo(seed: int, dialect: str) -> Made:
    """Make a run of DPO: loss, accuracy and margins of the same pairs."""
    generator = generator_of("dpo", seed)
    count = int(log_uniform(generator, 80, 500))
    every = int(generator.choice([1, 5, 10]))
    steps = every * np.arange(1, count + 1)
    done = progress(generator, count)
    pairs = int(generator.choice([16, 32, 64, 128]))
    last, own = log_uniform(generator, 0.5, 6.0), generator.uniform(0.15, 1.0)  # easy pairs differ little in margin
    margin = last * done * np.exp(some_ar(generator, count, 0.03))
    drawn = margin[:, None] + own * (0.05 + margin)[:, None] * generator.normal(size=(count, pairs))
    mean = drawn.mean(axis=1)
    kept = generator.uniform(-0.45, 0.1)  # share of the margin by which the chosen answers change
    wander = generator.normal(0, 0.1, count)
    chosen = kept * margin + wander
    length = log_uniform(generator, 30, 350)
    spread = 0.5 * length / np.sqrt(pairs)
    rows = {
        "loss": np.logaddexp(0, -drawn).mean(axis=1),
        "grad_norm": log_uniform(generator, 0.5, 20)
        * (0.02 + 1.9 / (1 + np.exp(margin)))
        * heavy(generator, count, generator.uniform(0.15, 0.4)),
        "lr": log_uniform(generator, 5e-7, 5e-5) * schedule(generator, count, constant=0.1),
        "margin": mean,
        "accuracy": (drawn > 0).mean(axis=1),
        "r_chosen": chosen,
        "r_rejected": chosen - mean,
        "lp_chosen": -length + chosen / BETA + generator.normal(0, spread, count),
        "lp_rejected": -length * generator.uniform(0.9, 1.1)
        + (chosen - mean) / BETA
        + generator.normal(0, spread, count),
        "lg_chosen": -2 + 0.3 * done + generator.normal(0, 0.04, count),
        "lg_rejected": -2 + 0.6 * done + generator.normal(0, 0.04, count),
        "entropy": generator.uniform(0.4, 1.2) * (1 - 0.1 * done) * np.exp(some_ar(generator, count, 0.05)),
        "token_accuracy": generator.uniform(0.6, 0.85) + 0.02 * done + generator.normal(0, 0.012, count),
        "num_tokens": np.cumsum(np.full(count, pairs * length * 2.2)),
    }
    points = int(generator.integers(4, 12))
    places = np.unique(np.linspace(count / points, count, points).astype(int)) - 1
    held = 0.9 * margin[places][:, None] + own * (0.05 + margin[places])[:, None] * generator.normal(
        size=(len(places), 256)
    )
    values = {
        "loss": np.logaddexp(0, -held).mean(axis=1),
        "margin": held.mean(axis=1),
        "accuracy": (held > 0).mean(axis=1),
        "r_chosen": kept * margin[places],
        "r_rejected": kept * margin[places] - held.mean(axis=1),
        "lp_chosen": -length + kept * margin[places] / BETA,
        "lp_rejected": -length + (kept * margin[places] - held.mean(axis=1)) / BETA,
    }
    evals = Evals(steps=steps[places], values=values)
    return Made(algorithm="dpo", dialect=dialect, seed=seed, steps=steps, train=rows, evals=evals,
                planned=int(steps[-1]))  # fmt: skip
