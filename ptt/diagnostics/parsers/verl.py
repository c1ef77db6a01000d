"""veRL's saved rollouts as pickles, and its rollout and validation samples as text.

Pickles: `tq_batch.pt` (trainer v1) and `gen_batch.dp` or others of a DataProto.

Texts, scores and reward components, one file a step (verl-project/verl, verl/trainer/ppo/ray_trainer.py,
`_dump_generations`; verl/trainer/ppo/v1/trainer_base.py for `uid`): `{step}.jsonl` with input, output, gts, score, step
and the reward function's extra values. Special tokens are dropped from the texts, so that tool calls are not known;
`num_turns` counts all turns with the prompt (verl/experimental/agent_loop/tool_agent_loop.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

import numpy as np

from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile, any_line
from ptt.diagnostics.parsers.io.lines import begins_with
from ptt.diagnostics.parsers.io.token_dumps import (
    Batch,
    integer,
    names_in,
    node,
    read_batch,
    samples_of,
    sequences,
    step_named,
)
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_lines, split_of_path
from ptt.diagnostics.parsers.io.values import as_count, as_label, as_score, as_step, nested
from ptt.diagnostics.parsers.unpickle import Node, Plain, RefusedError, array_of

BY_NUMPY: Final = 3  # parts: batch size, device, tensors
BATCHES_KEYS: Final = frozenset({"tensordict", "verl.protocol", "response_mask", "DataProto"})


def recognises_batches(file: RunFile) -> bool:
    """Recognise a file by the classes named in the pickle."""
    names = names_in(file, BATCHES_KEYS)
    return {"verl.protocol", "DataProto"} <= names or {"tensordict", "response_mask"} <= names


def read_batches(file: RunFile) -> Iterator[Piece]:
    """Yield the sequences of one saved rollout."""
    yield from read_batch(file, _pieces, lacking="has no response_mask where veRL writes it", framework="verl")


def _pieces(file: RunFile, dump: Plain) -> Iterator[Piece] | None:
    batch, step = _queue(dump) if isinstance(dump, dict) else _data_proto(dump)
    samples = samples_of(batch, step_named(file.path) if step is None else step)
    return None if samples is None else sequences(file, samples)


def _queue(dump: Plain) -> tuple[Batch, int | None]:
    """Read a tq_batch: fields of a TensorDict, keys and tags beside it."""
    tensors = node(nested(dump, "tensordict"), "_make_td")
    fields = nested(tensors.args[1], "_tensordict") if tensors is not None and len(tensors.args) > 1 else None
    batch: Batch = {str(name): _field(value) for name, value in fields.items()} if isinstance(fields, dict) else {}
    keys, tags = nested(dump, "keys"), nested(dump, "tags")
    if isinstance(keys, list):
        batch["sample_id"] = keys
        texts = [key for key in keys if isinstance(key, str)]
        if "uid" not in batch and len(texts) == len(keys):
            batch["group_id"] = [key.rsplit("_", 2)[0] for key in texts]
    if "uid" in batch:
        batch["group_id"] = batch.pop("uid")
    if isinstance(tags, list):
        batch["policy_version"] = [nested(tag, "min_global_steps") for tag in tags]
    return batch, integer(nested(dump, "global_steps"))


def _field(value: Plain) -> Plain:
    """Read a field: an array, a ragged tensor as a list of arrays, or a list of other values."""
    ragged = node(value, "_rebuild_njt")
    if ragged is not None and ragged.args:
        return _ragged(ragged.args[0])
    stack = node(value, "NonTensorStack")
    if stack is not None:
        parts = nested(stack.state, "tensordicts")
        return [_alone(part) for part in parts] if isinstance(parts, list) else None
    return value


def _alone(entry: Plain) -> Plain:
    return nested(entry.state, "non_tensordict", "data") if isinstance(entry, Node) else None


def _ragged(tensor: Plain) -> Plain:
    values, offsets, lengths = nested(tensor, "values"), nested(tensor, "offsets"), nested(tensor, "lengths")
    if not (isinstance(values, np.ndarray) and values.ndim == 1 and isinstance(offsets, np.ndarray)):
        return None
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or (np.diff(offsets) < 0).any():
        raise RefusedError("a ragged tensor's offsets fall")
    if len(offsets) and not 0 <= offsets[0] <= offsets[-1] <= len(values):
        raise RefusedError("a ragged tensor reaches beyond its values")
    spans = list(pairwise(offsets))
    if isinstance(lengths, np.ndarray) and lengths.ndim == 1 and len(lengths) == len(spans):
        return [values[start:end][: max(0, int(count))] for (start, end), count in zip(spans, lengths, strict=True)]
    return [values[start:end] for start, end in spans]


def _data_proto(dump: Plain) -> tuple[Batch, int | None]:
    """Read a DataProto: a consolidated TensorDict or arrays by name, then columns that are not tensors, and facts."""
    proto = node(dump, "DataProto")
    batch: Batch = {}
    for part in proto.state if proto is not None and isinstance(proto.state, list) else []:
        packed = node(part, "_rebuild_tensordict_files_consolidated")
        if packed is not None and len(packed.args) == 2:
            batch |= _leaves(packed.args[0], packed.args[1])
        elif isinstance(part, list) and len(part) == BY_NUMPY and isinstance(encoded := part[2], dict):
            batch |= {str(name): _encoded(value) for name, value in encoded.items()}
        elif isinstance(part, dict):
            batch |= {str(name): value for name, value in part.items() if str(name) not in batch}
    return batch, integer(batch.get("global_steps"))


def _encoded(tensor: Plain) -> Plain:
    """Read a tensor by VERL_DATAPROTO_SERIALIZATION_METHOD=numpy: type, shape, bytes; or a layout and such a list."""
    match tensor:
        case [str(), list(rows)]:
            return [_encoded(row) for row in rows]
        case [str(dtype), shape, np.ndarray() as data]:
            return array_of(data, dtype, shape)
    return None


def _leaves(layout: Plain, body: Plain) -> Batch:
    leaves = nested(layout, "leaves")
    batch: Batch = {}
    if not isinstance(leaves, dict) or not isinstance(body, np.ndarray) or body.ndim != 1:
        return batch
    for name, leaf in leaves.items():
        if not isinstance(leaf, list) or len(leaf) < 4:
            continue
        start, stop = integer(leaf[2]), integer(leaf[3])
        if start is None or stop is None or not 0 <= start <= stop <= len(body):
            raise RefusedError("a tensor lies outside its archive")
        batch[str(name)] = array_of(body[start:stop], leaf[0], leaf[1])
    return batch


BATCHES = Parser(
    name="verl_batches",
    describes="veRL's saved rollouts (`tq_batch.pt`, `gen_batch.dp`, pickles of a DataProto): log-probabilities of the "
    "engine, and of trainer and reference where the batch holds them.",
    held_against="real: veRL 0.9.1's DataProto and TransferQueue dumps",
    priority=20,
    recognises=recognises_batches,
    read=read_batches,
)


ROLLOUTS_KEYS: Final = frozenset({"input", "output", "score", "step"})
OWN: Final = ROLLOUTS_KEYS | {"gts", "uid", "request_id", "data_source", "num_turns", "__num_turns__"}
LENGTHS: Final = ("response_tokens", "response_length", "num_output_tokens", "completion_tokens")
SPECIAL: Final = re.compile(r"<\|[a-z_]{1,30}\|>|</s>|<pad>|<eos>|\[PAD\]")
UID: Final = re.compile(r"(?P<prompt>.+)_\d+_\d+")  # {prompt}_{session}_{output}


def recognises_rollouts(file: RunFile) -> bool:
    """Recognise lines with the keys of a dumped generation."""
    return begins_with(file, lambda row: row.keys() >= ROLLOUTS_KEYS)


def read_rollouts(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a row; of validation files also the mean of each score."""
    yield from read_lines(file, ROLLOUTS.name, _add, {"framework": "verl"})


