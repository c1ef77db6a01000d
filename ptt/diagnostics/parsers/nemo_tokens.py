"""NeMo-RL's `train_data_step{N}.jsonl`, written by default: log-probabilities of engine and trainer, token by token.

One row a sample, each field in a list of one; all lists cover prompt and response and are padded to the longest row of
the batch. Entry t is the log-probability of token t, 0.0 where nothing was generated. Written by
`Logger.log_batched_dict_as_jsonl` (NVIDIA-NeMo/RL, nemo_rl/utils/logger.py) from nemo_rl/algorithms/grpo.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.csv as pc

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile
from ptt.diagnostics.parsers.io.lines import first_objects, json_object
from ptt.diagnostics.parsers.io.token_lines import Shape, flat, frames, listed, lost_rows, responses
from ptt.diagnostics.schema import SEQUENCES

Array = npt.NDArray[Any]
Cuts = list[tuple[int, int]]

OPEN: Final = b"[["
BETWEEN: Final = b",nan,"
BREAKS: Final = bytes.maketrans(b",", b"\n")
ONE: Final = ord("1")
# What says that a text is not spelt the way this reads: numpy warns where it stops short.
UNLIKE: Final = (
    ValueError, TypeError, IndexError, RecursionError, DeprecationWarning, pa.ArrowException, pl.exceptions.PolarsError,
)  # fmt: skip
INT32: Final = np.iinfo(np.int32)
LONGEST_SINGLE: Final = 64  # characters of a value that is no long list


def read_lists(
    block: bytes, *, lists: dict[str, pa.DataType], singles: tuple[str, ...], mask: str
) -> pl.DataFrame | None:
    """Read the lists and single values of each line; None where some line is unlike the first, or damaged.

    `lists`: name and type of the long ones; all lists of a row must have one length. `mask`: the one of them that is 0
    and 1, where the others are mostly 0.0 outside.
    """
    first = json_object(block[: block.find(b"\n") + 1])
    if first is None or not (lists.keys() | set(singles)) <= first.keys():
        return None
    texts = _cut(block, list(first), lists, singles)
    if texts is None:
        return None
    length = _mask_lengths(texts[mask])
    try:
        values = {name: [json.loads(text) for text in texts[name]] for name in singles}
        marked = _mask(texts[mask], length)
        columns = {name: pl.Series(name, found, strict=True) for name, found in values.items()}
        offsets = np.concatenate([[0], np.cumsum(length)])
        for name, kind in lists.items():
            flat = marked if name == mask else _numbers(texts[name], kind, marked, offsets)
            array = pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(flat))
            columns[name] = pl.Series(name, pl.from_arrow(array))
    except UNLIKE:
        return None
    return pl.DataFrame(columns)


def _cut(
    block: bytes, order: list[str], lists: dict[str, pa.DataType], singles: tuple[str, ...]
) -> dict[str, list[bytes]] | None:
    """Cut the text of each value out of each line, following the keys in their order."""
    texts: dict[str, list[bytes]] = {name: [] for name in (*lists, *singles)}
    keys = [(name, (b", " if at else b"{") + json.dumps(name).encode() + b": ") for at, name in enumerate(order)]
    last = texts.get(order[-1])
    at = 0
    while at < len(block):
        line_end = block.find(b"\n", at)
        known = True  # whether all up to here was cut, so that the next key stands right here
        for name, key in keys:
            found = block.find(key, at, at + len(key) if known else line_end)
            if found < 0:
                return None
            at, known = found + len(key), name in texts
            if not known:
                continue
            end = _end(block, at, line_end) if name in lists else _single_end(block, at, line_end)
            if end is None:
                return None
            skip = 2 if name in lists else 0
            texts[name].append(block[at + skip : end - skip])
            at = end
        if last is not None and block[at:line_end].strip() != b"}":
            return None
        at = line_end + 1
    return texts


def _end(block: bytes, at: int, line_end: int) -> int | None:
    """Find the end of a list in a list of one."""
    end = block.find(b"]", at, line_end)
    return end + 2 if block.startswith(OPEN, at) and block.startswith(b"]]", end) else None


def _single_end(block: bytes, at: int, line_end: int) -> int | None:
    """Find the end of a short value."""
    stop = min(line_end, at + LONGEST_SINGLE)
    ends = [end for end in (block.find(b', "', at, stop), block.find(b"}", at, stop)) if end >= 0]
    return min(ends) if ends else None


def _mask_lengths(texts: list[bytes]) -> Array:
    """Tell how many entries each mask has from the length of its text; `_mask` makes sure of the spelling."""
    width = 5 if texts[0][1:2] == b"." else 3
    return np.array([(len(text) + 2) // width for text in texts])


def _mask(texts: list[bytes], length: Array) -> Array:
    """Read 0 and 1, with or without a decimal place, by their place in the text."""
    data = np.frombuffer(b", ".join(texts) + b", ", np.uint8)
    total = int(length.sum())
    wide = b"0.0, " if len(data) == 5 * total else b"0, "
    if len(data) != len(wide) * total:
        raise ValueError("a mask is spelt in another way")
    table = data.reshape(total, len(wide))
    if not ((table[:, 1:] == np.frombuffer(wide, np.uint8)[1:]).all() and ((table[:, 0] | 1) == ONE).all()):
        raise ValueError("a mask holds something else than 0 and 1")
    found: Array = table[:, 0] == ONE
    return found


def _numbers(texts: list[bytes], kind: pa.DataType, marked: Array, offsets: Array) -> Array:
    """Read numbers; runs of zeros outside the marked part, and lists of one value, are not read digit by digit."""
    dtype = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    if kind == pa.float32() and (same := _constant(texts, offsets)) is not None:
        return np.repeat(same.astype(dtype), np.diff(offsets))
    if kind != pa.float32():
        return _integers(texts, np.diff(offsets).tolist())
    ones = np.flatnonzero(marked)
    before = np.append(ones, offsets[-1])[np.searchsorted(ones, offsets[:-1])]
    after = np.append(ones, -1)[np.searchsorted(ones, offsets[1:]) - 1] + 1
    kept, ranges = [], []
    for text, start, stop, one, last in zip(
        texts, offsets[:-1].tolist(), offsets[1:].tolist(), before.tolist(), after.tolist(), strict=True
    ):
        if not start <= one < last <= stop:
            kept.append(text)
            ranges.append((start, stop))
            continue
        head, tail = b"0.0, " * (one - start), b", 0.0" * (stop - last)
        left, right = text.startswith(head), text.endswith(tail)
        kept.append(text[len(head) if left else 0 : len(text) - (len(tail) if right else 0)])
        ranges.append((one if left else start, last if right else stop))
    # A NaN between rows: where it comes out elsewhere, some list has not the length of its row's mask.
    values = _parsed([BETWEEN.join(kept)], kind, sum(stop - start + 1 for start, stop in ranges) - 1)
    found = np.zeros(int(offsets[-1]), dtype)
    at = 0
    for start, stop in ranges:
        found[start:stop] = values[at : at + stop - start]
        at += stop - start + 1
        if at < len(values) and not np.isnan(values[at - 1]):
            raise ValueError("the lists of a row differ in length")
    return found


def _integers(texts: list[bytes], sizes: list[int]) -> Array:
    """Read integers row by row: for them numpy is twice as fast as a CSV reader.

    It stops at what is no integer, so the last one of each row is read once more by itself.
    """
    rows = [np.fromstring(text.decode("ascii"), np.int64, sep=",") for text in texts]
    if any(int(text[text.rfind(b",") + 1 :]) != row[-1] for text, row in zip(texts, rows, strict=True)):
        raise ValueError("a list holds something else than integers")
    whole = np.concatenate(rows)
    if [len(row) for row in rows] != sizes or not (whole.min() >= INT32.min and whole.max() <= INT32.max):
        raise ValueError("a list is of another length, or holds an integer beyond 32 bits")
    return whole.astype(np.int32)


def _constant(texts: list[bytes], offsets: Array) -> Array | None:
    """Give the one value of each row, where each row is that value over and over: an advantage."""
    values = []
    for text, count in zip(texts, np.diff(offsets).tolist(), strict=True):
        value = text[: text.find(b",")] if count > 1 else text
        if text != b", ".join([value] * count):
            return None
        values.append(value)
    return _parsed(values, pa.float32(), len(values))


def _parsed(texts: list[bytes], kind: pa.DataType, total: int) -> Array:
    data = b"\n".join(texts).translate(BREAKS)
    table = pc.read_csv(
        pa.py_buffer(data),
        read_options=pc.ReadOptions(column_names=["value"], use_threads=False, block_size=max(1, len(data) + 1)),
        parse_options=pc.ParseOptions(delimiter="\t", quote_char=False, ignore_empty_lines=False),
        convert_options=pc.ConvertOptions(column_types={"value": kind}, null_values=[], strings_can_be_null=False),
    )
    column = table.column("value").combine_chunks()
    if len(column) != total or column.null_count:
        raise ValueError("a list holds something else than numbers")
    found: Array = column.to_numpy()
    return found


NAME: Final = re.compile(r"train_data_step(\d{1,15})\.jsonl(?:\.gz|\.zst)?", re.ASCII)
KEYS: Final = frozenset({"token_ids", "token_loss_mask", "input_lengths"})
FLOATS: Final = pl.List(pl.List(pl.Float32))
SHAPE: Final[Shape] = {
    "idx": pl.Int64(),
    "input_lengths": pl.List(pl.Int64),
    "rewards": pl.List(pl.Float64),
    "sample_loss_mask": pl.List(pl.Float64),
    "token_ids": pl.List(pl.List(pl.Int32)),
    "token_loss_mask": FLOATS,
    "advantages": FLOATS,
    "generation_logprobs": FLOATS,
    "prev_logprobs": FLOATS,
}
SINGLES: Final = ("idx", "input_lengths", "rewards", "sample_loss_mask")
TEXT_LISTS: Final = {name: pa.int32() if name == "token_ids" else pa.float32() for name in SHAPE if name not in SINGLES}
WHOLE: Final = "whole"  # the token ids with the prompt
LISTS: Final = {
    "token_ids": "token_ids",
    "advantages": "advantage",
    "generation_logprobs": "rollout_logp",
    "prev_logprobs": "old_logp",
}


def recognises(file: RunFile) -> bool:
    """Say yes by the name, which holds the step, and the keys of the first row."""
    return NAME.fullmatch(file.name) is not None and any(found.keys() >= KEYS for found in first_objects(file, 1))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield sequences from the first generated token to the row's own length."""
    named = NAME.fullmatch(file.name)
    if named is None:
        yield Lost(bytes=file.size, note=f"{file.rel}: its name holds no step, so its rows do not count.")
        return
    step = int(named[1])
    wrong = empty = forced = rows = 0
    for frame in frames(file, SHAPE, first=_first):
        if isinstance(frame, Lost):
            yield frame
            continue
        found, unequal, silent = _sequences(frame, step, rows)
        rows += frame.height
        wrong, empty = wrong + unequal, empty + silent
        if found.height and "old_logp" not in found.columns:
            forced += found.height
        if found.height:
            yield Rows(table="sequences", frame=found)
    yield from lost_rows(file, wrong, empty)
    if forced:
        note = (
            f"{file.rel}: prev_logprobs are 0 on every token of {forced} row(s), as NeMo-RL leaves them under "
            "loss_fn.force_on_policy_ratio=true: left out."
        )
        yield Lost(note=note)
    yield Context(facts={"framework": "nemo-rl"})


