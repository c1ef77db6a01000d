"""Makes a drawn run's sequences and metrics, and writes them as a trainer's recorder would."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.signal import lfilter

from benchmarks.span.run import BoolArray, Drawn, FloatArray, IntArray

Generator = np.random.Generator

OBSERVATION: Final = 6  # tokens of a tool's answer: their number is of no consequence here
SURE: Final = (-9.0, -3.0)  # log10 of -logp of tokens of probability almost one
MANTISSA: Final = {"bfloat16": 8, "float16": 11}  # significant bits


def make(drawn: Drawn) -> pa.Table:
    """Make the sequences of a run, the same every time."""
    generator = np.random.default_rng([drawn.seed, 15])
    place = np.repeat(np.arange(len(drawn.layout.steps)), drawn.layout.per_step)
    rows = len(place)
    values = {one.name: _chosen(generator, one.shares[:, place]) for one in drawn.attributes}
    if (ranks := drawn.attribute("rank")) is not None:  # every rank has its part of every step
        first = np.cumsum(drawn.layout.per_step) - drawn.layout.per_step
        values["rank"] = (np.arange(len(place)) - first[place]) % len(ranks.values)
    parts, tool = _parts(generator, drawn, place)
    mask = np.repeat(np.tile(np.arange(parts.shape[1]) % 2 == 0, rows), parts.ravel())
    r = _log_ratios(generator, drawn, place, parts, values, tool, mask)
    source, lengths = _sources(generator, drawn, values), parts.sum(axis=1)
    mask, r = _repeated(source, lengths, mask, r)
    offsets = np.concatenate([[0], np.cumsum(lengths[source])])
    columns = _logps(generator, drawn, r)
    table = {
        "step": pa.array(drawn.layout.steps[place], pa.int64()),
        "sample_id": [f"s{row}" for row in range(rows)],
        "group_id": [f"g{row // drawn.layout.group}" for row in range(rows)],
        "model_mask": pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(mask)),
        **{
            name: pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(column.astype(np.float32)))
            for name, column in columns.items()
        },
    }
    return pa.table(table | _attributes(drawn, values, tool, source, drawn.layout.steps[place]))


def _chosen(generator: Generator, shares: FloatArray) -> IntArray:
    """Choose a value for each column of shares."""
    return np.asarray((generator.random(shares.shape[1]) > np.cumsum(shares, axis=0)[:-1]).sum(axis=0))


def _parts(generator: Generator, drawn: Drawn, place: IntArray) -> tuple[IntArray, IntArray]:
    """Give the token counts of text, answer, text, answer, ... by sequence, and the tool of each answer (-1: none)."""
    rows, most = len(place), drawn.observations
    length = np.maximum(4, np.rint(drawn.layout.length[place] * generator.uniform(0.5, 1.5, rows))).astype(np.int64)
    chance = generator.random(rows)
    if drawn.by_group:
        chance = chance[np.arange(rows) // drawn.layout.group * drawn.layout.group]
    used = chance < drawn.tools[place]
    after = np.where(used, np.clip(np.rint(length * drawn.after), 1, length - 1), 0).astype(np.int64)
    count = np.where(used, np.minimum(generator.integers(1, most + 1, rows), after), 0)
    parts = np.zeros((rows, 1 + 2 * most), np.int64)
    parts[:, 0] = length - after
    tool = np.full((rows, most), -1)
    shares = next(one.shares for one in drawn.attributes if one.name == "tool")[:, place]
    for turn in range(most):
        there = turn < count
        parts[:, 1 + 2 * turn] = np.where(there, OBSERVATION, 0)
        parts[:, 2 + 2 * turn] = np.where(
            there, after // np.maximum(count, 1) + (turn < after % np.maximum(count, 1)), 0
        )
        tool[:, turn] = np.where(there, _chosen(generator, shares), -1)
    return parts, tool


def _log_ratios(
    generator: Generator,
    drawn: Drawn,
    place: IntArray,
    parts: IntArray,
    values: dict[str, IntArray],
    tool: IntArray,
    mask: BoolArray,
) -> FloatArray:
    """Give r of every token: scales of step, group, sequence and part, and heavy tails on top."""
    noise, counts = drawn.noise, parts.ravel()
    log_scale, rare = _log_scales(generator, drawn, place, parts.shape, values, tool)
    scale = np.exp(np.repeat(log_scale.ravel(), counts))
    extreme = generator.random(len(mask)) < np.repeat(rare.ravel(), counts)
    bell = lfilter([math.sqrt(1 - noise.token_ar**2)], [1.0, -noise.token_ar], generator.normal(size=len(mask)))
    r = scale * bell / np.sqrt(generator.chisquare(noise.freedom, len(mask)) / noise.freedom)
    r = np.where(extreme, drawn.post.size * r, r)
    return np.zeros(len(mask)) if drawn.blindness == "degenerate" else np.asarray(r)


def _log_scales(
    generator: Generator,
    drawn: Drawn,
    place: IntArray,
    shape: tuple[int, ...],
    values: dict[str, IntArray],
    tool: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Give the log scale of |r| by sequence and part, and the chance of a token there to be extreme."""
    noise, rows, growth = drawn.noise, len(place), drawn.post
    own = noise.sequence_sd * generator.normal(size=rows)
    groups = np.arange(rows) // drawn.layout.group
    own += noise.group_sd * generator.normal(size=int(groups[-1]) + 1)[groups]
    both, first, second = (_step_noise(generator, drawn) for _ in range(3))
    level = np.log(drawn.level / float(np.quantile(drawn.unit, 0.99)))
    log_scale, rare = np.zeros(shape), np.zeros(shape)
    mixed = math.sqrt(noise.shared) * both + math.sqrt(1 - noise.shared) * first
    moved = drawn.text.curve(drawn.layout.u) * math.log(drawn.text.size)
    log_scale[:, 0] = own + (level + math.log(drawn.text_p99) + noise.step_sd * mixed + moved)[place]
    mixed = math.sqrt(noise.shared) * both + math.sqrt(1 - noise.shared) * second
    post = own + (level + math.log(drawn.p99) + noise.step_sd * mixed)[place]
    static = np.log(next(one.scales for one in drawn.attributes if one.name == "tool"))
    done = growth.curve(drawn.layout.u)[place]
    moving = done if growth.form == "scale" else generator.random(rows) < growth.share * done
    for turn in range(tool.shape[1]):
        held, part = _held(drawn, values, tool[:, turn], turn), 2 + 2 * turn
        log_scale[:, part] = post + static[np.maximum(tool[:, turn], 0)]
        if growth.form == "rare":
            rare[:, part] = held * growth.share * done
        else:
            log_scale[:, part] += held * moving * math.log(growth.size)
    return log_scale, rare