def _add(record: dict[str, Any], samples: Samples) -> bool:
    step, output = as_step(record.get("step")), record.get("output")
    if step is None or not isinstance(output, str):
        return False
    score = _score(record.get("score"))
    extras = {name: value for name, kept in record.items() if name not in OWN and (value := as_score(kept)) is not None}
    split = split_of_path(samples.file.rel)
    if split == "unknown" and "reward" in record:  # only the validation puts the reward among the extra values
        split = "eval"
    uid = as_label(record.get("uid"))
    group = UID.fullmatch(uid) if uid else None
    suite = as_label(record.get("data_source"))
    turns = _turns(record.get("num_turns", record.get("__num_turns__")))
    samples.add(
        Sample(
            step=step,
            split=split,
            completion=output,
            identity=[step, split, record.get("input"), output, score, extras, uid],
            prompt=record.get("input"),
            reward=score,
            components=extras,
            asked=record.get("input"),
            columns={
                "sample_id": uid,
                "group_id": group["prompt"] if group else None,
                "env": suite,
                "tokens_out": _tokens(record, output),
                **({} if turns is None else {"n_turns": turns}),
            },
            expected=record.get("gts"),
        )
    )
    if split == "eval":
        for name, value in {"score": score, **extras}.items():
            samples.mean(suite or "validation", step, name, value)
    return True


def _tokens(record: dict[str, Any], output: str) -> int | None:
    """Return the response's tokens, where the reward function's extra values tell them; a blank text has none."""
    told = next((count for key in LENGTHS if (count := as_count(record.get(key))) is not None), None)
    return told if told is not None or SPECIAL.sub("", output).strip() else 0


def _turns(found: Any) -> int | None:
    """Return the turns of the assistant: veRL counts the prompt and the tools' turns between them too."""
    turns = as_count(found)
    return None if turns is None else turns // 2


def _score(value: Any) -> float | None:
    """Read a score; numpy's and torch's may have come out as text."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:  # the text of a tensor or of nothing
            return None
    return as_score(value)


ROLLOUTS = Parser(
    name="verl_rollouts",
    describes="veRL's rollout_data_dir and validation_data_dir: trajectories, reward components, evaluations.",
    held_against="real: veRL 0.9.1's `_write_generations`",
    priority=10,
    of_training=False,
    splits=any_line,
    recognises=recognises_rollouts,
    read=read_rollouts,
)