def _first(block: bytes) -> pl.DataFrame | None:
    """Read a block by its text, without the lists of one around the values; None where it is not as usual."""
    found = read_lists(block, lists=TEXT_LISTS, singles=SINGLES, mask="token_loss_mask")
    if found is None or any(found.schema[name] != SHAPE[name] for name in SINGLES):
        return None
    return found


def _sequences(frame: pl.DataFrame, step: int, before: int) -> tuple[pl.DataFrame, int, int]:
    """Unwrap the rows and bring them to canonical columns; `before` rows of the file were read already."""
    inner = [name for name in SHAPE if name != "idx"]
    frame = frame.with_row_index("_row", offset=before).with_columns(
        pl.col(name).list.first() for name in inner if frame.schema[name] == SHAPE[name]
    )
    frame, wrong, empty = responses(
        frame.with_columns(pl.col("token_ids").alias(WHOLE)),
        mask="token_loss_mask",
        lists=tuple(LISTS),
        end="input_lengths",
    )
    if not frame.height:
        return frame, wrong, empty
    found = frame.rename({**LISTS, "token_loss_mask": "model_mask", "rewards": "reward"}).with_columns(
        _prompt_groups(frame, step),
        _trained(frame),
        step=pl.lit(step, pl.Int64),
        sample_id=pl.format("{}-{}", pl.lit(step), pl.coalesce(pl.col("idx"), pl.col("_row").cast(pl.Int64))),
    )
    found = found.select(name for name in SEQUENCES if name in found.columns)
    return found if np.any(flat(found["old_logp"].fill_null([]))[1]) else found.drop("old_logp"), wrong, empty


