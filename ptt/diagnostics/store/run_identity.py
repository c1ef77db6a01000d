"""Hash what a diagnosis is made from: a mark that says when to make it again, and a hash of the source."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from ptt.diagnostics.parsers import run_files
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.store.archives import is_archive
from ptt.diagnostics.store.manifest import fingerprint

PACKAGE: Final = Path(__file__).parents[2]
CODE: Final = (".py", ".toml")
END: Final = 1 << 12
"""Bytes read at each end of a file for the source's hash: Parquet has its footer there, logs their last lines."""


def identity(run: Path) -> str:
    """Identify the state of a run's files without reading them; an archive is not unpacked for it."""
    if is_archive(run):
        status = run.stat()
        ends = _ends(run, status.st_size)  # checksums are there, and reproducible archives all have the same time
        return f"archive {run.name} {status.st_size} {status.st_mtime_ns} {sha256(ends).hexdigest()}"
    return fingerprint(run_files(run)[0])


def mark_of(identity: str, *, name: str, version: str, settings: str, files: Iterable[Path]) -> str:
    """Hash all that a diagnosis depends on: the run, its name, settings, custom rules (`files`), and this code."""
    digest = sha256(repr((identity, name, version, settings, code_state())).encode("utf-8", "surrogateescape"))
    for path in files:
        digest.update(f"{path}\0".encode("utf-8", "surrogateescape"))
        digest.update(path.read_bytes())
    return digest.hexdigest()


def hash_settings(settings: str, files: Iterable[Path]) -> str:
    """Hash settings and custom rules by content, wherever they are."""
    digest = sha256(settings.encode("utf-8", "surrogateescape"))
    for path in files:
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def source_hash(files: Sequence[RunFile]) -> str:
    """Hash names, sizes and both ends of a run's files: the same for a copy or an archive of it on any machine."""
    digest = sha256()
    for file in files:
        digest.update(f"{file.rel}\0{file.size}\n".encode("utf-8", "surrogateescape"))
        try:
            digest.update(_ends(file.path, file.size))
        except OSError:  # unreadable: its name and size are all that is known, here as elsewhere
            continue
    return digest.hexdigest()


def _ends(path: Path, size: int) -> bytes:
    with path.open("rb") as content:
        head = content.read(END)
        if size <= END:
            return head
        content.seek(max(END, size - END))
        return head + content.read(END)


@cache
def code_state() -> str:
    """Hash the state of this package's files: what other code judged is not shown as ours."""
    return sha256(repr(sorted(_states(PACKAGE))).encode("utf-8", "surrogateescape")).hexdigest()


def _states(folder: Path | str) -> Iterator[tuple[str, int, int]]:
    for entry in os.scandir(folder):
        if entry.is_dir():
            yield from _states(entry.path)
        elif entry.name.endswith(CODE):
            status = entry.stat()
            yield entry.path.removeprefix(str(PACKAGE)), status.st_size, status.st_mtime_ns
