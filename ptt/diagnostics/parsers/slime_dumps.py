"""slime's and miles' debug dumps: what was sampled (rollout data) and what was trained on (train data, v1 and v2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.token_dumps import (
    Array,
    Sample,
    content,
    identifier,
    integer,
    line,
    names_in,
    number,
    read_batch,
    sampled,
    sequences,
)
from ptt.diagnostics.parsers.io.values import nested
from ptt.diagnostics.parsers.unpickle import Plain

KEYS: Final = frozenset({"rollout_id", "samples", "rollout_data", "response_length", "group_index", "format_version"})
TRAIN, ROLLOUT = "train_data", "rollout_data"
INT64_DIGITS: Final = 19
SPLIT: Final = "; log-probabilities split over context-parallel ranks (format 1) cannot be joined"
# slime's name of a list, and ours. Its log_probs are recomputed at the start of the step.
LISTS: Final = {
    "rollout_log_probs": "rollout_logp",
    "log_probs": "old_logp",
    "ref_log_probs": "ref_logp",
    "entropy": "entropy",
    "advantages": "advantage",
}
Record = dict[str | int, Plain]


def recognises(file: RunFile) -> bool:
    """Recognise a file by the keys of the dump."""
    if not file.name.endswith(".pt"):
        return False
    names = names_in(file, KEYS)  # what comes before the first sample's tokens, which may be many
    whole = {"rollout_id", "samples"} <= names and names & {"response_length", "group_index", "format_version"}
    return bool(whole) or {"rollout_id", "rollout_data"} <= names


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the sequences of one rollout; the rollout data only where no train data hold the same."""
    if file.name.startswith("eval_"):
        yield Lost(note=f"{file.rel} contains evaluation samples, not training data; it was not read.")
        return
    lacking = "has no rollout_id and no samples where slime writes them"
    yield from read_batch(file, _pieces, lacking=lacking, framework="slime")


def _pieces(file: RunFile, dump: Plain) -> Iterator[Piece] | None:
    step = integer(nested(dump, "rollout_id"))
    if not isinstance(dump, dict) or step is None:
        return None
    samples = _samples(dump)
    if not _is_rollout(dump):
        origins, rank, rewards = _origins(file, step), integer(dump.get("rank")), _raw_rewards(dump, samples)
        pairs = zip(samples, rewards, strict=True)
        return sequences(file, [_trained(sample, step, rank, reward, origins) for sample, reward in pairs], why=SPLIT)
    if _beside(file, TRAIN, step) is not None:
        note = f"{file.rel}: skipped, because the train data of this rollout contain the same sequences."
        return iter([Lost(note=note)])
    return sequences(file, [_sampled(sample, step) for sample in samples])


def _is_rollout(dump: Record) -> bool:
    return "format_version" not in dump and "rollout_data" not in dump


def _samples(dump: Record) -> list[Record]:
    samples = dump.get("samples")
    if isinstance(samples, list):
        return [sample for sample in samples if isinstance(sample, dict)]
    columns = dump.get("rollout_data")  # format 1: a list a field
    if not isinstance(columns, dict):
        return []
    dump.setdefault("raw_reward", columns.get("raw_reward"))
    lengths = line(columns.get("response_lengths"))
    count = 0 if lengths is None else len(lengths)
    names = {"sample_indices": "sample_index", "partition": "rollout_position"}
    fitting = {
        names.get(str(name), name): row for name, column in columns.items() if len(row := _entries(column)) == count
    }
    return [dict(zip(fitting, row, strict=True)) for row in zip(*fitting.values(), strict=True)]


def _raw_rewards(dump: Record, samples: list[Record]) -> list[float | None]:
    """Return each sample's reward before normalisation: they lie in the order of the rollout, not of the samples."""
    rewards = line(dump.get("raw_reward"))
    if rewards is None:
        return [None] * len(samples)
    positions = [integer(sample.get("rollout_position")) for sample in samples]
    if None in positions:
        shards = dump.get("dp_shards")
        indices = line(nested(shards[0], "sample_indices")) if isinstance(shards, list) and len(shards) == 1 else None
        order = {} if indices is None else {index: at for at, index in enumerate(indices.tolist())}
        positions = [order.get(integer(sample.get("sample_index"))) for sample in samples]
    known = range(len(rewards))
    return [number(rewards[at : at + 1]) if at is not None and at in known else None for at in positions]