def _held(drawn: Drawn, values: dict[str, IntArray], tool: IntArray, turn: int) -> BoolArray:
    """Mark the sequences whose tokens after this answer may move."""
    growth = drawn.post
    if not growth.attribute:
        return np.ones(len(tool), np.bool_)
    attribute = drawn.attribute(growth.attribute)
    assert attribute is not None
    wanted = attribute.values.index(growth.value)
    if growth.attribute == "tool":
        return np.asarray(tool == wanted)
    if growth.attribute == "tool result":
        return np.asarray(_failed(values, turn))
    return np.asarray(values[growth.attribute] == wanted)


def _failed(values: dict[str, IntArray], turn: int) -> BoolArray:
    """Mark the sequences whose call at this turn failed: drawn once, then passed on from turn to turn."""
    failed = values["tool result"] == 1
    return np.asarray(np.roll(failed, turn))


def _step_noise(generator: Generator, drawn: Drawn) -> FloatArray:
    """Give AR(1) noise of variance 1 at the recorded steps of a run that took all the steps between."""
    steps = drawn.layout.steps - drawn.layout.steps[0]
    rho = drawn.noise.rho
    pushes = generator.normal(size=int(steps[-1]) + 60) * math.sqrt(1 - rho**2)
    path = lfilter([1.0], [1.0, -rho], pushes)[59:]
    return np.asarray(path[steps])


def _sources(generator: Generator, drawn: Drawn, values: dict[str, IntArray]) -> IntArray:
    """Choose which sequence each one repeats: some the first of their group, as a sure policy does, the rest itself."""
    rows = np.arange(int(drawn.layout.per_step.sum()))
    if not drawn.layout.duplicates or drawn.layout.group == 1:
        return rows
    heads = rows - rows % drawn.layout.group
    again = generator.random(len(rows)) < drawn.layout.duplicates
    if "rank" in values:  # every rank has its own tokens
        again &= values["rank"] == values["rank"][heads]
    return np.where(again, heads, rows)


