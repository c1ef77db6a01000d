"""Faults of what surrounds the policy: samples lost or left out, engines that wake wrong, tools that say nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np

from benchmarks.loop.faults.environment import _pairs, _with
from benchmarks.loop.faults.fault import GROUPS, ONLINE, TOOLS, Fault, begin, later, noisy, stall
from benchmarks.loop.made import Made, Sample
from benchmarks.loop.noise import FloatArray, Generator
from benchmarks.loop.samples import said
from ptt.diagnostics.model import Link

BATCH: Final = 256  # samples a step
HUNG: Final = "waiting for 16 of 128 rollouts, retrying in 60 s"


def _lost(run: Made, generator: Generator, weight: FloatArray, share: float) -> FloatArray:
    """Give the share of lost samples, and take from the reward what they would have earned."""
    lost = np.clip(noisy(run, generator, 0.01, sd=0.3) + share * weight, 0, 1)
    for name in ("reward", "r_correct"):
        run.change(name, 1 - np.nan_to_num(lost))
    return lost


def errors(run: Made, generator: Generator, size: float) -> int:
    """Half of the samples end in an error of the sandbox, and count as 0."""
    onset = begin(run, generator)
    run.extra["has_error/all/mean"] = _lost(run, generator, run.late(onset), 0.5 * size)
    return onset


def outage(run: Made, generator: Generator, size: float) -> int:
    """Nine in ten samples fail for a tenth of the run, as a total that starts anew at a restart."""
    onset = begin(run, generator)
    place = run.place(onset)
    over = (np.arange(run.count) >= place + max(8, run.count // 10)).astype(np.float64)
    lost = np.nan_to_num(_lost(run, generator, run.late(onset) - over, 0.9 * size))
    totals = np.cumsum(np.round(BATCH * lost))
    anew = place // 2  # a restart, long before
    run.extra["rollout_errors/total"] = np.where(np.arange(run.count) >= anew, totals - totals[anew - 1], totals)
    run.extra["env/all/total_episodes"] = np.full(run.count, float(BATCH))
    run.extra["generate/batch_num_seq"] = np.full(run.count, float(BATCH))
    return onset


def survivors(run: Made, generator: Generator, size: float) -> int:
    """Failed and slow samples are left out of the mean: it rises, over all of them it stays."""
    onset = begin(run, generator)
    stall(run, int(run.steps[run.count // 20]))
    run.extra["train/agg/all/reward/mean"] = run.train["reward"].copy()
    run.change("reward", 1 + 0.5 * size * run.ramp(onset, 0.3))
    return onset


def _recurring(run: Made, generator: Generator) -> FloatArray:
    """Give 1 at one row in 15, every so often from a quarter of the run on."""
    every, first = 15, run.count // 4
    rows = np.zeros(run.count)
    rows[first + int(generator.integers(0, every)) :: every] = 1.0
    return rows


def dips(run: Made, generator: Generator, size: float) -> int:
    """At one row in 15 the engine holds wrong weights: nothing is solved, answers run to their limit."""
    rows = _recurring(run, generator)
    for name in ("reward", "r_correct"):
        run.change(name, 1 - size * rows)
    run.change("len", 1 + 3 * rows)
    return int(run.steps[int(np.flatnonzero(rows)[0])])


def spikes(run: Made, generator: Generator, size: float) -> int:
    """At one row in 15 engine and trainer disagree."""
    rows = _recurring(run, generator)
    for name, level in (("mm_mean", 0.4), ("mm_kl", 0.8)):
        run.change(name, plus=level * size * rows)
    return int(run.steps[int(np.flatnonzero(rows)[0])])


def dumb_tool(run: Made, generator: Generator, size: float) -> int:
    """The lookup answers with nothing, and nothing counts as failed."""
    onset = begin(run, generator)

    def empty(sample: Sample) -> Sample:
        pairs = _pairs(sample)
        return (
            sample
            if not pairs
            else _with(
                sample, [{**one, "content": ""} if one["role"] == "tool" else one for one in sample.messages], 0.0
            )
        )

    later(run, onset, generator, 0.9 * size, empty)
    return onset


def lost_calls(run: Made, generator: Generator, size: float) -> int:
    """Calls stand in the text and are never made."""
    onset = begin(run, generator)

    def written(sample: Sample) -> Sample:
        pairs = _pairs(sample)
        if not pairs:
            return sample
        function = pairs[0][0]["tool_calls"][0]["function"]
        call = {
            "name": function["name"],
            "arguments": {k: v for k, v in function["arguments"].items() if v is not None},
        }
        return _with(sample, [said(f"<tool_call>\n{json.dumps(call)}\n</tool_call>")], 0.0)

    later(run, onset, generator, 0.6 * size, written)
    return onset


def junk(run: Made, generator: Generator, size: float) -> int:
    """The engine says one character over and over."""
    onset = begin(run, generator)
    later(run, onset, generator, 0.95 * size, lambda sample: replace(sample, messages=(said("!" * 200),), correct=0.0))
    return onset


def hung(run: Made, generator: Generator, _: float) -> int:
    """The console goes on for hours behind the last step, long before the rate has decayed."""
    run.train["lr"] = np.full(run.count, 1e-6)
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    seconds = generator.uniform(50, 70, run.count)
    for step, took in zip(run.steps.tolist(), seconds.tolist(), strict=True):
        at += timedelta(seconds=took)
        run.lines.append(
            f"[{at:%Y-%m-%d %H:%M:%S}] step:{step} - perf/time_per_step:{took:.2f} - timing_s/gen:{took / 2:.2f}"
        )
    for _minute in range(240):
        at += timedelta(seconds=60)
        run.lines.append(f"[{at:%Y-%m-%d %H:%M:%S}] {HUNG}")
    return int(run.steps[-1])


def unread_source(run: Made, generator: Generator, size: float) -> int:
    """The scores of one of two sources do not become rewards."""
    run.extra["code/critic/score/mean"] = noisy(run, generator, 0.45 * size, sd=0.1)
    run.extra["code/critic/rewards/mean"] = np.where(np.isnan(run.extra["code/critic/score/mean"]), np.nan, 0.0)
    for name in ("score", "rewards"):
        run.extra[f"math/critic/{name}/mean"] = noisy(run, generator, 0.5, sd=0.1)
    return int(run.steps[0])


def _of(name: str, about: str, breaks: Any, link: Link, algorithms: tuple[str, ...], *ids: str, **more: Any) -> Fault:
    return Fault(name=name, about=about, ids=ids or (name,), link=link, algorithms=algorithms, breaks=breaks, **more)


PRIME: Final = {"dialects": ("prime",)}
FAULTS: Final = (
    _of("samples-lost", "half of the samples end in an error and count as 0", errors, Link.ENVIRONMENT, ("grpo",),
        **PRIME),
    _of("samples-lost for a while", "nine in ten fail for a tenth of the run; a total that starts anew", outage,
        Link.ENVIRONMENT, ("grpo",), "samples-lost", **PRIME),
    _of("survivors-only", "what fails is left out of the mean", survivors, Link.TRAINING_SIGNAL, ("grpo",), **PRIME),
    _of("reward-dips", "one step in 15 earns nothing", dips, Link.REWARD, ONLINE, "reward-dips", "length-excursions"),
    _of("mismatch-comes-and-goes", "engine and trainer disagree at one step in 15", spikes, Link.DATA_FRESHNESS,
        GROUPS),
    _of("useless-results", "a tool answers with nothing", dumb_tool, Link.ENVIRONMENT, TOOLS),
    _of("calls-not-made", "six in ten calls stay in the text", lost_calls, Link.ENVIRONMENT, TOOLS),
    _of("junk-samples", "one character over and over", junk, Link.DATA_FRESHNESS, TOOLS),
    _of("run-stalled", "the console waits for four hours behind the last step", hung, Link.SYSTEMS, ("ppo",)),
    _of("source-never-rewarded", "the scores of one of two sources never become rewards", unread_source, Link.REWARD,
        ("ppo", "grpo"), dialects=("verl", "prime"), of_start=True),
)  # fmt: skip
