"""Healthy runs that sample their own data: GRPO as TRL, veRL and prime-rl log it, PPO with a critic as veRL does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.loop.made import Evals, Made, generator_of
from benchmarks.loop.noise import FloatArray, Generator, IntArray, ar, heavy, log_uniform, progress, schedule, some_ar
from benchmarks.loop.samples import Task, samples_of

SHORTEST, LONGEST = 120, 600  # optimiser steps
FORMAT = 0.1  # what the right format pays beside the right answer
RESTARTS = 0.12  # share of runs that were killed and resumed


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What drives a run's curves, by generation."""

    done: FloatArray  # 0 to 1: how much of what will be learnt has been
    solved: FloatArray  # the policy's mean chance of a right answer
    reward: FloatArray
    correct: FloatArray
    form: FloatArray
    spread: FloatArray  # mean standard deviation within a group
    alike: FloatArray  # share of groups without any
    prompts: int
    group: int


def learning_of(generator: Generator, count: int) -> Learning:
    """Draw success by prompt and sample: reward, its spread and the groups without signal then agree."""
    prompts = int(generator.choice([4, 8, 16, 32, 64]))
    group = int(generator.choice([4, 8, 16]))
    done = progress(generator, count)
    first, last = generator.uniform(0.2, 0.75), generator.uniform(0.75, 0.97)
    solved = np.clip(first + (last - first) * done + some_ar(generator, count, 0.015), 0.01, 0.995)
    likeness = generator.uniform(1.5, 5.0)  # small: prompts are either easy or hard
    chance = generator.beta((solved * likeness)[:, None], ((1 - solved) * likeness)[:, None], size=(count, prompts))
    hits = generator.binomial(group, np.clip(chance, 0, 1))
    formed = 1 - (1 - generator.uniform(0.85, 0.99)) * (1 - 0.9 * done)
    form = generator.binomial(prompts * group, formed) / (prompts * group)
    share = hits / group
    within = np.sqrt(share * (1 - share) * group / max(1, group - 1))
    correct = share.mean(axis=1)
    return Learning(
        done=done,
        solved=solved,
        reward=correct + FORMAT * form,
        correct=correct,
        form=FORMAT * form,
        spread=within.mean(axis=1),
        alike=((hits == 0) | (hits == group)).mean(axis=1),
        prompts=prompts,
        group=group,
    )