def _entries(column: Plain) -> list[Plain]:
    """Return a column's entries, one a sample; nothing if it is not a column."""
    if isinstance(column, np.ndarray):
        return column.tolist() if column.ndim == 1 else list(column) if column.ndim else []
    return column if isinstance(column, list) else []


def _tail(sample: Record, count: int | None) -> Array | None:
    """Return the ids of the response, the last `count` of the tokens."""
    tokens = line(sample.get("tokens"), np.int64)
    return None if tokens is None or count is None or not 0 < count <= len(tokens) else tokens[-count:]


def _lists(sample: Record) -> Sample:
    return {column: line(sample.get(key)) for key, column in LISTS.items()}


def _trained(sample: Record, step: int, rank: int | None, reward: float | None, origins: dict[int, Sample]) -> Sample:
    """Convert one sample of the train data."""
    lists = _lists(sample)
    mask = line(sample.get("loss_masks"))
    index = integer(sample.get("sample_index"))
    shard, position = integer(sample.get("data_parallel_rank")), integer(sample.get("rollout_position"))
    placed = None if position is None else f"{step}-{position}"  # with the step, since positions restart at each
    return {
        **(origins.get(index, {}) if index is not None else {}),
        "step": step,
        "sample_id": identifier(index) if index is not None else placed,
        "rank": shard if shard is not None else rank,
        "reward": reward if reward is not None else number(sample.get("rewards")),
        "token_ids": _tail(sample, integer(sample.get("response_lengths"))),
        "model_mask": None if mask is None else sampled(mask, lists["rollout_logp"]),
        "train_mask": mask,
        **lists,
    }


def _sampled(sample: Record, step: int) -> Sample:
    """Convert one sample of the rollout data."""
    lists = _lists(sample)
    count = integer(sample.get("response_length")) or 0
    mask = line(sample.get("loss_mask"))
    if mask is None:  # one turn, no tools
        mask = np.ones(max(0, min(count, 1 << 24)), np.int64)
    removed = sample.get("remove_sample") is True
    return {
        "step": step,
        "sample_id": identifier(sample.get("index")),
        "token_ids": _tail(sample, count),
        "model_mask": sampled(mask, lists["rollout_logp"]),
        "train_mask": np.zeros(len(mask)) if removed else mask,
        "reward": number(sample.get("reward")),
        **_origin(sample),
        **lists,
    }


def _origin(sample: Record) -> Sample:
    versions = sample.get("weight_versions")
    texts = [text for text in versions if isinstance(text, str)] if isinstance(versions, list) else []
    known = [int(text) for text in texts if text.isdecimal() and len(text) < INT64_DIGITS]
    return {
        "group_id": identifier(sample.get("group_index")),
        "policy_version": min(known, default=None),  # a rollout that was interrupted has several: the stalest counts
    }


def _origins(file: RunFile, step: int) -> dict[int, Sample]:
    """Return what only the rollout data say about each sample, by index."""
    beside = _beside(file, ROLLOUT, step)
    dump = content(beside)[0] if beside is not None else None
    if not isinstance(dump, dict) or not _is_rollout(dump):
        return {}
    known = {integer(sample.get("index")): _origin(sample) for sample in _samples(dump)}
    return {index: origin for index, origin in known.items() if index is not None}


def _beside(file: RunFile, folder: str, step: int) -> RunFile | None:
    """Return the other dump of the same rollout, where --dump-details put it."""
    sibling = file.path.parent.parent / folder
    if file.path.parent.name not in (TRAIN, ROLLOUT) or file.path.parent.name == folder or sibling.is_symlink():
        return None
    try:
        names = [name for name in (f"{step}.pt", f"{step}_0.pt") if (sibling / name).is_file()]
        path = sibling / names[0] if names else None
        if path is None or path.is_symlink():
            return None
        return RunFile(path=path, rel=f"{folder}/{path.name}", size=path.stat().st_size)
    except OSError:
        return None


PARSER = Parser(
    name="slime_dumps",
    describes="Debug dumps of slime and miles (`.pt`, train data of formats 1 and 2, rollout data): log-probabilities "
    "of trainer, engine and reference, token by token.",
    held_against="real: slime's `save_debug_train_data`, replaying a recorded run; format 2 by source",
    priority=20,
    recognises=recognises,
    read=read,
)
