"""Write one recorder file per step and rank, whole or not at all, without ever ending the training run it records."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ptt.recorders.watch_process import WatchProcess

if TYPE_CHECKING:
    import pyarrow as pa


LOGPS: Final = ("policy_logp", "old_logp", "rollout_logp", "ref_logp", "prox_logp")
FLOAT_LISTS: Final = (*LOGPS, "entropy", "value", "return")
MASKS: Final = ("model_mask", "train_mask")
EITHER: Final = ("advantage", "policy_version")  # one a token, or one a sequence
IDENTIFIERS: Final = ("sample_id", "group_id", "trajectory_id", "env", "logp_kind")
NUMBERS: Final = ("reward", "temperature", "top_p")
ALIGNED: Final = (*MASKS, "token_ids", *FLOAT_LISTS, *EITHER)
NAMES: Final = (*ALIGNED, *IDENTIFIERS, *NUMBERS, "rewards", "tool_names", "tool_failed")
PAIR: Final = 2  # a ratio needs two log-probabilities
NO_RATIO: Final = (
    "Rewards, advantages, groups and masks can be judged; a ratio takes two log-probabilities, so drift, size of the "
    "updates, agreement with the engine and tails cannot"
)
MAX_FAILURES: Final = 3  # without a written step between: a disk may come back, a fault of the loop's shape stays
INT32: Final = np.iinfo(np.int32)

Column = list[Any]


def to_numpy(value: Any) -> Any:
    """Return an array of any framework as numpy on the CPU, a torch float as float32; other values as they are.

    Numpy knows no bfloat16, so every torch float becomes float32, which holds all narrower ones exactly.
    """
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return (value.float() if value.is_floating_point() else value).numpy()


def per_row(rows: Sequence[Mapping[str, Any]] | Mapping[str, Any], present: Any = None) -> dict[str, Column]:
    """Return one list per column, one entry per sequence; padding is cut where `present` [B, T] is 0."""
    if isinstance(rows, Mapping):
        columns = {name: _spread(name, value) for name, value in rows.items() if value is not None}
    else:
        _dicts(rows)
        names = dict.fromkeys(name for row in rows for name in row)
        columns = {name: [row.get(name) for row in rows] for name in names}
    for name in columns:
        _known(name)
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"columns have different numbers of sequences: {sizes}; give one entry per sequence in each.")
    if present is not None:
        columns = _cut(columns, [np.asarray(row) != 0 for row in _spread("attention_mask", present)])
    return columns


def table(step: int, columns: dict[str, Column], rank: int | None) -> pa.Table:
    """Build the table of one file; raises ValueError or TypeError with a sentence that says what to do."""
    import pyarrow as pa

    _require_columns(columns)
    arrays = {name: _array(name, column) for name, column in columns.items()}
    _require_equal_lengths(columns)
    count = len(columns["model_mask"])
    arrays = {"step": pa.array(np.full(count, step, dtype=np.int64)), **arrays}
    if rank is not None:
        arrays["rank"] = pa.array(np.full(count, rank, dtype=np.int32))
    return pa.table(arrays)


def _dicts(rows: Any) -> None:
    wrong = [type(row).__name__ for row in rows if not isinstance(row, Mapping)]
    if wrong:
        raise TypeError(f"a row is a {wrong[0]}; give each sequence as a dict from column to value.")


def _known(name: str) -> None:
    if name in NAMES:
        return
    if name in {"step", "rank"}:
        raise ValueError(f"column {name}: leave it out; write(step, ...) and Recorder(rank=...) set it.")
    near = get_close_matches(str(name), NAMES, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}? " if near else ""
    raise ValueError(f"column {name}: no recorder file has it; {hint}The names are {', '.join(NAMES)}.")


def _spread(name: str, value: Any) -> Column:
    if getattr(value, "is_nested", False):  # torch's jagged layout: rows of their own length, without padding
        return [to_numpy(row) for row in value.unbind()]
    if name == "rewards" and isinstance(value, Mapping):
        parts = {part: _spread(part, scores) for part, scores in value.items()}
        return [dict(zip(parts, scores, strict=True)) for scores in zip(*parts.values(), strict=True)]
    value = to_numpy(value)
    if isinstance(value, str | bytes) or not hasattr(value, "__len__") or getattr(value, "shape", None) == ():
        raise TypeError(f"column {name} is one {type(value).__name__}; give one entry a sequence (a list or an array).")
    return list(value)


def _cut(columns: dict[str, Column], present: list[Any]) -> dict[str, Column]:
    return {
        name: [_cut_row(name, row, keep) for row, keep in zip(column, present, strict=True)]
        if name in ALIGNED
        else column
        for name, column in columns.items()
    }


def _cut_row(name: str, value: Any, keep: Any) -> Any:
    if value is None or (name in EITHER and np.ndim(value) == 0):
        return value
    row = np.asarray(to_numpy(value))
    if row.shape != keep.shape:
        raise ValueError(f"{name} is {row.shape} where attention_mask is {keep.shape} a sequence; give both as [B, T].")
    return row[keep]


def _require_columns(columns: dict[str, Column]) -> None:
    if "model_mask" not in columns:
        raise ValueError("no model_mask: give true for every token the policy sampled, false for tool output.")
    if not columns["model_mask"]:
        raise ValueError("no sequences: write at least one, or leave the step out.")
    if not given_logps(columns):
        raise ValueError(f"no log-probability was given; add one of {', '.join(LOGPS)}, or two for a ratio.")


def given_logps(columns: Mapping[str, Column]) -> list[str]:
    """Return the log-probabilities that any sequence has."""
    return [name for name in LOGPS if any(value is not None for value in columns.get(name, ()))]


def _require_equal_lengths(columns: dict[str, Column]) -> None:
    lengths = [_length(mask) for mask in columns["model_mask"]]
    for name in ALIGNED:
        for row, (value, length) in enumerate(zip(columns.get(name, ()), lengths, strict=False)):
            if value is not None and np.ndim(value) and _length(value) != length:
                raise ValueError(
                    f"row {row}: {name} has {_length(value)} entries and model_mask {length}; entry t of every list "
                    "belongs to token t, so cut padding (attention_mask=...) and shift nothing."
                )


def _length(value: Any) -> int:
    if value is None:
        raise ValueError("model_mask is None in a row; every sequence needs one.")
    return len(value)


def _array(name: str, column: Column) -> pa.Array:
    import pyarrow as pa

    column[:] = values = [to_numpy(value) for value in column]  # converted once: lengths are read from the same values
    if name in ALIGNED and (name not in EITHER or any(np.ndim(value) for value in values if value is not None)):
        type_name, to_entries = TOKEN_LISTS[name]
        return _lists(name, values, getattr(pa, type_name)(), to_entries)
    if name == "rewards":
        return _structs(values)
    kinds: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "tool_names": (pa.list_(pa.string()), lambda row: [str(tool) for tool in row]),
        "tool_failed": (pa.list_(pa.bool_()), lambda row: [None if flag is None else bool(flag) for flag in row]),
        "policy_version": (pa.int64(), partial(_number, name)),
        **dict.fromkeys(IDENTIFIERS, (pa.string(), str)),
    }
    kind, convert = kinds.get(name, (pa.float64(), partial(_number, name)))
    return pa.array([None if value is None else convert(value) for value in values], kind)


def _structs(values: Column) -> pa.Array:
    import pyarrow as pa

    parts = dict.fromkeys(part for row in values if row for part in row)
    rows = [row and {part: _number("rewards", row.get(part)) for part in parts} for row in values]
    return pa.array(rows, pa.struct([(str(part), pa.float64()) for part in parts]))


def _number(name: str, value: Any) -> Any:
    if value is None:
        return None
    if np.ndim(value):
        raise ValueError(f"{name} contains a list; give one number per sequence.")
    return value.item() if hasattr(value, "item") else value


def _lists(name: str, values: Column, kind: pa.DataType, convert: Callable[[str, Any], Any]) -> pa.Array:
    import pyarrow as pa

    cells = [None if value is None else pa.array(convert(name, value), kind) for value in values]
    lengths = [0 if cell is None else len(cell) for cell in cells]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    flat = pa.concat_arrays([cell for cell in cells if cell is not None] or [pa.array([], kind)])
    missing = pa.array([cell is None for cell in cells])
    return pa.ListArray.from_arrays(pa.array(offsets), flat, mask=missing)


def _flat(name: str, value: Any) -> Any:
    if isinstance(value, str | bytes) or np.ndim(value) != 1:
        shape = type(value).__name__ if isinstance(value, str | bytes) else f"{np.ndim(value)}-dimensional"
        raise ValueError(f"a sequence's {name} is {shape}; give one flat list, one entry a token.")
    return value


def _mask(name: str, value: Any) -> Any:
    row = np.asarray(_flat(name, value))
    if row.dtype == bool:
        return row
    if row.dtype.kind not in "iuf" or not np.isin(row, (0, 1)).all():
        raise ValueError(f"{name} contains values other than true and false (or 1 and 0).")
    return row.astype(bool)


def _integers(name: str, value: Any) -> Any:
    row = np.asarray(_flat(name, value))
    if row.size and (row.dtype.kind not in "iu" or row.min() < INT32.min or row.max() > INT32.max):
        raise ValueError(f"{name} contains {row.dtype} values that are not 32-bit integers.")
    return row.astype(np.int32)


def _floats(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple) and None in value:
        return _flat(name, value)  # a null stays a null, which numpy cannot say
    row = np.asarray(_flat(name, value))
    if row.size and row.dtype.kind not in "iuf":
        raise ValueError(f"{name} contains {row.dtype} values, not numbers; leave out what is unknown.")
    return row.astype(np.float32, copy=False)


TOKEN_LISTS: Final = {  # the function of pyarrow that makes the type of an entry, and how a row becomes entries
    **dict.fromkeys(MASKS, ("bool_", _mask)),
    **dict.fromkeys((*FLOAT_LISTS, "advantage"), ("float32", _floats)),
    **dict.fromkeys(("token_ids", "policy_version"), ("int32", _integers)),
}
LOG = logging.getLogger("ptt.recorders")


def say(text: str, level: int = logging.WARNING) -> None:
    """Tell the user, in the log where one is set up for it, or else on standard error; never fails."""
    line = f"ptt: {text}"
    with suppress(Exception):  # a closed stream, or a handler's fault, is nothing to a training run
        if LOG.hasHandlers() and LOG.isEnabledFor(level):
            LOG.log(level, "%s", line)
        else:  # as in most training scripts
            sys.stderr.write(f"{line}\n")


class Recorder:
    """Writes `folder/step_{step:06d}.parquet`, with `_rank{rank}` before the ending where several ranks write.

    `rank` is by default the environment's RANK if WORLD_SIZE is above 1, otherwise none. `every` writes only each n-th
    step. `strict` raises errors in the rows or on the disk; by default the first is said (logger `ptt.recorders`, or
    standard error) and training continues; after three without a written step between, recording has `stopped`.
    `fsync` waits until the disk has the file. `seconds` is the time that recording has cost so far, `failures` the
    number of errors. One log-probability is recorded too: what that cannot show is said once.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        rank: int | None = None,
        every: int = 1,
        *,
        strict: bool = False,
        fsync: bool = False,
    ) -> None:
        """Check the arguments; nothing is written yet. Raises ValueError for an unusable folder, rank or every."""
        if not os.fspath(folder):
            raise ValueError("the folder to record to is empty; give a folder of the run, such as OUTPUT_DIR/tokens.")
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"{self.folder}: is a file; give a folder to record to.")
        if every < 1:
            raise ValueError(f"every={every}: give 1 for each step, 10 for each tenth.")
        self.rank = _rank_of_environment() if rank is None else rank
        if self.rank is not None and self.rank < 0:
            raise ValueError(f"rank={self.rank}: ranks are counted from 0.")
        self.every = every
        self.strict = strict
        self.fsync = fsync
        self.seconds = 0.0
        self.failures = 0
        self.stopped = False
        self.watcher: WatchProcess | None = None
        self.says_unpaired = True  # once; a recorder made for a trainer has said it before training
        self._in_a_row = 0
        self._written: set[int] = set()
        self._depth = 0

    def wants(self, step: int) -> bool:
        """Return whether this step is written: ask before doing work for it."""
        return not self.stopped and step % self.every == 0

    def write(
        self,
        step: int,
        rows: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        *,
        attention_mask: Any = None,
    ) -> Path | None:
        """Write the sequences of one step and return the file's path; None where `every` leaves the step out.

        `rows` is a list of dicts, one per sequence, or a dict of columns: lists, numpy arrays or torch tensors, a list
        column as [B, T] or as a list of rows. `attention_mask` [B, T] is 1 where there is a token, and cuts padding.
        Names and types are those of docs/recorder.md. A step is written once: gather its micro-batches first.
        Raises ValueError, TypeError or OSError under `strict`; otherwise says the first and returns None.
        """
        if not self.wants(step):
            return None
        with self.guarded():
            return self._write(step, rows, attention_mask)
        return None

    def watch(self, report_dir: str | os.PathLike[str] | None = None) -> None:
        """Judge what is recorded while training goes on, in a process of its own; call it once, before training.

        What it finds is said. `should_stop` turns true once the run should end, at one false stop in a hundred healthy
        runs. The report goes to `report_dir` (by default ./ptt-report/<name of the folder>) when the program ends, or
        `finish` is called. One process watches: on other ranks than 0 this does nothing.
        """
        if self.rank or self.watcher is not None:
            return
        try:
            self.watcher = WatchProcess(self.folder, report_dir, say)
        except OSError as error:
            if self.strict:
                raise
            say(f"the watch could not be started, training goes on unwatched: {error.strerror or error}")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Tell the watch what the trainer logged at a step, under its own names; it is not recorded."""
        if self.watcher is not None:
            with self.guarded():
                self.watcher.log(step, metrics)

    @property
    def should_stop(self) -> bool:
        """Whether the watch says that training should end; on rank 0 alone, so that ranks have to agree on it."""
        return self.watcher is not None and self.watcher.stop is not None

    def finish(self, seconds: float | None = None) -> int | None:
        """Tell the watch that training is over and wait for its report; None where it takes longer than `seconds`.

        Returns the exit code of `ptt watch`: 3 after a stop, else as `ptt diagnose`.
        """
        return None if self.watcher is None else self.watcher.wait(seconds)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Count the time of what is inside, and keep its errors from the training loop unless `strict`."""
        started = perf_counter()
        self._depth += 1
        try:
            yield
        except Exception as error:  # whatever a framework's internals raise must not end a training run
            if self.strict:
                raise
            self.failures += 1
            self._in_a_row += 1
            self.stopped = self._in_a_row >= MAX_FAILURES
            if self.failures == 1:
                say(
                    f"recording to {self.folder} failed, training goes on; said once, and after {MAX_FAILURES} "
                    f"failures in a row recording stops: {str(error) or type(error).__name__}"
                )
        finally:
            self._depth -= 1
            if not self._depth:  # a write within a hook is part of the hook's time
                self.seconds += perf_counter() - started

    def _write(self, step: int, rows: Any, attention_mask: Any) -> Path:
        import pyarrow.parquet as pq

        if step < 0 or step in self._written:
            why = "is negative" if step < 0 else "was written already; gather all its micro-batches and write once"
            raise ValueError(f"step {step} {why}.")
        suffix = "" if self.rank is None else f"_rank{self.rank}"
        path = self.folder / f"step_{step:06d}{suffix}.parquet"
        columns = per_row(rows, attention_mask)
        step_table = table(int(step), columns, self.rank)
        self._say_if_unpaired(given_logps(columns))
        self.folder.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        try:
            with part.open("wb") as file:
                pq.write_table(step_table, file, compression="zstd", use_dictionary=False)
                if self.fsync:
                    file.flush()
                    os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        self._written.add(step)
        self._in_a_row = 0
        return path

    def _say_if_unpaired(self, given: Sequence[str]) -> None:
        if not self.says_unpaired or self.rank:  # one process speaks for all
            return
        self.says_unpaired = False
        if len(given) < PAIR:
            others = [name for name in LOGPS if name not in given]
            say(f"recording {given[0]} alone to {self.folder}. {NO_RATIO}; add one of {', '.join(others)}.")


def _rank_of_environment() -> int | None:
    """Return torchrun's rank where several processes train: without it they would write over each other."""
    try:
        return int(os.environ["RANK"]) if int(os.environ.get("WORLD_SIZE", "1")) > 1 else None
    except (KeyError, ValueError):
        return None
