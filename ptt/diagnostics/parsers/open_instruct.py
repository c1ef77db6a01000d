"""Rollouts that open-instruct saves with --save_traces: token ids, engine log-probabilities, rewards and tool calls.

Rows: `RolloutRecord` of allenai/open-instruct, open_instruct/rl_utils.py; the tool masks are not among them. Tool
tokens carry a log-probability of exactly 0.0 (open_instruct/vllm_utils.py), so runs of two or more of them are taken
for tool output, never more runs than the sample's tool calls: a token the model was sure of is 0.0 too.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.parsers.io.calls import Array, SequenceRows, TokenRow, logp_array, token_array
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.lines import blocks, first_objects, is_torn, json_object, torn_line
from ptt.diagnostics.parsers.io.trajectories import Samples
from ptt.diagnostics.parsers.io.values import (
    as_flag,
    as_id,
    as_int32,
    as_int64,
    as_name,
    as_number,
    dicts_in,
    digest,
    nested,
)

MIN_TOOL_TOKENS: Final = 2  # zeros in a row that are tool output; a single one is a token the model was sure of


def model_mask(logps: Array, calls: int | None) -> tuple[Array, bool]:
    """Separate tokens of the model, (T,) bool, from tool output; also return whether runs of zeros outnumber the calls.

    `calls`: the tool calls of the sample, None where they are not recorded.
    """
    mask = np.ones(len(logps), bool)
    edges = np.flatnonzero(np.diff(logps == 0.0, prepend=False, append=False))
    starts, ends = edges[::2], edges[1::2]
    long = ends - starts >= MIN_TOOL_TOKENS
    starts, ends = starts[long], ends[long]
    more = calls is not None and len(starts) > calls
    if more:
        kept = np.argsort(starts - ends, kind="stable")[: max(calls or 0, 0)]
        starts, ends = starts[kept], ends[kept]
    marks = np.zeros(len(logps) + 1, np.int64)
    np.add.at(marks, starts, 1)
    np.add.at(marks, ends, -1)
    mask[np.cumsum(marks[:-1]) > 0] = False
    return mask, bool(more and calls)


KEYS: Final = frozenset({"step", "prompt_tokens", "response_tokens"})
ITS_OWN: Final = frozenset({"request_info", "finish_reason"})
"""One of these is among the keys, too."""
METADATA: Final = frozenset({"run_name", "git_commit", "model_name", "timestamp"})
CALL: Final = pl.Struct({"tool_name": pl.String(), "success": pl.Boolean(), "runtime": pl.Float64()})
INFO: Final = pl.Struct({"num_calls": pl.Int64(), "tool_call_stats": pl.List(CALL)})
SCALARS: Final[dict[str, pl.DataType]] = {
    **dict.fromkeys(("step", "sample_idx", "prompt_idx"), pl.Int64()),
    **dict.fromkeys(("reward", "advantage"), pl.Float64()),
    **dict.fromkeys(("finish_reason", "dataset"), pl.String()),
    "request_info": INFO,
}
LISTS: Final[dict[str, pl.DataType]] = {
    "response_tokens": pl.List(pl.Int32()),
    "logprobs": pl.List(pl.Float32()),
    "prompt_tokens": pl.List(pl.Int32()),
}
UNUSABLE: Final = "row(s) skipped: no step, or not one log-probability for each token."
WITHOUT_LOGPS: Final = "row(s) without log-probabilities: their prompts, rewards and ends are read, and no tokens."
MORE_RUNS: Final = "row(s) with more runs of zeros than tool calls; the longest runs count as tool output."


def recognises(file: RunFile) -> bool:
    """Recognise a file by the keys of the first row."""
    first = next(iter(first_objects(file, 1)), {})
    of_rollouts = first.keys() >= KEYS and bool(first.keys() & ITS_OWN)
    return of_rollouts or (file.name.endswith("_metadata.jsonl") and first.keys() == METADATA)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield sequences, trajectories and tool calls block by block; rows that cannot be used are counted."""
    reader = _Reader(file)
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        for record in _rows(block):
            if record is None and is_torn(block):
                yield torn_line(file, block[block.rfind(b"\n") + 1 :])
            else:
                yield from reader.add(record)
        yield from reader.take()
    yield from reader.close()


def _rows(block: bytes) -> Iterator[dict[str, Any] | None]:
    """Read the rows of a block, by columns if every line is as the writer makes it; None for other lines."""
    frame = _fast(block)
    if frame is None:
        for line in filter(bytes.strip, block.split(b"\n")):
            yield json_object(line)
        return
    lists = [_cut(frame[name]) for name in LISTS]
    for row, tokens, logps, prompt in zip(frame.select(*SCALARS).iter_rows(named=True), *lists, strict=True):
        yield {**row, "response_tokens": tokens, "logprobs": logps, "prompt_tokens": prompt}


def _fast(block: bytes) -> pl.DataFrame | None:
    """Let Polars read the block; None if some line needs a closer look, such as a bare NaN."""
    try:
        frame = pl.read_ndjson(io.BytesIO(block), schema=pl.Schema({**SCALARS, **LISTS}))
    except (pl.exceptions.PolarsError, OSError):
        return None
    whole_rows = frame.select(
        pl.all_horizontal(pl.col("step", *LISTS).is_not_null()).all()
        & (pl.col("logprobs").list.len() == pl.col("response_tokens").list.len()).all()
        & ~pl.col("response_tokens").list.eval(pl.element().is_null()).list.any().any()
        & ~pl.col("logprobs").list.eval(pl.element().is_null()).list.any().any()
        & ~pl.col("prompt_tokens").list.eval(pl.element().is_null()).list.any().any()
    )
    return frame if frame.height and whole_rows.item() else None


