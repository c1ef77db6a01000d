"""Git LFS pointers: they stand in for a file whose content was never downloaded, under that file's name.

A pointer is a text of three lines, below 1024 bytes (git-lfs, docs/spec.md): version, oid and size of the content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, read_error

VERSION: Final = b"version https://git-lfs.github.com/spec/v1"
MAX_BYTES: Final = 1024  # the specification limits a pointer to less
SIZE: Final = re.compile(rb"^size (\d{1,18})\r?$", re.MULTILINE)
LOGS: Final = re.compile(
    r"trainer_state|tfevents|\.wandb$|metric|log|history|rollout|completion|trace|trajector|tokens?[_/.]step|\.eval$"
)
"""Names of what holds metrics, samples or tokens of a run. Weights, tokenizers and data sets are mostly pointers, and
nothing of a run is lost with them."""
PLAIN: Final = re.compile(r"[\w.+=@-]+")  # needs no escape in git-lfs patterns or in a shell
MAX_NAMED: Final = 4  # patterns in a command; with more of them it fetches all


def recognises(file: RunFile) -> bool:
    """Recognise a pointer by its first line, whatever the file's name."""
    return file.size < MAX_BYTES and file.readable_head.startswith(VERSION)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield no rows; the note says what is missing and how to fetch it."""
    try:
        size = SIZE.search(file.head)
    except OSError as error:
        yield read_error(file, error)
        return
    content = f"{int(size[1]):,} bytes" if size else "of unknown size"
    yield Lost(
        bytes=file.size if holds_log(file.rel) else 0,
        note=f"{file.rel} is a Git LFS pointer: its content ({content}) was never downloaded. "
        f"Fetch it in its repository: {command([file.rel])}",
    )


def holds_log(rel: str) -> bool:
    """Return whether a file of this path would hold something of a run."""
    return LOGS.search(rel.rpartition("/")[2].lower()) is not None


def command(paths: list[str]) -> str:
    """Return the line that fetches these files; by their names, since where the repository begins is not known."""
    names = list(dict.fromkeys(path.rpartition("/")[2] for path in paths))
    if len(names) > MAX_NAMED or not all(PLAIN.fullmatch(name) for name in names):
        return "git lfs pull"
    return f'git lfs pull --include="{",".join(names)}"'


PARSER = Parser(
    name="git_lfs_pointer",
    describes="Git LFS pointers, which stand for files that were never downloaded: nothing but a note.",
    held_against="source: git-lfs/git-lfs `docs/spec.md`",
    priority=90,
    recognises=recognises,
    read=read,
)
