"""SkyRL's training batches (`dump_data_batch=true`): pickles whose rows are aligned to the right."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.token_dumps import (
    Array,
    Sample,
    content,
    grid,
    line,
    names_in,
    nested,
    node,
    sampled,
    sequences,
    step_named,
)
from ptt.diagnostics.parsers.unpickle import Plain, RefusedError, array_of

KEYS: Final = frozenset({"_rebuild_tensor_batch", "batch_dict"})
BUILDER: Final = "_rebuild_tensor_batch"
# SkyRL's name of a list, and ours. Its action_log_probs are the trainer's own, at the start of the step.
LISTS: Final = {
    "rollout_logprobs": "rollout_logp",
    "action_log_probs": "old_logp",
    "base_action_log_probs": "ref_logp",
    "advantages": "advantage",
}


def recognises(file: RunFile) -> bool:
    """Say yes by the function that rebuilds the batch."""
    return file.name.endswith(".pkl") and names_in(file, KEYS) == KEYS


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the sequences of one batch; the step stands in the file's name alone."""
    found, lost = content(file)
    yield from lost
    if found is None:
        return
    batch = node(found, BUILDER)
    state = batch.args[1] if batch is not None and len(batch.args) > 1 else None
    held = nested(state, "batch_dict")
    try:
        fields = {str(name): _tensor(value) for name, value in held.items()} if isinstance(held, dict) else {}
    except RefusedError as error:
        yield Lost(bytes=file.size, note=f"{file.rel} was not read: {error}.")
        return
    responses, ids = grid(fields.get("response_mask")), grid(fields.get("sequences"))
    if responses is None:
        yield Lost(bytes=file.size, note=f"{file.rel} holds no response_mask where SkyRL writes it.")
        return
    yield Context(facts={"framework": "skyrl"})
    groups = _groups(nested(state, "metadata", "policy_prompt_boundaries"), len(responses))
    step = step_named(file.path)
    rows = [_sample(fields, responses[at], ids, at) for at in range(len(responses))]
    yield from sequences(file, [{**row, "step": step, **_named(step, at, groups[at])} for at, row in enumerate(rows)])


def _tensor(told: Plain) -> Plain:
    """Undo SkyRL's own packing of a tensor: NumPy bytes, or an archive by torch where NumPy lacks the type."""
    match told:
        case {"format": str(way), "data": data}:
            return array_of(data, nested(told, "dtype"), nested(told, "shape")) if way == "numpy" else data
        case _:
            return None


def _sample(fields: dict[str, Plain], response: Array, ids: Array | None, at: int) -> Sample:
    keep = response != 0
    lists = {ours: _row(fields.get(theirs), keep, at) for theirs, ours in LISTS.items()}
    trained = _row(fields.get("loss_mask"), keep, at)
    model = None if trained is None else sampled(trained, lists["rollout_logp"])
    if model is not None and trained is not None and not model.any():  # nothing tells tools from text
        model = np.ones(len(trained), np.bool_)
    rollout = lists["rollout_logp"]
    if model is not None and rollout is not None and len(model) and rollout[-1] == 0.0:
        model = model.copy()
        model[-1] = False  # an end of sequence that SkyRL appended: nobody sampled it
    return {
        "token_ids": None if ids is None or len(ids) <= at else _ids(ids[at], keep),
        "model_mask": model,
        "train_mask": trained,
        **lists,
    }


def _row(found: Plain, keep: Array, at: int) -> Array | None:
    values = grid(found)
    return None if values is None or len(values) <= at or values.shape[1] != len(keep) else values[at][keep]


def _ids(row: Array, keep: Array) -> Array | None:
    """The response is the end of the sequence."""
    return row[len(row) - len(keep) :][keep] if len(row) >= len(keep) else None


def _named(step: int | None, at: int, group: str | None) -> dict[str, str | None]:
    """Name sample and group by their step as well: rows are counted anew in each."""
    return {"sample_id": f"{step}-{at}", "group_id": None if group is None else f"{step}-{group}"}


def _groups(found: Plain, count: int) -> list[str | None]:
    """Number the prompts by their (first row, row behind the last); rows that fill up the batch have none."""
    groups: list[str | None] = [None] * count
    for number, part in enumerate(found if isinstance(found, list) else ()):
        pair = line(part)
        if pair is None or len(pair) != 2 or pair.dtype.kind not in "iu" or not 0 <= pair[0] <= pair[1] <= count:
            return [None] * count
        groups[pair[0] : pair[1]] = [str(number)] * int(pair[1] - pair[0])
    return groups


PARSER = Parser(
    name="skyrl_batches",
    describes="SkyRL training batches (`global_step_N_training_input.pkl`): log-probabilities of trainer, engine and "
    "reference, token by token.",
    priority=20,
    recognises=recognises,
    read=read,
)