def _cut(column: pl.Series) -> list[Array]:
    ends = column.list.len().cum_sum().to_numpy()
    flat = column.explode(empty_as_null=False).to_numpy()
    return np.split(flat, ends[:-1])


class _Reader:
    """Turns rows into the tables."""

    def __init__(self, file: RunFile) -> None:
        self._root = file.rel.rsplit("_rollouts_", 1)[0]
        self._sequences, self._samples = SequenceRows(), Samples(file, PARSER.name)
        self._counts = dict.fromkeys((UNUSABLE, MORE_RUNS, WITHOUT_LOGPS), 0)
        self._facts: dict[str, str | int | float | bool | None] = {"framework": "open-instruct"}

    def add(self, record: dict[str, Any] | None) -> Iterator[Piece]:
        if record is not None and record.keys() == METADATA:
            self._facts["model"] = as_id(record["model_name"])
            return
        row = None if record is None else self._row(record)
        if row is None and record is not None and record.get("logprobs") is None and self._sample(record):
            self._counts[WITHOUT_LOGPS] += 1
        elif row is None:
            self._counts[UNUSABLE] += 1
        else:
            yield from self._sequences.add(row)

    def _row(self, record: dict[str, Any]) -> TokenRow | None:
        """Read one sample into the tables; None if it lacks a step or tokens with as many log-probabilities."""
        columns, (tokens, logps) = _columns(record, self._root), _arrays(record)
        if columns is None or tokens is None or logps is None or not len(tokens):
            return None
        calls = as_int64(nested(record, "request_info", "num_calls"))
        stats = _stats(nested(record, "request_info", "tool_call_stats"))
        mask, more = model_mask(logps, calls)
        self._counts[MORE_RUNS] += more
        outcome = _outcome(record)
        advantage = outcome["advantage"]
        # A turn begins where the mask rises, an observation where it falls.
        edges = np.diff(mask.astype(np.int8), prepend=0)
        turns, observations = int((edges == 1).sum()), int((edges[1:] == -1).sum()) + int(not mask[0])
        if columns["trajectory_id"] is not None:
            made = {
                "n_turns": turns,
                "n_tool_calls": as_int32(calls),
                "n_tool_fail": sum(call["ok"] is False for call in stats) if stats else None,
            }
            self._samples.put(columns["trajectory_id"], columns | outcome | made, calls=stats)
        if stats and len(stats) == observations:
            columns["tool_names"] = [call["name"] for call in stats]
            columns["tool_failed"] = [None if call["ok"] is None else not call["ok"] for call in stats]
        return TokenRow(
            token_ids=tokens,
            model_mask=mask,
            rollout_logp=logps,
            advantage=None if advantage is None else np.full(len(tokens), advantage, np.float32),
            told=columns,
        )

    def _sample(self, record: dict[str, Any]) -> bool:
        """Read a sample without its tokens; False where nothing identifies it."""
        columns = _columns(record, self._root)
        if columns is None or columns["trajectory_id"] is None:
            return False
        self._samples.put(columns["trajectory_id"], columns | _outcome(record))
        return True

    def take(self) -> Iterator[Piece]:
        yield from self._sequences.take()
        yield from self._samples.take()

    def close(self) -> Iterator[Piece]:
        yield from count_notes(self._samples.file, self._counts, lost=(UNUSABLE,))
        yield Context(facts=self._facts)


def _columns(record: dict[str, Any], root: str) -> dict[str, Any] | None:
    """Return what places and pays a sample; None without a step."""
    step = as_int64(record.get("step")) if not isinstance(record.get("step"), str) else None
    if step is None:
        return None
    sample, group = (as_id(record.get(name)) for name in ("sample_idx", "prompt_idx"))
    prompt = record.get("prompt_tokens")
    prompt = prompt if isinstance(prompt, np.ndarray) else token_array(prompt)
    return {
        "step": step,
        "sample_id": None if sample is None else f"{step}/{sample}",
        "group_id": None if group is None else f"{step}/{group}",
        "trajectory_id": None if sample is None else f"{root}:{step}/{sample}",
        "prompt_hash": None if prompt is None or not len(prompt) else digest(prompt.tolist()),
        "env": as_name(record.get("dataset")),
        "reward": as_number(record.get("reward")),
    }


def _outcome(record: dict[str, Any]) -> dict[str, Any]:
    stop = as_name(record.get("finish_reason"))
    return {
        "split": "train",
        "advantage": as_number(record.get("advantage")),
        "truncated": None if stop is None else stop == "length",
        "stop_reason": stop,
    }


def _arrays(record: dict[str, Any]) -> tuple[Array | None, Array | None]:
    tokens, logps = record.get("response_tokens"), record.get("logprobs")
    if isinstance(tokens, np.ndarray) and isinstance(logps, np.ndarray):
        return tokens, logps
    ids = token_array(tokens)
    return ids, None if ids is None else logp_array(logps, len(ids))


def _stats(listed: Any) -> list[dict[str, Any]]:
    """Return the sample's tool calls as rows."""
    return [
        {
            "turn_idx": at,
            "call_idx": at,
            "name": as_name(call.get("tool_name")),
            "ok": as_flag(call.get("success")),
            "ok_source": "unknown" if as_flag(call.get("success")) is None else "flag",
            "latency_s": as_number(call.get("runtime")),
        }
        for at, call in enumerate(dicts_in(listed))
    ]


PARSER = Parser(
    name="open_instruct",
    describes="open-instruct's saved rollouts: engine log-probabilities, rewards, tool calls with success and runtime.",
    held_against="source: allenai/open-instruct `rl_utils.py`",
    priority=10,
    recognises=recognises,
    read=read,
)