def shared(generator: Generator, learning: Learning, steps: IntArray, per: int) -> dict[str, FloatArray]:
    """Draw the curves that every algorithm of this family logs, one value a row; `per` rows share a generation."""
    count = len(steps)
    of = np.minimum(np.arange(count) // per, len(learning.done) - 1)
    done, signal = learning.done[of], 1 - learning.alike[of]
    rows = learning.prompts * learning.group
    u = np.linspace(0, 1, count)
    entropy = log_uniform(generator, 0.08, 1.2) * (1 - generator.uniform(0.1, 0.7) * done)
    most = log_uniform(generator, 0.006, 0.08)
    crept = most * (0.5 * done + 0.5 * u) ** generator.uniform(0.6, 1.2)
    spikes = np.where(generator.random(count) < 0.008, generator.uniform(2, 6, count), 1.0)
    kl = np.minimum(crept * np.exp(some_ar(generator, count, generator.uniform(0.15, 0.65))) * spikes, 0.33)
    length = log_uniform(generator, 60, 1500)
    drift = 1 + generator.uniform(-0.2, 0.3) * done
    noise = generator.uniform(0.3, 0.9) / np.sqrt(rows)
    lengths = length * drift * np.exp(some_ar(generator, count, noise))
    settles = 1 - generator.uniform(0, 0.8) * done  # updates and mismatch shrink as little is left to learn
    grad = log_uniform(generator, 0.08, 1.2) * np.sqrt(signal + 0.01) * settles
    grad = grad * heavy(generator, count, generator.uniform(0.15, 0.6))
    warm = 1 + generator.uniform(0, 2) * np.exp(-np.arange(count) / 5)
    mismatch = log_uniform(generator, 0.002, 0.02) * settles**0.5
    mismatch = mismatch * np.exp(some_ar(generator, count, generator.uniform(0.05, 0.5)))
    shape = generator.uniform(0.5, 3.0)
    clip = log_uniform(generator, 0.0003, 0.02) * settles * generator.gamma(shape, 1 / shape, count)
    first_of = np.arange(count) % per == 0
    clip = np.where(first_of, 0.0, clip) if per > 1 else clip
    low = generator.beta(6, 4, count)
    seconds = log_uniform(generator, 2, 200)
    return {
        "loss": generator.normal(0, 0.02, count),
        "grad_norm": grad * warm,
        "lr": log_uniform(generator, 5e-7, 2e-5) * schedule(generator, count, constant=0.6),
        "kl": kl,
        "entropy": entropy * np.exp(some_ar(generator, count, generator.uniform(0.03, 0.15))),
        "len": lengths,
        "len_max": lengths
        * generator.uniform(1.6, 2.6)
        * np.exp(ar(generator, count, likeness=0.0, sd=generator.uniform(0.03, 0.15))),
        "len_min": lengths
        * np.minimum(
            1.0,
            generator.uniform(0.25, 0.5)
            * (1 + generator.uniform(0, 1) * done)
            * np.exp(ar(generator, count, likeness=0.0, sd=0.2)),
        ),
        "len_clipped": generator.binomial(rows, generator.uniform(0, 0.04), count) / rows,
        "clip": clip,
        "clip_low": clip * low,
        "clip_high": clip * (1 - low),
        "ppo_kl": np.where(first_of & (per > 1), 0.0, 1)
        * clip
        * 0.4
        * np.exp(ar(generator, count, likeness=0, sd=0.4)),
        "step_time": seconds * heavy(generator, count, generator.uniform(0.04, 0.2)) * lengths / length,
        "throughput": log_uniform(generator, 300, 8000) * heavy(generator, count, generator.uniform(0.03, 0.15)),
        "mm_mean": mismatch,
        "mm_max": mismatch * 25 * heavy(generator, count, 0.3),
        "mm_kl": mismatch**2 / 2 * 20 * heavy(generator, count, 0.2),
        "is_mean": 1 + generator.normal(0, 0.002, count),
        "is_min": np.clip(1 - 12 * mismatch * heavy(generator, count, 0.3), 0.01, 1),
        "is_max": 1 + 14 * mismatch * heavy(generator, count, 0.3),
        "mem": np.full(count, generator.uniform(15, 32)) * (1 - 0.08 * np.exp(-np.arange(count) / 8)),
    }


def evals_of(generator: Generator, learning: Learning, steps: IntArray, per: int) -> Evals:
    """Evaluate every so often, on so many prompts that a point is noisy."""
    every = int(generator.choice([20, 25, 50]))
    at = steps[(steps % every == 0)]
    of = np.minimum((at - steps[0]) // per, len(learning.done) - 1)
    asked = int(generator.choice([64, 128, 256, 500]))
    solved = np.clip(learning.solved[of] - generator.uniform(-0.02, 0.06), 0.005, 0.995)
    correct = generator.binomial(asked, solved) / asked
    return Evals(steps=at, values={"correct": correct, "reward": correct + learning.form[of]})


def grpo(seed: int, dialect: str, *, tools: bool) -> Made:
    """Make a run of GRPO."""
    algorithm = "grpo-tools" if tools else "grpo"
    generator = generator_of(algorithm, seed)
    count = int(log_uniform(generator, SHORTEST, LONGEST))
    per = int(generator.choice([1, 2, 2])) if dialect == "trl" else 1
    count -= count % per
    steps = np.arange(1, count + 1)
    learning = learning_of(generator, count // per)
    rows = shared(generator, learning, steps, per)
    sparse = {
        "reward": learning.reward,
        "reward_std": learning.spread,
        "zero_std": learning.alike,
        "r_correct": learning.correct,
        "r_format": learning.form,
    }
    rows |= {"score_max": np.full(count, 1 + FORMAT), "score_min": np.zeros(count)}  # of so many samples
    task = Task.drawn(generator)
    if tools:
        asked = learning.prompts * learning.group
        use = task.use(learning.done)
        mixed = 1 + generator.normal(0, 0.35 / np.sqrt(learning.prompts), len(use))  # prompts differ in what they need
        calls = generator.binomial(asked, use) / asked * task.calls * np.clip(mixed, 0.3, 2)
        sparse["tool_calls"] = calls
        sparse["tool_fail"] = generator.binomial(np.maximum(1, (calls * asked).astype(int)), task.fails) / np.maximum(
            1, (calls * asked).astype(int)
        )
    rows |= {name: spread_out(values, per) for name, values in sparse.items()}
    of_generation = ("len", "len_max", "len_min", "len_clipped")
    first = np.arange(count) % per == 0
    rows |= {name: np.where(first, rows[name], np.nan) for name in of_generation}
    rows["num_tokens"] = np.cumsum(np.nan_to_num(rows["len"])) * learning.prompts * learning.group
    evals = evals_of(generator, learning, steps, per)
    resumed = _restart(generator, count) if dialect != "trl" else None
    made = Made(
        algorithm=algorithm, dialect=dialect, seed=seed, steps=steps, train=rows, evals=evals, planned=count,
        restart=resumed,
    )  # fmt: skip
    if tools:
        made.samples.extend(samples_of(generator, task, learning.done, learning.solved, count, per))
    return made


def ppo(seed: int, dialect: str) -> Made:
    """Make a run of PPO: a critic that follows the returns, and learns to explain them."""
    generator = generator_of("ppo", seed)
    count = int(log_uniform(generator, SHORTEST, LONGEST))
    steps = np.arange(1, count + 1)
    learning = learning_of(generator, count)
    rows = shared(generator, learning, steps, 1)
    noise = generator.normal(0, 0.25 / np.sqrt(learning.prompts * 4), count)
    follows = 1 - np.exp(-np.arange(count) / generator.uniform(4, 15))
    values = learning.solved * follows + noise
    lag = generator.uniform(0.2, 0.7)  # returns lean on the values that they bootstrap from
    returns = (1 - lag) * learning.correct + lag * values - 0.01 * rows["kl"]
    best, first = generator.uniform(0.3, 0.8), generator.uniform(-0.05, 0.3)
    explained = first + (best - first) * (1 - np.exp(-4 * np.linspace(0, 1, count)))
    value_loss = log_uniform(generator, 0.005, 0.2) * (0.35 + 0.65 * np.exp(-5 * np.linspace(0, 1, count)))
    rows |= {
        "reward": learning.correct,
        "score_max": np.ones(count),
        "score_min": np.zeros(count),
        "adv_mean": generator.normal(0, 2e-8, count),
        "adv_max": generator.uniform(1.8, 3.5)
        * (1 + generator.uniform(0, 0.8) * learning.done)
        * heavy(generator, count, generator.uniform(0.2, 0.5)),
        "adv_min": -generator.uniform(2.0, 6.0) * heavy(generator, count, generator.uniform(0.2, 0.4)),
        "return_mean": returns,
        "value_mean": values,
        "vf_loss": value_loss * heavy(generator, count, generator.uniform(0.2, 0.6)),
        "ev": np.minimum(explained + some_ar(generator, count, generator.uniform(0.03, 0.25)), 0.98),
        "critic_grad": log_uniform(generator, 0.1, 3) * heavy(generator, count, 0.35),
        "turns": 2 + 0.2 * learning.done + generator.normal(0, 0.06, count),
    }
    evals = evals_of(generator, learning, steps, 1)
    return Made(
        algorithm="ppo", dialect=dialect, seed=seed, steps=steps, train=rows, evals=evals, planned=count,
        restart=_restart(generator, count),
    )  # fmt: skip


def spread_out(values: FloatArray, per: int) -> FloatArray:
    """Put one value a generation into its first row, and nothing into the others."""
    rows = np.full(len(values) * per, np.nan)
    rows[::per] = values
    return rows


def _restart(generator: Generator, count: int) -> tuple[int, int] | None:
    if generator.random() >= RESTARTS:
        return None
    killed = int(generator.uniform(0.3, 0.8) * count)
    return killed, killed - int(generator.integers(5, 25))
