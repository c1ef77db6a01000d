"""Healthy runs of every kind and length, made and judged: how many are accused of anything, and of what.

`python -m benchmarks.healthy_runs` makes 300 of them: SFT, DPO, GRPO, PPO with a critic and classic RL, of 10, 30, 100
and 1,000 logged rows, with learning that is fast, s-shaped, stepwise or late, solved tasks, plateaus at a good level,
warm-ups, schedules, noise that remembers and heavy tails. An alarm is a finding of medium severity or above. Each run
is written as its loggers would (trainer_state.json, JSON lines, CSV) and judged through the program.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from benchmarks.loop.noise import FloatArray, Generator, heavy, log_uniform, progress, schedule, some_ar
from ptt import api
from ptt.diagnostics.model import Severity

LENGTHS: Final = (10, 30, 100, 1000)
SEEDS: Final = {"tuning": 0, "held-out": 100_000, "tests": 200_000}
LN2: Final = math.log(2.0)
Rows = dict[str, FloatArray]


def _share(values: FloatArray) -> FloatArray:
    return np.clip(values, 0.0, 1.0)


def _optimiser(generator: Generator, count: int, rate: float) -> Rows:
    """Draw what every trainer logs of its optimiser."""
    settles = np.linspace(1.0, generator.uniform(0.4, 1.2), count)
    return {
        "grad_norm": log_uniform(generator, 0.1, 3) * settles * heavy(generator, count, generator.uniform(0.1, 0.5)),
        "learning_rate": rate * schedule(generator, count),
    }


def sft(generator: Generator, count: int) -> Rows:
    """Draw supervised fine-tuning: a loss that falls to a plateau, an evaluation loss that follows."""
    first, fall = generator.uniform(1.0, 3.0), generator.uniform(0.1, 0.6)
    rate = generator.uniform(3, 12)
    done = (1 - np.exp(-rate * np.linspace(0, 1, count))) / (1 - math.exp(-rate))
    level = first * (1 - fall * done)
    loss = level * np.exp(some_ar(generator, count, generator.uniform(0.01, 0.08)))
    every = max(1, count // int(generator.choice([3, 5, 8, 12])))
    overfits = 1 + generator.uniform(0, 0.015) * np.linspace(0, 1, count) ** 2  # a percent at the end is common
    held_out = level * generator.uniform(0.98, 1.15) * overfits * np.exp(generator.normal(0, 0.003, count))
    at = (np.arange(count) + 1) % every == 0
    accuracy = _share(1 - 0.28 * level / first + some_ar(generator, count, 0.01))
    return {
        "loss": loss,
        "mean_token_accuracy": accuracy,
        "eval_loss": np.where(at, held_out, np.nan),
        **_optimiser(generator, count, log_uniform(generator, 1e-6, 2e-4)),
    }


def dpo(generator: Generator, count: int) -> Rows:
    """Draw preference training: from chance to an accuracy that is rarely perfect."""
    done = 1 - np.exp(-generator.uniform(3, 9) * np.linspace(0, 1, count))
    pairs = int(generator.choice([16, 32, 64, 256]))
    share = 0.5 + (generator.uniform(0.62, 0.95) - 0.5) * done
    margin = generator.uniform(0.3, 4.0) * done * np.exp(some_ar(generator, count, 0.1))
    chosen = -generator.uniform(60, 300) * (1 + generator.uniform(-0.02, 0.08) * done)
    loss = LN2 - (LN2 - generator.uniform(0.3, 0.6)) * done + some_ar(generator, count, 0.02)
    accuracies = generator.binomial(pairs, share) / pairs
    margins = margin + generator.normal(0, 0.02, count)
    reward = 0.2 * margin + generator.normal(0, 0.02, count)
    return {
        "loss": np.maximum(loss, np.log1p(np.exp(-margins))),  # the mean of a convex function of the margin
        "rewards/accuracies": accuracies,
        "rewards/margins": margins,
        "rewards/chosen": reward,
        "rewards/rejected": reward - margins,
        "logps/chosen": chosen + some_ar(generator, count, 2.0),
        "logps/rejected": chosen * 1.05 - 10 * margin + some_ar(generator, count, 2.0),
        **_optimiser(generator, count, log_uniform(generator, 1e-7, 5e-6)),
    }


def _solved(generator: Generator, count: int) -> FloatArray:
    """Draw how often the policy is right: it learns to a good level, reaches the top, or is near it from the start."""
    form = generator.random()
    if form < 0.15:  # nearly solved from the start
        first, last = generator.uniform(0.85, 0.93), generator.uniform(0.95, 0.99)
    elif form < 0.4:  # solved by the end
        first, last = generator.uniform(0.1, 0.5), generator.uniform(0.95, 0.995)
    else:
        first = generator.uniform(0.05, 0.5)
        last = first + generator.uniform(0.15, 0.45)
    done = progress(generator, count)
    if generator.random() < 0.25:  # all is learnt in the first part, and a plateau follows
        done = np.minimum(1.0, np.linspace(0, generator.uniform(2, 4), count))
    return np.clip(first + (last - first) * done, 0.005, 0.995)


def grpo(generator: Generator, count: int) -> Rows:
    """Draw GRPO: reward, its spread and the groups without signal from one draw of answers."""
    solved = _solved(generator, count)
    prompts, group = int(generator.choice([8, 16, 64])), int(generator.choice([4, 8, 16]))
    likeness = generator.uniform(1.5, 5.0)
    chance = generator.beta((solved * likeness)[:, None], ((1 - solved) * likeness)[:, None], size=(count, prompts))
    hits = generator.binomial(group, chance) / group
    within = np.sqrt(hits * (1 - hits) * group / (group - 1))
    formed = _share(1 - generator.uniform(0.02, 0.2) * np.exp(-np.arange(count) / (0.1 * count + 1)))
    done = (solved - solved[0]) / max(1e-9, float(np.ptp(solved)))
    length = log_uniform(generator, 80, 1500) * (1 + generator.uniform(-0.2, 0.25) * done)
    kl = log_uniform(generator, 0.005, 0.1) * (0.05 + np.linspace(0, 1, count) ** generator.uniform(0.6, 1.2))
    entropy = log_uniform(generator, 0.15, 1.2) * (1 - generator.uniform(0.1, 0.7) * done)
    return {
        "reward": hits.mean(axis=1) + 0.1 * formed,
        "reward_std": within.mean(axis=1),
        "frac_reward_zero_std": ((hits == 0) | (hits == 1)).mean(axis=1),
        "rewards/correct/mean": hits.mean(axis=1),
        "rewards/format/mean": 0.1 * formed,
        "completions/mean_length": length * np.exp(some_ar(generator, count, generator.uniform(0.02, 0.1))),
        "completions/clipped_ratio": generator.binomial(prompts * group, 0.02, count) / (prompts * group),
        "kl": kl * np.exp(some_ar(generator, count, generator.uniform(0.1, 0.5))),
        "entropy": entropy * np.exp(some_ar(generator, count, generator.uniform(0.02, 0.12))),
        "loss": generator.normal(0, 0.02, count),
        **_optimiser(generator, count, log_uniform(generator, 5e-7, 1e-5)),
    }


def ppo(generator: Generator, count: int) -> Rows:
    """Draw PPO with a critic and a reward model, whose score has no top."""
    done = progress(generator, count)
    level, gain = generator.uniform(-3, 3), generator.uniform(0.5, 4)
    noise = generator.uniform(0.03, 0.25) * gain
    fitted = 1 - np.exp(-generator.uniform(2, 6) * np.linspace(0, 1, count))
    return {
        "reward_mean": level + gain * done + some_ar(generator, count, noise),
        "reward_std": generator.uniform(0.5, 2) * np.exp(some_ar(generator, count, 0.05)),
        "policy_entropy": log_uniform(generator, 0.3, 3) * (1 - generator.uniform(0.1, 0.6) * done)
        * np.exp(some_ar(generator, count, 0.05)),
        "approx_kl": log_uniform(generator, 0.001, 0.02) * heavy(generator, count, 0.3),
        "clip_fraction": _share(generator.uniform(0.02, 0.15) * heavy(generator, count, 0.2)),
        "value_loss": generator.uniform(0.2, 2) * (1 - 0.7 * fitted) * heavy(generator, count, 0.15),
        "explained_variance": np.minimum(0.98, generator.uniform(0.4, 0.9) * fitted + some_ar(generator, count, 0.04)),
        "policy_loss": generator.normal(0, 0.01, count),
        "response_length": log_uniform(generator, 80, 600) * np.exp(some_ar(generator, count, 0.04)),
        **_optimiser(generator, count, log_uniform(generator, 5e-7, 1e-5)),
    }  # fmt: skip


def classic(generator: Generator, count: int) -> Rows:
    """Draw classic RL: returns of any scale and sign, episodes that grow or shrink with them."""
    scale = log_uniform(generator, 1, 1000)
    first = generator.uniform(-2, 1) * scale
    done = progress(generator, count)
    returns = first + generator.uniform(1.5, 4) * scale * done
    noise = generator.uniform(0.05, 0.35) * scale
    return {
        "rollout/ep_rew_mean": returns + some_ar(generator, count, noise),
        "rollout/ep_len_mean": log_uniform(generator, 30, 900) * (1 + generator.uniform(-0.6, 0.8) * done)
        * np.exp(some_ar(generator, count, 0.05)),
        "train/entropy_loss": -generator.uniform(0.5, 1.5) * (1 - generator.uniform(0.1, 0.7) * done)
        + generator.normal(0, 0.02, count),
        "train/approx_kl": log_uniform(generator, 0.002, 0.015) * heavy(generator, count, 0.3),
        "train/clip_fraction": _share(generator.uniform(0.03, 0.2) * heavy(generator, count, 0.2)),
        "train/value_loss": scale * generator.uniform(0.5, 3) * heavy(generator, count, 0.3),
        "train/explained_variance": np.minimum(0.99, generator.uniform(0.5, 0.95)
        * (1 - np.exp(-5 * np.linspace(0, 1, count))) + some_ar(generator, count, 0.05)),
        "train/policy_gradient_loss": generator.normal(-0.01, 0.005, count),
        "train/learning_rate": np.full(count, 3e-4),
    }  # fmt: skip


KINDS: Final[Mapping[str, Callable[[Generator, int], Rows]]] = {
    "sft": sft, "dpo": dpo, "grpo": grpo, "ppo": ppo, "classic": classic,
}  # fmt: skip
STATES: Final = ("sft", "dpo", "grpo")  # kinds that Hugging Face's trainer writes


@dataclass(frozen=True, kw_only=True)
class Task:
    """A run to make."""

    kind: str
    rows: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What was said of one run."""

    task: Task
    alarms: tuple[tuple[str, str, str], ...]  # severity, id and claim of findings of medium or above
    notes: tuple[str, ...]  # ids of those below
    headline: str


