"""What the parsers of torch, pickle, npz and safetensors files share: one reading process, names, steps."""

from __future__ import annotations

import atexit
import re
from functools import cache
from pathlib import Path
from typing import Final

from ptt.diagnostics.parsers.io.interface import HEAD_BYTES, Lost, RunFile
from ptt.diagnostics.parsers.unpickle import Node, Plain, RefusedError, Worker

SUFFIXES: Final = (".pt", ".pth", ".pkl", ".dp", ".npz", ".safetensors")
ZIP, PICKLE = b"PK\x03\x04", b"\x80"
UNGUARDED: Final = "read without a limit on memory, which this system does not offer."
_STEP = re.compile(r"step[_\-]?(\d{1,15})(?!\d)")
_NUMBER = re.compile(r"(?<!\d)(\d{1,15})(?!\d)")


@cache
def _worker() -> Worker:
    worker = Worker()
    atexit.register(worker.close)
    return worker


def content(file: RunFile) -> tuple[Plain, list[Lost]]:
    """Return what a file holds; where it is refused, None and the whole file as lost."""
    try:
        answer = _worker().read(file.path)
    except RefusedError as error:
        return None, [Lost(bytes=file.size, note=f"{file.rel} was not read: {error}.")]
    except OSError as error:
        return None, [Lost(bytes=file.size, note=f"{file.rel} could not be read: {error.strerror}.")]
    return answer.value, [] if answer.guarded else [Lost(note=f"{file.rel}: {UNGUARDED}")]


def names_in(file: RunFile, names: frozenset[str]) -> set[str]:
    """Return which names stand in the clear where such files keep theirs; without reading the file."""
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


def child(found: Plain, *path: str) -> Plain:
    """Follow names into nested dicts; None where one is missing."""
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def node(found: Plain, name: str) -> Node | None:
    """Return an object of the class or function `name`, the last part of its full name; else None."""
    return found if isinstance(found, Node) and found.name.rpartition(".")[2] == name else None


def step_named(path: Path) -> int | None:
    """Read the step out of a file's name, or else of the folders above it, where `step` or a bare number says it."""
    if found := _STEP.search(path.name) or _NUMBER.search(path.stem):
        return int(found[1])
    for folder in path.parts[-3:-1][::-1]:
        if (found := _STEP.search(folder)) or (found := _NUMBER.fullmatch(folder)):
            return int(found[1])
    return None
