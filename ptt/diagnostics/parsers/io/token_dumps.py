"""What the parsers of token dumps share: tensor files opened safely, names of columns, and rows of sequences."""

from __future__ import annotations

import atexit
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from ptt.diagnostics.parsers.io.interface import HEAD_BYTES, Context, Lost, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.values import INT32
from ptt.diagnostics.parsers.unpickle import Node, Plain, RefusedError, Worker
from ptt.diagnostics.schema import LOGPS, SEQUENCES
from ptt.diagnostics.wording import counted

SUFFIXES: Final = (".pt", ".pth", ".pkl", ".dp", ".npz", ".safetensors")
ZIP, PICKLE = b"PK\x03\x04", b"\x80"
UNGUARDED: Final = "read without a memory limit: this system offers none."
_STEP = re.compile(r"step[_\-]?(\d{1,15})(?!\d)")
_NUMBER = re.compile(r"(?<!\d)(\d{1,15})(?!\d)")


@cache
def _worker() -> Worker:
    worker = Worker()
    atexit.register(worker.close)
    return worker


def content(file: RunFile) -> tuple[Plain, list[Lost]]:
    """Return what a file holds; if it is refused, None and the whole file as lost."""
    file.budget.tick()
    try:
        answer = _worker().read(file.path, seconds=file.budget.seconds_left)
    except RefusedError as error:
        file.budget.charge(error.seconds)
        return None, [Lost(bytes=file.size, note=f"{file.rel} was not read: {error}.")]
    except OSError as error:
        return None, [Lost(bytes=file.size, note=f"{file.rel} could not be read: {error.strerror}.")]
    file.budget.charge(answer.seconds)
    return answer.value, [] if answer.guarded else [Lost(note=f"{file.rel}: {UNGUARDED}")]


def names_in(file: RunFile, names: frozenset[str]) -> set[str]:
    """Return which of these names occur in the plain part of such a file, without parsing it."""
    if not file.name.endswith(SUFFIXES):
        return set()
    try:
        head = file.head
        if file.name.endswith(".npz"):  # the list of members is at the end
            with file.path.open("rb") as handle:
                handle.seek(max(0, file.size - HEAD_BYTES))
                tail = handle.read(HEAD_BYTES)
            return {name for name in names if f"{name}.npy".encode() in tail} if head.startswith(ZIP) else set()
    except OSError:  # unreadable: nobody's
        return set()
    if file.name.endswith(".safetensors"):
        return {name for name in names if f'"{name}"'.encode() in head}
    return {name for name in names if name.encode() in head} if head.startswith((ZIP, PICKLE)) else set()


def node(found: Plain, name: str) -> Node | None:
    """Return an object whose class or function is `name`, the last part of its full name; else None."""
    return found if isinstance(found, Node) and found.name.rpartition(".")[2] == name else None


def step_named(path: Path) -> int | None:
    """Read the step from a file's name, or else from the folders above, given as `step` or a bare number."""
    if match := _STEP.search(path.name) or _NUMBER.search(path.stem):
        return int(match[1])
    for folder in path.parts[-3:-1][::-1]:
        if (match := _STEP.search(folder)) or (match := _NUMBER.fullmatch(folder)):
            return int(match[1])
    return None


Array: TypeAlias = np.ndarray[Any, Any]
Sample: TypeAlias = dict[str, Any]
"""Columns of the sequences table: arrays for lists, else numbers and texts; None becomes null."""

CHUNK_TOKENS: Final = 2_000_000  # in one frame: a file may hold many more
PAIR: Final = 2
CRITIC: Final = ("value", "return")
LISTS: Final = ("token_ids", "train_mask", *LOGPS, "entropy", "advantage", *CRITIC)
_NUMPY: Final = {"token_ids": np.int32, "model_mask": np.bool_, "train_mask": np.bool_}


