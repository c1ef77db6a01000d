"""Faults planted in made runs at four precisions: each must be named, and nothing said of the runs without any.

python -m benchmarks.data_faults --runs 50        # healthy runs at each precision, and every fault in each of them
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

import ptt

Values = npt.NDArray[np.float64]

SEED: Final = 20_261_122
STEPS: Final = 48
PER_STEP: Final = 24
OBSERVATION: Final = 6  # tokens
NEAR_SHARE: Final = 0.55  # of tokens: as good as certain, as in a trained model
PRECISIONS: Final = ("float32", "bfloat16", "float16", "four decimals")


@dataclass(frozen=True)
class Tokens:
    """A made run: one entry per token, its sequence and step, the mask, and four columns of logprobs."""

    row: npt.NDArray[np.int64]
    step: npt.NDArray[np.int64]  # of each sequence
    mask: npt.NDArray[np.bool_]
    logps: dict[str, Values]
    temperature: Values | None = None  # of each sequence, where it is recorded


Harm = Callable[[Tokens, np.random.Generator], Tokens]


def make(seed: int) -> Tokens:
    """Make a healthy run that calls tools, learns slowly, and repeats some contexts from sequence to sequence."""
    generator = np.random.default_rng([SEED, seed])
    rows = STEPS * PER_STEP
    step = np.repeat(np.arange(STEPS), PER_STEP)
    length = generator.integers(20, 60, rows)
    row = np.repeat(np.arange(rows), length)
    place = np.arange(len(row)) - np.repeat(np.cumsum(length) - length, length)
    gap = np.repeat(generator.integers(6, 12, rows), length)
    called = np.repeat(generator.random(rows) < generator.uniform(0.4, 0.9), length)
    mask = ~(called & (place >= gap) & (place < gap + OBSERVATION))
    sure = generator.random(len(row)) < NEAR_SHARE
    size = np.where(sure, np.exp(generator.normal(-9.0, 4.0, len(row))), generator.exponential(0.9, len(row)))
    context = generator.integers(0, 4, rows)  # prompts that come again: their first tokens have the same reference
    openings = generator.exponential(0.8, (4, 3))
    first = place < 3
    size[first] = openings[context[row[first]], place[first]]
    moved = generator.uniform(0.02, 0.25) * np.sqrt((step[row] + 0.0) / STEPS)
    drift = moved * generator.standard_t(5, len(row)) * np.minimum(1.0, 2 * size)
    ref = -np.minimum(size, 18.0)
    policy = np.minimum(ref + np.where(first, moved * np.sin(7 * context[row] + place), drift), ref * 1e-3)
    old = np.minimum(policy + 0.02 * generator.normal(size=len(row)) * np.minimum(1.0, size), policy * 1e-3)
    old = np.where(step[row] % 2 == 0, policy, old)  # the first of two updates on a batch starts at the old policy
    rollout = np.minimum(old + 0.004 * generator.normal(size=len(row)) * np.minimum(1.0, size), old * 1e-3)
    sure_of_it = generator.random(len(row)) < generator.uniform(0.0, 0.01)  # of what the reference finds unlikely
    ref = np.where(sure_of_it & ~first, -generator.uniform(3.0, 9.0, len(row)), ref)
    late = -np.exp(generator.normal(-12.0, 5.0, len(row)))
    for column in (policy, old, rollout):
        column[sure_of_it & ~first] = np.minimum(late, 0.0)[sure_of_it & ~first]
    return Tokens(row, step + 1, mask, {"policy": policy, "old": old, "rollout": rollout, "ref": ref})


def rounded(values: Values, precision: str) -> npt.NDArray[np.float32]:
    """Return what a writer of that precision leaves of the values."""
    single = values.astype(np.float32)
    if precision == "bfloat16":
        bits = single.view(np.uint32)
        kept = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return np.where(np.isfinite(single), kept.astype(np.uint32).view(np.float32), single)
    if precision == "float16":
        return single.astype(np.float16).astype(np.float32)
    return np.round(values, 4).astype(np.float32) if precision == "four decimals" else single


def on(column: str, change: Callable[[Values, Tokens, np.random.Generator], Values]) -> Harm:
    """Return a harm that changes one column."""

    def harm(run: Tokens, generator: np.random.Generator) -> Tokens:
        changed = change(run.logps[column].copy(), run, generator)
        return Tokens(run.row, run.step, run.mask, run.logps | {column: changed}, run.temperature)

    return harm


def some(value: float, share: float) -> Callable[[Values, Tokens, np.random.Generator], Values]:
    """Return a change that writes one value on a share of the tokens."""
    return lambda values, _, generator: np.where(generator.random(len(values)) < share, value, values)


def _rows(value: float) -> Callable[[Values, Tokens, np.random.Generator], Values]:
    def change(values: Values, run: Tokens, generator: np.random.Generator) -> Values:
        return np.where((generator.random(len(run.step)) < 0.05)[run.row], value, values)

    return change


def _last(values: Values, run: Tokens, _: np.random.Generator) -> Values:
    return np.where(np.append(run.row[1:] != run.row[:-1], True), -1.0, values)


def _shifted(values: Values, run: Tokens, _: np.random.Generator) -> Values:
    return np.where(np.append(True, run.row[1:] != run.row[:-1]), np.nan, np.roll(values, 1))


def _unmasked(run: Tokens, generator: np.random.Generator) -> Tokens:
    mask = np.ones_like(run.mask)
    logps = {name: np.where(run.mask, one, -generator.exponential(3.0, len(one))) for name, one in run.logps.items()}
    return Tokens(run.row, run.step, mask, logps)


def _mixed(values: Values, run: Tokens, generator: np.random.Generator) -> Values:
    return np.where((generator.random(len(run.step)) < 0.3)[run.row], values / 0.7, values)


def late(harm: Harm) -> Harm:
    """Return a harm that begins at the middle step."""

    def from_half(run: Tokens, generator: np.random.Generator) -> Tokens:
        harmed, since = harm(run, generator), (run.step > STEPS // 2)[run.row]
        logps = {name: np.where(since, harmed.logps[name], values) for name, values in run.logps.items()}
        return Tokens(run.row, run.step, run.mask, logps, run.temperature)

    return from_half


def _after_tools(run: Tokens, generator: np.random.Generator) -> Tokens:
    """Shift the reference after the first observation alone."""
    seen = np.cumsum(~run.mask)
    post = seen > seen[np.flatnonzero(np.diff(run.row, prepend=-1))][run.row]
    ref = np.where(post, _shifted(run.logps["ref"], run, generator), run.logps["ref"])
    return Tokens(run.row, run.step, run.mask, run.logps | {"ref": ref}, run.temperature)


def _of_other_rows(values: Values, run: Tokens, _: np.random.Generator) -> Values:
    """Give each sequence the values of the one before it, as far as they reach."""
    start = np.flatnonzero(np.diff(run.row, prepend=-1))
    place, length = np.arange(len(values)) - start[run.row], np.bincount(run.row)
    before = np.maximum(run.row - 1, 0)
    return values[start[before] + place % length[before]]


def copied(column: str, of: str) -> Harm:
    """Return a harm that writes one column in place of another."""
    return on(column, lambda _, run, __: run.logps[of].copy())


FAULTS: Final[dict[str, tuple[Harm, str]]] = {
    "0 on 2% of the reference's tokens": (on("ref", some(0.0, 0.02)), "placeholder-logprobs"),
    "0 on 2% of the policy's tokens": (on("policy", some(0.0, 0.02)), "placeholder-logprobs"),
    "0 on 2% of the engine's tokens": (on("rollout", some(0.0, 0.02)), "placeholder-logprobs"),
    "-1 on 2% of the reference's tokens": (on("ref", some(-1.0, 0.02)), "placeholder-logprobs"),
    "-1 on 3% of the policy's tokens": (on("policy", some(-1.0, 0.03)), "placeholder-logprobs"),
    "-1 on the last token of the reference": (on("ref", _last), "placeholder-logprobs"),
    "-100 on 1% of the engine's tokens": (on("rollout", some(-100.0, 0.01)), "placeholder-logprobs"),
    "-9999 on 1% of the policy's tokens": (on("policy", some(-9999.0, 0.01)), "placeholder-logprobs"),
    "1 on 1% of the old tokens": (on("old", some(1.0, 0.01)), "placeholder-logprobs"),
    "log(1/V) on 4% of the engine's tokens": (on("rollout", some(-11.93, 0.04)), "placeholder-logprobs"),
    "rows of zeros in the reference": (on("ref", _rows(0.0)), "filled-rows"),
    "rows of -0.7 in the policy": (on("policy", _rows(-0.7)), "filled-rows"),
    "NaN on 1% of the policy's tokens": (on("policy", some(np.nan, 0.01)), "missing-logprobs"),
    "the policy as its own reference": (copied("ref", "policy"), "copied-logprobs"),
    "the old logprobs as the engine's": (copied("rollout", "old"), "copied-logprobs"),
    "the reference shifted by a token": (on("ref", _shifted), "shifted-logprobs"),
    "the engine shifted by a token": (on("rollout", _shifted), "shifted-logprobs"),
    "the reference's sign turned": (on("ref", lambda values, *_: -values), "placeholder-logprobs"),
    "the policy's probabilities": (on("policy", lambda values, *_: np.exp(values)), "placeholder-logprobs"),
    "the engine to base 2": (on("rollout", lambda values, *_: values / np.log(2)), "scaled-logprobs"),
    "the reference to base 2": (on("ref", lambda values, *_: values / np.log(2)), "scaled-logprobs"),
    "the policy to base 2": (on("policy", lambda values, *_: values / np.log(2)), "scaled-logprobs"),
    "the engine at temperature 0.7": (on("rollout", lambda values, *_: values / 0.7), "scaled-logprobs"),
    "the engine at two temperatures": (on("rollout", _mixed), "mixed-temperatures"),
    "the engine cut to its likeliest tokens": (
        on("rollout", lambda values, *_: np.minimum(values + 0.03, 0.0)), "truncated-support",
    ),
    "tool output in the mask": (_unmasked, "unmasked-tools"),
    "the reference shifted by a token, late": (late(on("ref", _shifted)), "shifted-logprobs"),
    "the reference shifted after tools, late": (late(_after_tools), "shifted-logprobs"),
    "the policy as its own reference, late": (late(copied("ref", "policy")), "copied-logprobs"),
    "the reference as the old logprobs": (copied("old", "ref"), "copied-logprobs"),
    "1.5 times the reference, late": (late(on("ref", lambda values, *_: 1.5 * values)), "scaled-logprobs"),
    "the engine at temperature 0.7, late": (late(on("rollout", lambda values, *_: values / 0.7)), "scaled-logprobs"),
    "the reference's rows exchanged, late": (late(on("ref", _of_other_rows)), "unrelated-logprobs"),
    "-7.25 on 6% of the reference's tokens, late": (late(on("ref", some(-7.25, 0.06))), "placeholder-logprobs"),
    "-20 on 5% of the policy's tokens, late": (late(on("policy", some(-20.0, 0.05))), "placeholder-logprobs"),
}  # fmt: skip


def write(run: Tokens, precision: str, folder: Path) -> Path:
    """Write the run as a recorder and a trainer would; the mask and the log are of any precision."""
    (folder / "tokens").mkdir(parents=True)
    length = np.bincount(run.row)
    offsets = np.concatenate([[0], np.cumsum(length)])
    lists = {f"{name}_logp": rounded(values, precision) for name, values in run.logps.items()}
    lists["model_mask"] = run.mask  # type: ignore[assignment]
    columns = {
        name: [values[start:stop] for start, stop in pairwise(offsets.tolist())] for name, values in lists.items()
    }
    frame = pl.DataFrame({"step": run.step, "sample_id": [f"sample {row}" for row in range(len(run.step))]} | columns)
    frame = frame.with_columns(pl.col(name).cast(pl.List(pl.Float32)) for name in lists if name != "model_mask")
    frame.write_parquet(folder / "tokens" / "all.parquet")
    noise = np.random.default_rng(SEED).normal(size=(STEPS, 3))
    log = [
        {
            "step": step + 1, "kl": 0.02 * (step / STEPS) * np.exp(0.2 * one[0]), "tools/call_frequency": 0.6,
            "grad_norm": float(np.exp(0.2 * one[1])), "reward": 0.5 + 0.05 * one[2], "learning_rate": 1e-5,
        }
        for step, one in enumerate(noise)
    ]  # fmt: skip
    state = {"global_step": STEPS, "max_steps": STEPS, "log_history": log}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder


def said(run: Tokens, precision: str, folder: Path) -> set[str]:
    """Return which findings on data validity a run gets, rounding aside."""
    found = ptt.diagnose(write(run, precision, folder))
    return {one.id for one in found.findings if one.link == "data_validity"} - {"rounded-logprobs"}


def harmed(fault: str, seed: int) -> Tokens:
    """Make a run with one fault in it."""
    return FAULTS[fault][0](make(seed), np.random.default_rng([SEED, seed, list(FAULTS).index(fault)]))


def main() -> None:
    """Judge made runs without a fault and with each, and print what was said."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="healthy runs at each precision")
    parser.add_argument("--harmed", type=int, default=1, help="runs of each fault at each precision")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.runs)
    for precision in PRECISIONS:
        false = {}
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                found = said(make(seed), precision, Path(folder) / "run")
            if found:
                false[seed] = sorted(found)
        print(f"{precision}: {len(false)} of {options.runs} healthy runs with a false fault {false or ''}")
    for fault, (_, name) in FAULTS.items():
        for precision in PRECISIONS:
            for seed in range(options.first, options.first + options.harmed):
                with tempfile.TemporaryDirectory() as folder:
                    found = said(harmed(fault, seed), precision, Path(folder) / "run")
                if name not in found:
                    print(f"missed: {fault}, {precision}, seed {seed}: {sorted(found)}")


if __name__ == "__main__":
    main()