def _repeated(source: IntArray, lengths: IntArray, mask: BoolArray, r: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Give the tokens of these sequences, token for token."""
    starts = np.cumsum(lengths) - lengths
    taken = lengths[source]
    within = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    index = np.repeat(starts[source], taken) + within
    return mask[index], r[index]


def _logps(generator: Generator, drawn: Drawn, r: FloatArray) -> dict[str, FloatArray]:
    """Give both logprobs of each token, neither above 0, as the run's precision keeps them."""
    higher = -generator.exponential(0.5, len(r))
    sure = generator.random(len(r)) < drawn.noise.sure
    higher = np.where(sure, -(10.0 ** generator.uniform(*SURE, len(r))), higher)
    columns = {"policy_logp": higher + np.minimum(r, 0.0), "ref_logp": higher - np.maximum(r, 0.0)}
    if drawn.layout.confirmed:
        kernel = 1 + 1e-3 * generator.normal(size=len(r))
        columns["rollout_logp"] = np.minimum(columns["policy_logp"] * kernel, 0.0)
    return {name: rounded(values, drawn.layout.precision) for name, values in columns.items()}


def rounded(values: FloatArray, precision: str) -> FloatArray:
    """Round as a dump of this precision does."""
    if precision == "4 decimals":
        return np.round(values, 4)
    if precision == "float32":
        return values.astype(np.float32).astype(np.float64)
    if precision == "float16":
        return values.astype(np.float16).astype(np.float64)
    mantissa, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(mantissa * 2 ** MANTISSA[precision]) / 2 ** MANTISSA[precision], exponent))


def _attributes(
    drawn: Drawn, values: dict[str, IntArray], tool: IntArray, source: IntArray, steps: IntArray
) -> dict[str, Sequence[object] | pa.Array]:
    """Give the columns beside the tokens: what is true of the sequence whose tokens these are."""
    named: dict[str, Sequence[object] | pa.Array] = {}
    turns, tool = range(tool.shape[1]), tool[source]
    failed = np.stack([_failed(values, turn)[source] for turn in turns], axis=1) if "tool result" in values else tool
    values = {name: each[source] for name, each in values.items()}
    for one in drawn.attributes:
        if one.name == "tool":
            named["tool_names"] = _lists([one.values[at] if at >= 0 else None for at in tool.ravel()], tool)
        elif one.name == "tool result":
            named["tool_failed"] = _lists(failed.ravel().tolist(), tool)
        elif one.name == "rank":
            named["rank"] = pa.array(values["rank"], pa.int32())
        elif one.name == "version":
            named["policy_version"] = pa.array(steps - values["version"], pa.int64())
        else:
            named["env" if one.name == "env" else "data_source"] = [one.values[at] for at in values[one.name]]
    return named


def _lists(flat: Sequence[object], tool: npt.NDArray[np.int64]) -> pa.Array:
    """Give lists of as many entries as a sequence has answers."""
    there = (tool >= 0).ravel()
    offsets = np.concatenate([[0], np.cumsum((tool >= 0).sum(axis=1))])
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), pa.array([value for value, use in zip(flat, there, strict=True) if use])
    )


def metrics_of(drawn: Drawn) -> tuple[dict[str, FloatArray], bool]:
    """Make what a trainer logs at each recorded step, and whether its mean KL or entropy truly alarms."""
    generator = np.random.default_rng([drawn.seed, 16])
    u = drawn.layout.u
    noise = {name: _step_noise(generator, drawn) for name in ("reward", "entropy", "kl", "norm", "loss")}
    kl, entropy = 0.02 + generator.uniform(0.0, 0.1) * u, generator.uniform(0.2, 0.6) * (1 - 0.4 * u)
    reward, onset = 0.3 + 0.4 * np.sqrt(u), generator.uniform(0.3, 0.6)
    wild = str(generator.choice(["", "KL", "entropy"], p=[0.84, 0.1, 0.06]))
    if wild == "KL":
        kl = kl + np.clip((u - onset) / 0.25, 0, 1) * generator.uniform(1.0, 4.0)
    if wild == "entropy":
        left = np.clip((u - onset) / 0.25, 0, 1)
        entropy, reward = entropy * 0.01**left, reward * (1 - 0.9 * left)
    return {
        "reward": reward + 0.08 * noise["reward"],
        "entropy": entropy * np.exp(0.15 * noise["entropy"]),
        "kl": kl * np.exp(0.35 * noise["kl"]),
        "grad_norm": 0.5 * np.exp(0.4 * noise["norm"]),
        "loss": 0.02 * noise["loss"],
    }, bool(wild)


def write(drawn: Drawn, folder: Path, table: pa.Table) -> Path:
    """Write a run as `ptt` reads it: recorder files and a log of metrics."""
    (folder / "tokens").mkdir(parents=True)
    pq.write_table(table, folder / "tokens" / "steps.parquet")
    metrics, _ = metrics_of(drawn)
    with (folder / "metrics.jsonl").open("w", encoding="utf-8") as lines:
        for place, step in enumerate(drawn.layout.steps):
            row = {name: float(values[place]) for name, values in metrics.items()}
            lines.write(json.dumps({"step": int(step), **row}) + "\n")
    return folder