def line(found: Plain, dtype: type = np.float64) -> Array | None:
    """Return a one-dimensional array of numbers; None for anything else."""
    if isinstance(found, list) and not found:
        return np.zeros(0, dtype)
    if isinstance(found, np.ndarray) and found.ndim == 1:
        return found
    return None


def grid(found: Plain) -> Array | None:
    """Return a two-dimensional array of numbers; None for anything else."""
    return found if isinstance(found, np.ndarray) and found.ndim == 2 else None


def number(found: Plain) -> float | None:
    """Return a number, also one in a tensor without dimensions."""
    if isinstance(found, np.ndarray) and found.size == 1:
        found = found.item()
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return float(found)


def integer(found: Plain) -> int | None:
    """Return a whole number."""
    if isinstance(found, np.ndarray) and found.size == 1 and found.dtype.kind in "iu":
        found = int(found.item())
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def identifier(found: Plain) -> str | None:
    """Return a name, or a number for one."""
    whole = integer(found)
    return found if isinstance(found, str) else None if whole is None else str(whole)


def sampled(mask: Array, rollout: Array | None) -> Array:
    """Return which tokens the policy sampled where filtering has zeroed the whole mask of a sequence.

    What is left is the engine's placeholder: tokens that it did not sample carry exactly 0.0.
    """
    chosen: Array = mask != 0
    if chosen.any() or rollout is None or len(rollout) != len(chosen):
        return chosen
    nonzero: Array = rollout != 0.0
    return nonzero


def sequences(file: RunFile, samples: list[Sample], *, why: str = "") -> Iterator[Piece]:
    """Yield the samples whose lists have matching lengths, and count the others; `why` says what these usually are."""
    dated = [sample for sample in samples if sample.get("step") is not None]
    made = [_checked(sample) for sample in dated]
    good = [sample for sample in made if sample is not None]
    for part in _parts(good):
        yield Rows(table="sequences", frame=pl.DataFrame([_column(name, part) for name in _present(part)]))
    left_out = Counter(name for before, after in zip(dated, made, strict=True) for name in _left_out(before, after))
    for name, count in sorted(left_out.items()):
        yield Lost(note=f"{file.rel}: {name} left out of {counted(count, 'sequence(s)')}: impossible values.")
    logps = sorted({name for sample in good for name in LOGPS if name in sample})
    if good and len(logps) < PAIR:
        which = f"{logps[0]} alone" if logps else "no log-probabilities"
        yield Lost(note=f"{file.rel} has {which}: a ratio needs two of {', '.join(LOGPS)}.")
    if undated := len(samples) - len(dated):
        yield Lost(rows=undated, note=f"{file.rel}: neither its content nor its name gives the step.")
    if bad := len(dated) - len(good):
        note = f"{file.rel}: sequences skipped: {bad} of {len(samples)}, without tokens or with unequal lists"
        yield Lost(rows=bad, note=f"{note}{why}.")


def _parts(samples: list[Sample]) -> Iterator[list[Sample]]:
    part: list[Sample] = []
    tokens = 0
    for sample in samples:
        part.append(sample)
        tokens += len(sample["model_mask"])
        if tokens >= CHUNK_TOKENS:
            yield part
            part, tokens = [], 0
    if part:
        yield part


def _left_out(before: Sample, after: Sample | None) -> Iterator[str]:
    """Name the lists of tokens that a sample had, and that were no such lists."""
    for name in LISTS:
        told = before.get(name)
        if after is not None and name not in after and isinstance(told, np.ndarray) and told.ndim == 1:
            yield name


