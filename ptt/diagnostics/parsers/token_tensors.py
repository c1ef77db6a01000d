"""Token dumps of anyone's hook: `.pt`, `.npz` or `.safetensors` with the names that TRL, veRL or recorders give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ptt.diagnostics.parsers import skyrl_batches, slime_dumps, verl
from ptt.diagnostics.parsers.io.interface import Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.token_dumps import (
    MASKS,
    NAMED_LOGPS,
    Batch,
    Sample,
    integer,
    names_in,
    read_batch,
    samples_of,
    sequences,
    step_named,
)
from ptt.diagnostics.parsers.io.values import nested
from ptt.diagnostics.parsers.unpickle import Plain

KEYS: Final = frozenset((*MASKS, *NAMED_LOGPS))
# writers whose files hold some of the same names
OTHERS: Final = (slime_dumps.recognises, skyrl_batches.recognises, verl.recognises_batches)
WANTED: Final = f"a mask ({', '.join(MASKS)}) and log-probabilities"


def recognises(file: RunFile) -> bool:
    """Recognise a file by the names of the tensors."""
    names = names_in(file, KEYS)
    has_columns = bool(names.intersection(MASKS)) and bool(names.intersection(NAMED_LOGPS))
    return has_columns and not any(recognises(file) for recognises in OTHERS)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the sequences of one dump: one batch, or several in a list, as TRL buffers them."""
    yield from read_batch(file, _pieces, lacking=f"has no {WANTED} of shape sequences by tokens")


def _pieces(file: RunFile, dump: Plain) -> Iterator[Piece] | None:
    steps = (integer(nested(dump, "step")), _step_in_text(nested(dump, "__metadata__", "step")), step_named(file.path))
    shared = next((step for step in steps if step is not None), None)
    samples: list[Sample] = []
    for batch in _batches(dump):
        own = integer(batch.get("step"))
        samples += samples_of(batch, shared if own is None else own) or []
    return sequences(file, samples) if samples else None


def _step_in_text(text: Plain) -> int | None:
    """Read a step from the texts that safetensors keeps beside its tensors."""
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 19 else None


def _batches(content: Plain) -> list[Batch]:
    if isinstance(content, dict):
        inner = next((value for value in content.values() if _is_batch_list(value)), None)
        content = [content] if inner is None else inner
    if not isinstance(content, list):
        return []
    return [{str(name): value for name, value in batch.items()} for batch in content if isinstance(batch, dict)]


def _is_batch_list(value: Plain) -> bool:
    return isinstance(value, list) and any(isinstance(entry, dict) and KEYS & entry.keys() for entry in value)


PARSER = Parser(
    name="token_tensors",
    describes="Token dumps of a hook (`.pt`, `.npz`, `.safetensors`) by the names TRL, veRL or recorders give: "
    "log-probabilities token by token.",
    held_against="real: dumps of TRL 1.16 runs",
    priority=20,
    recognises=recognises,
    read=read,
)