def _trained(frame: pl.DataFrame) -> pl.Series:
    """Mark the tokens that got gradient: the model's, of samples that were not masked out as a whole."""
    mask = frame["token_loss_mask"]
    if not (frame["sample_loss_mask"] == 0).any():
        return mask.alias("train_mask")
    offsets, values = flat(mask)
    counted = frame["sample_loss_mask"].fill_null(1.0).to_numpy() != 0
    return listed(values & np.repeat(counted, np.diff(offsets)), offsets, pl.List(pl.Boolean)).alias("train_mask")


def _prompt_groups(frame: pl.DataFrame, step: int) -> pl.Series:
    """Name groups by their prompt, which generations of one group share; NeMo-RL names none."""
    offsets, values = flat(frame[WHOLE])
    ends = (offsets[:-1] + frame["start"].to_numpy()).tolist()
    names = [
        f"{step}-{blake2b(values[start:end].tobytes(), digest_size=8).hexdigest()}" if end > start else None
        for start, end in zip(offsets[:-1].tolist(), ends, strict=True)
    ]
    return pl.Series("group_id", names, dtype=pl.String)


PARSER = Parser(
    name="nemo_tokens",
    describes="NeMo-RL's train_data_step*.jsonl: log-probabilities of engine and trainer token by token, rewards.",
    priority=10,
    recognises=recognises,
    read=read,
)