def _checked(sample: Sample) -> Sample | None:
    mask = sample.get("model_mask")
    if mask is None or len(mask) == 0:
        return None
    made = {name: value for name, value in sample.items() if value is not None}
    for name in LISTS:
        value = made.get(name)
        if name == "advantage" and isinstance(value, float):  # one for the sequence applies to each token
            made[name] = np.full(len(mask), value)
        elif value is not None and not (isinstance(value, np.ndarray) and value.ndim == 1):
            del made[name]  # given once for the sequence, not token by token
        elif value is not None and len(value) != len(mask):
            if name not in CRITIC:  # of other tokens, such as one more for the state at the end
                return None
            del made[name]
    ids = made.get("token_ids")
    if ids is not None and (ids.dtype.kind not in "iu" or int(ids.min()) < -INT32 or int(ids.max()) >= INT32):
        del made["token_ids"]
    if not -INT32 <= made.get("rank", 0) < INT32:
        del made["rank"]
    reward = made.get("reward")
    if isinstance(reward, float) and not math.isfinite(reward):
        del made["reward"]
    return made


def _present(part: list[Sample]) -> list[str]:
    names = {name for sample in part for name in sample}
    return [name for name in SEQUENCES if name in names]


def _column(name: str, part: list[Sample]) -> pl.Series:
    kind = SEQUENCES[name]
    values = [sample.get(name) for sample in part]
    if not isinstance(kind, pl.List):
        return pl.Series(name, values, dtype=kind)
    dtype = _NUMPY.get(name, np.float32)
    with np.errstate(over="ignore"):  # a double beyond float32 is an infinity, and counted as one
        lists = [None if value is None else pl.Series(_cast(value, dtype)) for value in values]
    return pl.Series(name, lists, dtype=kind)


def _cast(value: Array, dtype: Any) -> Array:
    made: Array = value != 0 if dtype is np.bool_ else np.ascontiguousarray(value, dtype)
    return made


# Ours, and what others call it; the first that is there counts.
NAMED_LISTS: Final = {
    "token_ids": ("token_ids", "completion_ids", "responses"),
    "policy_logp": ("policy_logp", "per_token_logps", "log_probs"),
    "old_logp": ("old_logp", "old_per_token_logps", "old_log_probs"),
    "rollout_logp": ("rollout_logp", "sampling_per_token_logps", "rollout_log_probs"),
    "ref_logp": ("ref_logp", "ref_per_token_logps", "ref_log_prob", "ref_log_probs"),
    "entropy": ("entropy", "entropies", "entropys"),
    "advantage": ("advantage", "advantages"),
    "value": ("value", "values"),
    "return": ("return", "returns"),
    "train_mask": ("train_mask",),
}
REWARDS: Final = ("reward", "rewards")
TOKEN_REWARDS: Final = ("rm_scores", "token_level_scores", "token_level_rewards")  # sums: the score is on one token
GROUPS: Final = ("group_id", "prompt_id")
MASKS: Final = ("model_mask", "completion_mask", "response_mask")
NAMED_LOGPS: Final = tuple(
    name for ours in ("policy_logp", "old_logp", "rollout_logp", "ref_logp") for name in NAMED_LISTS[ours]
)
Batch = dict[str, Plain]
"""A two-dimensional array or a list of arrays for values given token by token, else one entry a sequence."""


def samples_of(batch: Batch, step: int | None) -> list[Sample] | None:
    """Return one sample a row; None if no mask tells how many there are."""
    masks = _masks(batch)
    if masks is None:
        return None
    keep, model = masks
    singles = _singles(batch, len(keep))
    lists = {column: _rows(_first(batch, names), keep) for column, names in NAMED_LISTS.items()}
    scores = _rows(_first(batch, TOKEN_REWARDS), keep)
    samples: list[Sample] = []
    for at in range(len(keep)):
        row: Sample = {"step": step, **{name: values[at] for name, values in singles.items()}}
        row |= {name: rows[at] for name, rows in lists.items() if rows is not None}
        row["model_mask"] = model[at]
        score = scores[at] if scores is not None else None
        if row.get("reward") is None and isinstance(score, np.ndarray):
            row["reward"] = float(score.sum())
        samples.append(row)
    return samples


