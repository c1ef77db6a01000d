"""Recognise a console's output among the files of a run: by its log calls, or by the words that it ends in."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections import Counter as Tally
from typing import Final

from ptt.diagnostics.parsers.io.console_context import ConsoleContext
from ptt.diagnostics.parsers.io.console_incidents import speaks_of_samples
from ptt.diagnostics.parsers.io.console_pairs import is_metric_name
from ptt.diagnostics.parsers.io.interface import Lost, RunFile
from ptt.diagnostics.parsers.io.lines import GZIP_MAGIC, ZSTD_MAGIC, pieces
from ptt.diagnostics.parsers.io.telemetry import ESCAPES
from ptt.diagnostics.parsers.io.tracebacks import Endings, may_tell_ending, without_bar, without_prefix

LINE_BYTES: Final = 1 << 18  # no log call prints more; beyond it a line is not looked at
REDRAWN = re.compile(rb"\r|\x08+")
HEAD_BYTES: Final = 1 << 16  # of a file with any name
NAMED_HEAD_BYTES: Final = 1 << 20  # of a file named as a log: models load and engines warm up before the first row
TAIL_BYTES: Final = 1 << 16
SUFFIXES = (".log", ".txt", ".out", ".err", ".log.gz", ".txt.gz", ".log.zst", ".txt.zst")
NAMES = ("log", "stdout", "stderr", "nohup.out", "output", "console")
# Files of people and programs, which may quote a log: manuals, sources, settings, tables, documents.
OTHER_KINDS = (
    ".md", ".rst", ".py", ".pyi", ".ipynb", ".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".toml", ".cfg", ".ini",
    ".html", ".htm", ".css", ".js", ".ts", ".tsx", ".c", ".h", ".cc", ".cpp", ".cu", ".cuh", ".java", ".go", ".rs",
    ".sh", ".bash", ".slurm", ".sbatch", ".tex", ".bib", ".csv", ".tsv", ".xml", ".svg", ".proto", ".sql", ".patch",
    ".diff", ".lock", ".r", ".jl", ".lua", ".jinja", ".j2", ".env", ".gitignore", ".svg", ".srt", ".po",
)  # fmt: skip
NOTES: Final = (".md", ".markdown", ".rst")  # file types in which somebody may keep the output of a whole run
MANUALS: Final = ("readme", "changelog", "contributing", "tutorial", "usage", "install", "docs")
FENCE: Final = re.compile(rb"(?:```|~~~)\s{0,4}(\w*).*", re.DOTALL)
HEADING: Final = re.compile(rb"#{1,6} \S|={3,}\s*$")
BAR_STEP: Final = re.compile(rb"%\|[^|]{0,400}\|\s{0,4}(\d{1,12})/\d{1,12} \[")
MIN_PASTED: Final = 10  # steps in the fenced parts of a text: a manual shows a few
PASTED_SHARE: Final = 0.5  # of a text's lines that such parts make up: with more prose than output, it is a report
DOCUMENTS = re.compile(
    rb"\s*(?:\{\s*[\"}]|\[\s*[\[{\"]|<[!?a-zA-Z]|#!|---\s*\n\w+:|diff --git|\\documentclass|%PDF|version https://git-lfs"
    rb"|# aider chat started at)"
)
CONSOLE = re.compile(
    rb"%\||\d\d:\d\d:\d\d[.,\]\s]|\bpid=\d|^nohup: |\b(?:INFO|WARNING|ERROR)\b|it/s|s/it\]|(?:site|dist)-packages"
    rb"|Warning: |^wandb: ",
    re.MULTILINE,
)
TRACKER_BYTES: Final = 4096
TRACKERS: Final = (b"[wandb_setup.py:", b"[wandb_init.py:", b'"logger.go', b"wandb-core", b"stream_table_client")
AGENT_RUN: Final = re.compile(r"\s*(?:╭|─){1,999} New run (?:─|╮)".encode())  # how the console of smolagents begins
RAISED: Final = "Traceback (most recent call last)"
MIN_CONSOLE: Final = 3  # such signs, in a text that is more than a quoted console line
MIN_ROWS: Final = 2  # in one dialect, where no name is known
MIN_SPEAKING: Final = 20  # lines about lost samples, in a file named as a log
PROSE_BYTES: Final = 1000  # a longer line is a dump
LAST_LINES: Final = 60  # in which an exception or a closing word ends the file, rather than being quoted in its middle


def recognises(file: RunFile) -> bool:
    """Recognise a text by its log calls, or by the exception, signal or closing words that it ends in."""
    name = file.name.lower()
    if name.endswith(NOTES) and not name.startswith(MANUALS):
        return _is_text(file.readable_head) and _holds_pasted(file.readable_head)
    if (
        name.endswith(OTHER_KINDS)
        or not file.size
        or not _is_text(file.readable_head)
        or DOCUMENTS.match(file.readable_head)
        or AGENT_RUN.match(file.readable_head[:TRACKER_BYTES])
    ):
        return False
    tail = _tail(file)
    if tail is None or any(mark in file.readable_head[:TRACKER_BYTES] for mark in TRACKERS):
        return False
    if _holds_rows(file.readable_head) if not _packed(file) else False:
        return True
    if tail and (_holds_rows(tail) or _ends(tail)):
        return True
    if not tail and not _packed(file) and _ends(file.readable_head):
        return True
    if not (name.endswith(SUFFIXES) or name in NAMES):
        return False
    return _holds_rows(_long_head(file)) or _speaks_of_samples(file.readable_head)


def _packed(file: RunFile) -> bool:
    return file.readable_head.startswith((GZIP_MAGIC, ZSTD_MAGIC))


def _is_text(head: bytes) -> bool:
    if head.startswith((GZIP_MAGIC, ZSTD_MAGIC)):
        return True
    if b"\0" in head:
        return False
    try:
        getincrementaldecoder("utf-8")().decode(head)  # which may end inside a character
    except UnicodeDecodeError:
        return _mostly_ascii(head)
    return True


def _mostly_ascii(head: bytes) -> bool:
    """Return whether what is no UTF-8 is a text all the same, with a torn or a foreign character in it."""
    return sum(byte > 127 for byte in head[:4096]) * 5 < len(head[:4096])


def _tail(file: RunFile) -> bytes | None:
    """Return the end of a file that is longer than its head; None where it is no text."""
    if _packed(file) or file.size <= HEAD_BYTES:
        return b""
    try:
        with file.path.open("rb") as handle:
            handle.seek(-min(TAIL_BYTES, file.size - HEAD_BYTES), 2)
            tail = handle.read(TAIL_BYTES)
    except OSError:
        return b""
    return None if b"\0" in tail else tail.partition(b"\n")[2] or tail


def _long_head(file: RunFile) -> bytes:
    head = bytearray()
    for piece in pieces(file):
        if isinstance(piece, Lost) or b"\0" in piece:
            break
        head += piece
        if len(head) >= NAMED_HEAD_BYTES:
            break
    return bytes(head)


def _holds_rows(text: bytes) -> bool:
    context = ConsoleContext()
    tally: Tally[str] = Tally()
    for line in text.split(b"\n"):
        if len(line) > LINE_BYTES:
            continue
        for segment in segments(line):
            row = context.row(segment)
            if row is None or row.dialect == "uncounted":
                continue
            tally[row.dialect] += 1
            if row.framework or row.dialect in ("dict", "json", "table") or tally[row.dialect] >= MIN_ROWS:
                return True
            known = sum(map(is_metric_name, row.values))
            if row.counter.unit == "step" and known > (0 if row.counter.total else 1):
                return True
    return any(True for _ in context.uncounted.rows())


def _speaks_of_samples(text: bytes) -> bool:
    """Return whether line after line says that samples were lost: the console of a start that came to no row."""
    lines = (line.decode("utf-8", "replace") for line in text.split(b"\n") if len(line) <= PROSE_BYTES)
    return sum(map(speaks_of_samples, lines)) >= MIN_SPEAKING


def _holds_pasted(text: bytes) -> bool:
    """Return whether a text is mostly fenced output of training, or all output, of more steps than examples show."""
    depth = 0
    fenced: list[bytes] = []
    lines = [line for line in text.split(b"\n") if line.strip()]
    if not any(FENCE.match(line.strip()) or HEADING.match(line) for line in lines):  # a console saved under such a name
        fenced = lines
    for line in lines:
        if fence := FENCE.match(line.strip()):
            depth = depth - 1 if depth and not fence[1] else depth + 1  # one with a language opens within another too
        elif depth:
            fenced.append(line)
    if len(fenced) < PASTED_SHARE * len(lines):
        return False
    context = ConsoleContext()
    rows = [row for line in fenced if len(line) <= LINE_BYTES and (row := context.row(segments(line)[-1]))]
    called = [row for row in rows if row.dialect != "uncounted"]
    if fenced is lines and sum(row.dialect == "dict" for row in called) < MIN_PASTED:
        return False
    steps = {row.counter.at for row in called} - {None}
    if called and len(steps) < MIN_PASTED:  # the rows may leave it to the bars to count
        steps |= {int(at) for line in fenced for at in BAR_STEP.findall(line)}
    return len(steps) >= MIN_PASTED


def _ends(text: bytes) -> bool:
    """Return whether a console ends in an exception, a signal or a trainer's closing words."""
    lines = [line for line in text.split(b"\n") if line.strip()]
    spoken = [without_bar(segments(line)[-1].decode("utf-8", "replace")) for line in lines if len(line) <= LINE_BYTES]
    raised = b">>> " not in text and any(
        without_prefix(line).startswith((RAISED, "╭")) for line in spoken if RAISED in line
    )
    console = len(CONSOLE.findall(text)) >= MIN_CONSOLE
    if not raised and not console:
        return False
    endings = Endings()
    found = -1
    for number, line in enumerate(spoken):
        if (endings.inside or may_tell_ending(line.lower())) and endings.feed(line):
            found = number
    # A message may be as long as a source that failed to compile: in what is surely a console it ends it all the same.
    return bool(endings.close()) or (found >= 0 and ((console and raised) or len(spoken) - found <= LAST_LINES))


def is_too_long(line: bytes) -> bool:
    """Return whether a line is longer than any log call, and no bar that was redrawn again and again."""
    return len(line) > LINE_BYTES and REDRAWN.search(line, 0, LINE_BYTES) is None


def segments(line: bytes) -> list[bytes]:
    """Return the parts between carriage returns, without escape codes."""
    if b"\x1b" in line:
        line = ESCAPES.sub("", line.decode("utf-8", "replace")).encode()
    return REDRAWN.split(line) if b"\r" in line or b"\x08" in line else [line]
