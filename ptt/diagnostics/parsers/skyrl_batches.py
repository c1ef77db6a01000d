"""SkyRL's training batches (`dump_data_batch=true`): pickles whose rows are aligned to the right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.token_dumps import (
    Array,
    Sample,
    grid,
    line,
    names_in,
    node,
    read_batch,
    sampled,
    sequences,
    step_named,
)
from ptt.diagnostics.parsers.io.values import nested
from ptt.diagnostics.parsers.unpickle import Plain, array_of

KEYS: Final = frozenset({"_rebuild_tensor_batch", "batch_dict"})
BUILDER: Final = "_rebuild_tensor_batch"
# SkyRL's name of a list, and ours. Its action_log_probs are the trainer's own, at the start of the step.
LISTS: Final = {
    "rollout_logprobs": "rollout_logp",
    "action_log_probs": "old_logp",
    "base_action_log_probs": "ref_logp",
    "advantages": "advantage",
    "loss_mask": "train_mask",
}


def recognises(file: RunFile) -> bool:
    """Recognise a file by the function that rebuilds the batch."""
    return file.name.endswith(".pkl") and names_in(file, KEYS) == KEYS


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the sequences of one batch; only the file's name gives the step."""
    yield from read_batch(file, _pieces, lacking="has no response_mask where SkyRL writes it", framework="skyrl")


def _pieces(file: RunFile, dump: Plain) -> Iterator[Piece] | None:
    batch = node(dump, BUILDER)
    state = batch.args[1] if batch is not None and len(batch.args) > 1 else None
    packed = nested(state, "batch_dict")
    fields = {str(name): _tensor(value) for name, value in packed.items()} if isinstance(packed, dict) else {}
    responses = grid(fields.get("response_mask"))
    if responses is None:
        return None
    step, groups = step_named(file.path), _groups(nested(state, "metadata", "policy_prompt_boundaries"), len(responses))
    named = [  # with the step, since row numbers restart at each
        {"step": step, "sample_id": f"{step}-{at}", "group_id": None if group is None else f"{step}-{group}"}
        for at, group in enumerate(groups)
    ]
    samples = [{**_sample(fields, responses[at] != 0, at), **names} for at, names in enumerate(named)]
    return sequences(file, samples)


def _tensor(packed: Plain) -> Plain:
    """Undo SkyRL's own packing of a tensor: NumPy bytes, or an archive by torch where NumPy lacks the type."""
    match packed:
        case {"format": str(way), "data": data}:
            return array_of(data, nested(packed, "dtype"), nested(packed, "shape")) if way == "numpy" else data
    return None


def _sample(fields: dict[str, Plain], keep: Array, at: int) -> Sample:
    """Cut row `at` of each list to the response, which is the end of the sequence."""
    lists = {column: _row(fields.get(key), keep, at) for key, column in LISTS.items()}
    ids, trained, rollout = grid(fields.get("sequences")), lists["train_mask"], lists["rollout_logp"]
    model = None if trained is None else sampled(trained, rollout)
    if model is not None and not model.any():  # nothing tells tools from text
        model = np.ones(len(model), np.bool_)
    if model is not None and rollout is not None and len(model) and rollout[-1] == 0.0:
        model = model.copy()
        model[-1] = False  # an end of sequence that SkyRL appended: nobody sampled it
    tail = None if ids is None or ids.shape[1] < len(keep) else ids[:, ids.shape[1] - len(keep) :]
    return {**lists, "token_ids": _row(tail, keep, at), "model_mask": model}


def _row(tensor: Plain, keep: Array, at: int) -> Array | None:
    values = grid(tensor)
    return None if values is None or len(values) <= at or values.shape[1] != len(keep) else values[at][keep]


def _groups(boundaries: Plain, count: int) -> list[str | None]:
    """Number the prompts by (first row, row after the last); rows that pad the batch have none."""
    groups: list[str | None] = [None] * count
    for number, part in enumerate(boundaries if isinstance(boundaries, list) else ()):
        pair = line(part)
        if pair is None or len(pair) != 2 or pair.dtype.kind not in "iu" or not 0 <= pair[0] <= pair[1] <= count:
            return [None] * count
        groups[pair[0] : pair[1]] = [str(number)] * int(pair[1] - pair[0])
    return groups


PARSER = Parser(
    name="skyrl_batches",
    describes="SkyRL training batches (`global_step_N_training_input.pkl`): log-probabilities of trainer, engine and "
    "reference, token by token.",
    held_against="real: SkyRL 0.3's serialiser",
    priority=20,
    recognises=recognises,
    read=read,
)
