"""Token dumps of anyone's hook: `.pt`, `.npz` or `.safetensors` with the names that TRL, veRL or recorders give."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ptt.diagnostics.parsers import skyrl_batches, slime_dumps, verl_batches
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.token_dumps import (
    MASKS,
    NAMED_LOGPS,
    Batch,
    Sample,
    content,
    integer,
    names_in,
    samples_of,
    sequences,
    step_named,
)
from ptt.diagnostics.parsers.unpickle import Plain

KEYS: Final = frozenset((*MASKS, *NAMED_LOGPS))
OTHERS: Final = (slime_dumps, skyrl_batches, verl_batches)  # whose files hold some of the same names
WANTED: Final = f"a mask ({', '.join(MASKS)}) and log-probabilities"


def recognises(file: RunFile) -> bool:
    """Say yes by the names of the tensors."""
    found = names_in(file, KEYS)
    return bool(found.intersection(MASKS)) and bool(found.intersection(NAMED_LOGPS)) and not _another(file)


def _another(file: RunFile) -> bool:
    return any(other.recognises(file) for other in OTHERS)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the sequences of one dump: one batch, or several in a list, as TRL buffers them."""
    found, lost = content(file)
    yield from lost
    if found is None:
        return
    told = found if isinstance(found, dict) else {}
    step = integer(told.get("step"))
    if step is None:
        step = _told_beside(told)
    samples: list[Sample] = []
    for batch in _batches(found):
        own = integer(batch.get("step"))
        samples += (
            samples_of(batch, own if own is not None else step if step is not None else step_named(file.path)) or []
        )
    if not samples:
        yield Lost(bytes=file.size, note=f"{file.rel} holds no {WANTED} of the shape sequences by tokens.")
        return
    yield from sequences(file, samples)


def _told_beside(told: dict[str | int, Plain]) -> int | None:
    """Return the step from the texts that safetensors keeps beside its tensors."""
    texts = told.get("__metadata__")
    text = texts.get("step") if isinstance(texts, dict) else None
    return int(text) if isinstance(text, str) and text.isdecimal() and len(text) < 19 else None


def _batches(found: Plain) -> list[Batch]:
    if isinstance(found, dict):
        inner = next((value for value in found.values() if _is_batch_list(value)), None)
        found = [found] if inner is None else inner
    if not isinstance(found, list):
        return []
    return [{str(name): value for name, value in batch.items()} for batch in found if isinstance(batch, dict)]


def _is_batch_list(found: Plain) -> bool:
    return isinstance(found, list) and any(isinstance(entry, dict) and KEYS & entry.keys() for entry in found)


PARSER = Parser(
    name="token_tensors",
    describes="Token dumps of a hook (`.pt`, `.npz`, `.safetensors`) by the names TRL, veRL or recorders give: "
    "log-probabilities token by token.",
    priority=20,
    recognises=recognises,
    read=read,
)