def write(task: Task, folder: Path) -> Path:
    """Make the run of a task and write it as one of its loggers would."""
    generator = np.random.default_rng([list(KINDS).index(task.kind), task.rows, task.seed])
    columns = KINDS[task.kind](generator, task.rows)
    spacing = int(generator.choice([1, 5, 10]))
    rows = [
        {name: float(values[place]) for name, values in columns.items() if not math.isnan(values[place])}
        for place in range(task.rows)
    ]
    steps = [spacing * (place + 1) for place in range(task.rows)]
    if task.kind in STATES and task.seed % 2:
        history = [{**row, "step": step, "epoch": step / steps[-1]} for step, row in zip(steps, rows, strict=True)]
        state = {"log_history": history, "global_step": steps[-1], "max_steps": steps[-1], "logging_steps": spacing}
        (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    elif task.seed % 3:
        lines = [json.dumps({"step": step, **row}) for step, row in zip(steps, rows, strict=True)]
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        with (folder / "progress.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["step", *columns], restval="")
            writer.writeheader()
            writer.writerows({"step": step, **row} for step, row in zip(steps, rows, strict=True))
    return folder


def judge(task: Task) -> Judged:
    """Make a run, judge it, and keep what it is accused of."""
    with TemporaryDirectory() as folder:
        diagnosis = api.diagnose(write(task, Path(folder)))
    alarms = [one for one in diagnosis.findings if one.severity.at_least(Severity.MEDIUM)]
    return Judged(
        task=task,
        alarms=tuple((one.severity.value, one.id, one.claim) for one in alarms),
        notes=tuple(one.id for one in diagnosis.findings if one not in alarms),
        headline=diagnosis.verdict.headline,
    )


def tasks_of(count: int, first: int) -> list[Task]:
    """Return so many tasks, spread over kinds and lengths."""
    kinds = [(kind, rows) for rows in LENGTHS for kind in KINDS]
    return [
        Task(kind=kinds[place % len(kinds)][0], rows=kinds[place % len(kinds)][1], seed=first + place // len(kinds))
        for place in range(count)
    ]


def table(found: Sequence[Judged]) -> str:
    """Return the alarms by kind and length, each alarm, and how often each note was given."""
    lines = ["| kind | " + " | ".join(f"{rows:,} rows" for rows in LENGTHS) + " |", "|---|" + "---:|" * len(LENGTHS)]
    for kind in KINDS:
        cells = []
        for rows in LENGTHS:
            some = [one for one in found if (one.task.kind, one.task.rows) == (kind, rows)]
            cells.append(f"{sum(bool(one.alarms) for one in some)} of {len(some)}")
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    accused = [one for one in found if one.alarms]
    lines += ["", f"Accused: {len(accused)} of {len(found)}.", ""]
    lines += [f"- {one.task}: {severity} {rule}: {claim}" for one in accused for severity, rule, claim in one.alarms]
    notes = Counter(note for one in found for note in set(one.notes))
    lines += ["", "Notes: " + ", ".join(f"{name} {count}" for name, count in notes.most_common())]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Make, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--seed-block", choices=sorted(SEEDS), default="tuning")
    parser.add_argument("--workers", type=int, default=2)
    chosen = parser.parse_args(arguments)
    tasks = tasks_of(chosen.runs, SEEDS[chosen.seed_block])
    with ProcessPoolExecutor(chosen.workers, mp_context=get_context("spawn")) as pool:
        print(table(list(pool.map(judge, tasks, chunksize=4))))


if __name__ == "__main__":
    main(sys.argv[1:])