def _masks(batch: Batch) -> tuple[list[Array], list[Array]] | None:
    """Return, a row, which positions hold the response, and which tokens of it the policy sampled."""
    mask = _split(_first(batch, MASKS))
    if mask is None:
        return None
    tools = _split(batch.get("tool_mask"))  # TRL: filled up with 1, so it counts only where there is a completion
    inside = _split(batch.get("attention_mask"))  # veRL: of prompt and response; the mask is 0 on tools and padding
    keep: list[Array] = []
    model: list[Array] = []
    for at, row in enumerate(mask):
        sampled = row != 0
        whole = inside[at] if inside is not None and at < len(inside) and len(inside[at]) >= len(row) else None
        present = sampled if whole is None else whole[len(whole) - len(row) :] != 0
        positions = np.arange(len(row)) <= np.flatnonzero(present)[-1] if present.any() else present
        if tools is not None and at < len(tools) and len(tools[at]) == len(row):
            sampled = sampled & (tools[at] != 0)
        keep.append(positions)
        model.append(sampled[positions])
    return keep, model


def _first(batch: Batch, names: tuple[str, ...]) -> Plain:
    return next((batch[name] for name in names if batch.get(name) is not None), None)


def _split(values: Plain) -> list[Array] | None:
    """Return the rows of values given token by token; None for any others."""
    if isinstance(values, np.ndarray):
        return list(values) if values.ndim == 2 else None
    if isinstance(values, list) and all(isinstance(row, np.ndarray) and row.ndim == 1 for row in values):
        return [row for row in values if isinstance(row, np.ndarray)]
    return None


def _rows(values: Plain, keep: list[Array]) -> list[Array | float | None] | None:
    """Cut each row to its response; one number a sequence stays one."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and len(values) == len(keep):
        return [float(value) for value in values]
    rows = _split(values)
    if rows is None or len(rows) != len(keep):
        return None
    return [row[here] if len(row) == len(here) else row for row, here in zip(rows, keep, strict=True)]


def _singles(batch: Batch, count: int) -> dict[str, list[object]]:
    """Return the values given once a sequence."""
    made: dict[str, list[object]] = {
        "reward": [number(value) for value in _entries(_first(batch, REWARDS), count)],
        "policy_version": [integer(value) for value in _entries(batch.get("policy_version"), count)],
        "sample_id": [identifier(value) for value in _entries(batch.get("sample_id"), count)],
        "group_id": [identifier(value) for value in _entries(_first(batch, GROUPS), count)],
        "trajectory_id": [identifier(value) for value in _entries(batch.get("trajectory_id"), count)],
        "env": [value if isinstance(value, str) else None for value in _entries(batch.get("env"), count)],
    }
    uids = [identifier(value) for value in _entries(batch.get("uid"), count)]
    if any(uids):  # veRL: one a prompt; where no two are alike they name the sample
        made["group_id" if len(set(uids)) < len(uids) else "sample_id"] = [*uids]
    return {name: values for name, values in made.items() if any(value is not None for value in values)}


def _entries(values: Plain, count: int) -> list[Plain]:
    if isinstance(values, np.ndarray) and values.ndim == 1 and len(values) == count:
        return list(values.tolist())
    return values if isinstance(values, list) and len(values) == count else []


def read_batch(
    file: RunFile,
    pieces_in: Callable[[RunFile, Plain], Iterator[Piece] | None],
    *,
    lacking: str,
    framework: str | None = None,
) -> Iterator[Piece]:
    """Yield the pieces that `pieces_in` makes of a file's value; if None, `lacking` says why the file is lost."""
    value, lost = content(file)
    yield from lost
    if value is None:
        return
    try:
        pieces = pieces_in(file, value)
    except RefusedError as error:
        yield Lost(bytes=file.size, note=f"{file.rel} was not read: {error}.")
        return
    if pieces is None:
        yield Lost(bytes=file.size, note=f"{file.rel} {lacking}.")
        return
    if framework is not None:
        yield Context(facts={"framework": framework})
    yield from pieces
