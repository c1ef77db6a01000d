"""Describe files that no parser takes: whether they look like a metric log, and their shape without content.

A shape is meant to be sent to strangers. Whatever the file holds, it contains only words from our own list: keys of
metrics and of logging stay, since a parser would use them; words of a project, a user or a path do not."""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, islice
from pathlib import PurePosixPath
from typing import Any, Final

from ptt.diagnostics.metrics.catalogue import document
from ptt.diagnostics.metrics.guessed_names import CAMEL, spelt_words, told_by
from ptt.diagnostics.parsers.io.interface import HEAD_BYTES, Lost, RunFile
from ptt.diagnostics.parsers.io.lines import GZIP_MAGIC, PACKED, ZSTD_MAGIC, parse_json, pieces, text_head
from ptt.diagnostics.parsers.io.metric_rows import SAMPLE_KEYS, STEP_KEYS, TIME_KEYS
from ptt.diagnostics.parsers.io.parquet_files import schema_of
from ptt.diagnostics.parsers.io.record_files import first_records
from ptt.diagnostics.parsers.io.sqlite import MAGIC as SQLITE
from ptt.diagnostics.parsers.io.trace_hints import nearest_trace
from ptt.diagnostics.parsers.io.zip_members import LOCAL, content, listing
from ptt.diagnostics.wording import counted

MAX_FILES: Final = 30  # in a sample: further files add little
MAX_LINES: Final = 40  # of a file; successive lines of one shape count as one
MAX_LINE: Final = 2000  # of one line, in characters; a row of metrics is shorter
MAX_FILE_CHARS: Final = 6000
MAX_CHARS: Final = 64_000  # of a sample: still a small attachment to an issue
MAX_NAMES: Final = 3  # metrics that a hint names
MIN_VALUES: Final = 3  # different values of one name: a setting has one, a log many

COMMON: Final = """
    a accuracy acc adam adamw advantage after agent algorithm allocated alpha and answer args at average avg backward
    baseline batch bce before begin best beta bleu bool buffer bytes cache cached call called calls checkpoint clip
    coef coefficient collect completed config constant content context correct cosine cost count cpu critical cross
    cuda current curriculum cycle data dataset date day debug decay delta device discount distance done dtype duration
    each early elapsed end entry env environment epoch epochs error eta eval evaluation event events every example
    examples exception exit expected f false file final finished float format forward found fp16 fps frac from game
    gamma gb gen generate generation generator gib global goal gpu grad gradient group groups gym h head hidden
    history hour hours hz id idx in index inf info init initial input instance int invalid is it item items iter
    iteration iterations its key kl kwargs label labels lambda last latency layer layers learning left len length
    level limit line linear list load loaded loading local log logger logging logs loss losses lr m mae main map
    margin mask max maximum mb mean median mem memory message messages method metric metrics mib mini minimum min
    minute minutes mode model momentum ms mse n name nan negative net new nll no none norm null num number object of
    off ok old on one optimizer out output overall p pad param parameter parameters params parser pass path peak per
    percent percentage perplexity phase policy positive ppl precision prefix process progress prompt q quality query
    question queue rank rate ratio raw read recall ref reference remaining repeat replay reserved reset response rest
    result results resume resumed return returns reward rewards rmse role rollout round row rows run running s sample
    samples save saved saving scale scheduler score scores seconds sec seed seq sequence set setting shape size skip
    skipped source space split stage start started state stats status std step steps stop stopped str success sum
    summary system t task tasks temperature test text throughput time timestamp timesteps to token tokens tool tools
    top total train trained trainer training trajectory true turn turns type uid unit update updates usage user util
    v val valid validation value values var version w wait wall warmup warning weight weights win window with worker
    workers world write x y z
"""
"""Words of logs besides those of metrics: they are everywhere, and tell nothing of anybody."""
TOLD_ENDINGS: Final = (
    ".json .jsonl .ndjson .csv .tsv .txt .log .out .err .yaml .yml .toml .ini .cfg .md .rst .html .xml .py .sh .ipynb "
    ".pkl .pickle .pt .pth .bin .ckpt .npz .npy .h5 .hdf5 .parquet .arrow .feather .db .sqlite .sqlite3 .gz .zst .xz "
    ".bz2 .zip .tar .tgz .png .jpg .svg .pdf .safetensors .gguf .onnx .model .msgpack .eval .wandb"
)
MAGIC: Final = {
    b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"PK": "zip", b"SQLite": "SQLite", b"\x80": "pickle",
    b"PAR1": "Parquet", b"\x89HDF": "HDF5", b"\x93NUMPY": "NumPy", b"\x89PNG": "PNG", b"%PDF": "PDF",
}  # fmt: skip

QUOTED: Final = r'"(?:[^"\\]|\\.)*+(?:"|$)' + r"|(?<![^\W_])'(?:[^'\\]|\\.)*+'(?![^\W_])"
PART: Final = re.compile(rf"(?P<quoted>{QUOTED})(?P<colon>\s*:)?|(?P<token>[^\W_]+)|(?P<sign>.)")
MIXED: Final = re.compile(r"(?P<word>[^\W\d_]{3,})(?P<number>\d+)|(?P<count>\d+)(?P<unit>[^\W\d_]+)")
"""Letters beside digits that may stay where the letters are a known word: `step99`, `9s`. Others may be a key's."""
EXPONENT: Final = "e"  # of numbers such as 1e-05
SIGNS: Final = frozenset(" \t!#$%&()*+,-./:;<=>?@[]^_`{|}~\"'\\")
NUMBER: Final = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?\s*", re.ASCII)
NON_FINITE: Final = re.compile(r"\s*[-+]?(?:nan|inf(?:inity)?)\s*", re.IGNORECASE)
DATE: Final = re.compile(
    r"\s*\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?\s*(?:Z|[-+]\d\d:?\d\d)?\s*", re.ASCII
)
BREAK: Final = re.compile(r"\r\n|\r|\n")


@cache
def known_words() -> frozenset[str]:
    """Return the words that a shape may hold, in small letters."""
    data = document()
    names = [*SAMPLE_KEYS, *STEP_KEYS, *TIME_KEYS, *_texts(data["metrics"]), *_texts(data["words"])]
    return frozenset(COMMON.split()).union(*(spelt_words(name) for name in names))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("why_worse", "label"):  # prose
                yield from (key, *_texts(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def shape(line: str) -> str:
    """Return a line with a 9 for each digit, an x for each word that is not of our list, and the kind of each text."""
    return re.sub(r"x(?:[ ,]+x)+", "x x", "".join(map(_part, PART.finditer(line[:MAX_LINE]))))


def _part(match: re.Match[str]) -> str:
    if quoted := match["quoted"]:
        colon = match["colon"] or ""
        inner = quoted[1:-1] if len(quoted) > 1 and quoted[-1] == quoted[0] else quoted[1:]
        return f"{quoted[0]}{_bare(inner) if colon else _kind(inner)}{quoted[0]}{colon and ':'}"
    if token := match["token"]:
        return _token(token)
    return match["sign"] if match["sign"] in SIGNS else "?"


def _token(token: str) -> str:
    """Return the shape of letters and digits in a row."""
    digits = re.sub(r"\d", "9", token)
    if digits.strip("9") == "" or (digits.isalpha() and _is_known(token)):
        return digits
    mixed = MIXED.fullmatch(token)
    letters = mixed and (mixed["word"] or mixed["unit"])
    if letters and (_is_known(letters) or letters == EXPONENT):
        return digits
    return re.sub(r"[^\W\d_]+", "x", digits)


def _bare(text: str) -> str:
    """Return the shape of a key, with its quotes removed."""
    return shape(text.replace('"', "?").replace("'", "?"))


def _kind(text: str) -> str:
    """Return the stand-in for a text: the shape of a number or a date, else the kind of text."""
    if not text or NUMBER.fullmatch(text) or DATE.fullmatch(text):
        return re.sub(r"\d", "9", text)
    if NON_FINITE.fullmatch(text):
        return "nan"
    if "/" in text or "\\" in text:
        return "<path>"
    return "<text>" if re.search(r"\s", text) else "<word>"


def _is_known(word: str) -> bool:
    """Return whether a word, or each part of a camel-case word, is in our list and written in one case."""
    parts = CAMEL.sub(" ", word).split()
    return all(part.lower() in known_words() and part in (part.lower(), part.title(), part.upper()) for part in parts)


WIDE_TEXT: Final = {
    codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}  # fmt: skip
"""By byte-order mark; the longer ones first, since one begins with another."""
PAIR_KEYS: Final = frozenset({"chosen", "rejected"})
NUMBERED: Final = re.compile(r"(?<![\w.])[-+]?\d(?:[\w.:%-]|,(?=\d))*")
MIN_ROWS: Final = 5  # lines alike but for their numbers, of a log in a format of its own
OWN_FORMAT: Final = (
    "[[logs]] in ptt.toml can read them; ptt sources proposes an entry where words beside the numbers are known"
)
MIN_SHARE: Final = 0.1  # of the lines that may be a log's: of a long text a few lines are alike by chance
LOGS: Final = tuple(
    f"{ending}{packed}" for ending in (".jsonl", ".ndjson", ".csv", ".tsv", ".log", ".out") for packed in ("", *PACKED)
)


BEGINNINGS: Final[dict[tuple[str, ...], tuple[tuple[bytes, ...], str]]] = {
    (".parquet",): ((b"PAR1",), "Parquet"),
    (".wandb",): ((b":W&B\xe1\xbe\x00",), "a W&B log"),
    (".eval",): ((LOCAL,), "an Inspect log"),
    (".npz",): ((LOCAL,), "npz"),
    (".pt", ".pth", ".pkl", ".pickle", ".dp"): ((LOCAL, b"\x80"), "torch or pickle"),
    (".gz",): ((GZIP_MAGIC,), "gzip"),
    (".zst",): ((ZSTD_MAGIC,), "zstd"),
    (".db", ".sqlite", ".sqlite3"): ((SQLITE,), "SQLite"),
}
LOOKED_AT: Final = 4  # pieces of a packed text, of 256 kB at most
MAX_PICKLE: Final = 16 << 20  # unpacked to see whether it is whole; that of a large model takes some hundred kB
STOP: Final = b"."  # that a pickle ends with
FRAME: Final = b"\x95"  # behind the protocol, from 4 on: then come eight bytes of the frame's length
FRAME_HEAD: Final = 11
LOOKED_LINES: Final = 3  # that formats are recognised by


def damage(file: RunFile) -> str:
    """Say that an unrecognised file is the damaged rest of a known format; "" if nothing shows it.

    Formats are recognised by how a file begins, so damage there leaves it without a format.
    """
    name, head = file.name.lower(), file.readable_head
    for endings, (beginnings, kind) in BEGINNINGS.items():
        if name.endswith(endings) and head and not head.startswith(beginnings):
            return f"Its first bytes are not those of {kind}: it is damaged, or something else."
    if "tfevents" in name and head:
        return "Its first record is damaged, or it is not an event file."
    if head.startswith(b"PAR1") and schema_of(file) is None:
        return "It is Parquet that is cut or damaged: its footer cannot be read."
    if head.startswith(LOCAL) and _is_damaged_zip(file):
        return "It is a zip file, as torch, NumPy and Inspect write, that is cut or damaged."
    if name.endswith((".pkl", ".pickle", ".dp")) and (_last_byte(file) != STOP or _is_short_of_its_frame(file, head)):
        return "It is a pickle that is cut or damaged: it has no end."
    if name.endswith(".safetensors") and _is_damaged_safetensors(file, head):
        return "It is safetensors whose header is cut or damaged."
    if head.startswith((GZIP_MAGIC, ZSTD_MAGIC)) and any(isinstance(p, Lost) for p in islice(pieces(file), LOOKED_AT)):
        return "What it is packed in is cut or damaged."
    return _damaged_json(file, name.removesuffix(".gz").removesuffix(".zst"))


def _is_damaged_zip(file: RunFile) -> bool:
    """Return whether the list of members is, or the pickle that says what tensors are there."""
    found = listing(file)
    pickles = [member for member in found.members if member.name.endswith("data.pkl")]
    try:
        for member in pickles:
            if member.unpacked <= MAX_PICKLE:
                content(file, member)
    except ValueError:
        return True
    return found.torn


def _last_byte(file: RunFile) -> bytes:
    try:
        with file.path.open("rb") as handle:
            handle.seek(-1, os.SEEK_END)
            return handle.read(1)
    except OSError:  # gone, or empty
        return b""


def _is_short_of_its_frame(file: RunFile, head: bytes) -> bool:
    """Return whether a pickle is shorter than its first frame says (PEP 3154): a cut may leave a stop's byte last."""
    return head[2:3] == FRAME and file.size < FRAME_HEAD + int.from_bytes(head[3:FRAME_HEAD], "little")


def _is_damaged_safetensors(file: RunFile, head: bytes) -> bool:
    """Return whether the header does not fit in the file, or is no JSON where all of it was looked at."""
    length = int.from_bytes(head[:8], "little")
    text = head[8 : 8 + length]
    return 8 + length > file.size or head[8:9] != b"{" or (len(text) == length and parse_json(text) is None)


def _damaged_json(file: RunFile, name: str) -> str:
    head = text_head(file)
    whole = len(head) < HEAD_BYTES
    if name.endswith((".json", ".traj")):
        cut = whole and head.lstrip()[:1] in (b"{", b"[") and parse_json(head) is None
        return "It is JSON that is cut or damaged." if cut else ""
    lines = [line for line in head.split(b"\n") if line.strip()]
    looked = lines[: LOOKED_LINES if whole else min(LOOKED_LINES, len(lines) - 1)]
    if not name.endswith((".jsonl", ".ndjson")) and not all(line.startswith(b'{"') for line in looked):
        return ""
    cut = any(parse_json(line) is None for line in looked)
    return "One of its first lines is cut or damaged: not JSON." if cut else ""


def why_not(file: RunFile) -> str:
    """Say why a file that may well be a log has no known format, if that can be told; else ""."""
    head = text_head(file)
    for mark, encoding in WIDE_TEXT.items():
        if head.startswith(mark):
            return f"It is text in {encoding}; ptt reads UTF-8. Convert it with iconv -f {encoding} -t UTF-8."
    if isinstance(listed := parse_json(head), list) and listed and not _holds_objects(listed):
        return "It is a JSON list of numbers without names."
    if any(isinstance(row, dict) and row.keys() >= PAIR_KEYS for row in first_records(file)):
        return "It holds pairs of a chosen and a rejected answer: data to train on, no episodes."
    long = len(head) >= HEAD_BYTES and b"\n" not in head and b"\0" not in head
    if long and file.name.lower().endswith(LOGS):
        return f"Its first line is longer than {HEAD_BYTES >> 10} kB; formats are recognised by these first bytes."
    return _own_format(head) or nearest_trace(file)


def _holds_objects(found: Any) -> bool:
    return any(_holds_objects(item) if isinstance(item, list) else isinstance(item, dict) for item in found)


def _own_format(head: bytes) -> str:
    """Say of a text with lines that are the same but for their numbers what they look like."""
    if b"\0" in head:
        return ""
    lines = [line for line in BREAK.split(head.decode("utf-8", "replace")) if line.strip() and len(line) <= MAX_LINE]
    shapes = Counter(shape for line in lines if (shape := _numbered(line)))
    alike, count = shapes.most_common(1)[0] if shapes else ("", 0)
    if count < max(MIN_ROWS, MIN_SHARE * len(lines)):
        return ""
    listed = "JSON lists without names" if alike.startswith("[9,") else "numbers in a layout of their own"
    return f"{count} of its first {len(lines)} lines hold {listed}: {OWN_FORMAT}."


def _numbered(line: str) -> str:
    """Return a line with a 9 for each number; empty where it has fewer than two, or is JSON with names."""
    shape, numbers = NUMBERED.subn("9", " ".join(line.split()))
    return shape if numbers > 1 and not shape.startswith("{") else ""


def sample(files: Sequence[RunFile]) -> str:
    """Return the shapes of unrecognised files, those that look like metric logs first."""
    hinted = {file.rel: bool(logged_names(file)) for file in files}
    ordered = sorted(files, key=lambda file: not hinted[file.rel])
    parts = [
        f"Shapes of {counted(len(files), 'file(s)')} that ptt did not recognise. Each digit is a 9, each uncommon "
        "word an x;\ntexts and file names are removed. Read this before you share it.\n"
    ]
    for number, file in enumerate(ordered[:MAX_FILES], start=1):
        part = _file_shape(number, file, hinted=hinted[file.rel])
        if sum(map(len, parts)) + len(part) > MAX_CHARS:
            break
        parts.append(part)
    if left := len(files) - len(parts) + 1:
        parts.append(f"\n{counted(left, 'more file(s)')} left out.\n")
    return "".join(parts)


def _file_shape(number: int, file: RunFile, *, hinted: bool) -> str:
    ending = PurePosixPath(file.rel).suffix.lower()
    said = ending if ending in TOLD_ENDINGS.split() else "with another ending" if ending else "without an ending"
    kind = ", looks like a metric log" if hinted else ""
    title = f"\n== file {number}: {said}, {file.size} bytes{kind}\n"
    head = file.readable_head
    if b"\0" in head or any(head.startswith(magic) for magic in MAGIC):
        known = next((name for magic, name in MAGIC.items() if head.startswith(magic)), "of no known kind")
        return f"{title}binary, {known}\n"
    return title + "".join(_shapes(head.decode("utf-8", "replace")))


def _shapes(text: str) -> Iterator[str]:
    """Yield the shapes of the first lines; lines of one shape in a row come once, with their number."""
    chars = 0
    shapes = (shape(line) for line in BREAK.split(text) if line.strip())
    for count, (line, same) in enumerate(groupby(shapes)):
        times = sum(1 for _ in same)
        chars += len(line)
        if count == MAX_LINES or chars > MAX_FILE_CHARS:
            return
        yield f"{line}\n" + (f"(and {times - 1} more of this shape)\n" if times > 1 else "")


PAIR: Final = re.compile(
    r"[\"']?([A-Za-z_][\w./-]{0,60}(?: [A-Za-z]{1,20}){0,2})[\"']?\s*(?:[:=]|\bis\b)\s*"
    r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan)(?![\w.])"
)
CELL: Final = re.compile(r"[,;\t|]")


def logged_names(file: RunFile) -> list[str]:
    """Return the names of metrics that a text file of no known format holds changing numbers under, most first."""
    head = file.readable_head
    if b"\0" in head:
        return []
    values: dict[str, list[str]] = defaultdict(list)
    lines = [line[:MAX_LINE] for line in BREAK.split(head.decode("utf-8", "replace"))]
    for name, value in (*_pairs(lines), *_cells(lines)):
        values[name].append(value)
    logged = [name for name, of_name in values.items() if len(set(of_name)) >= MIN_VALUES and told_by(name)]
    return sorted(logged, key=lambda name: (-len(values[name]), name))[:MAX_NAMES]


def _pairs(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        for match in PAIR.finditer(line):
            yield match[1], match[2]


def _cells(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield name and number of each cell of a table whose first line names its columns."""
    rows = [CELL.split(line) for line in lines if line.strip()]
    header = rows[0] if rows else []
    if len(header) < 2 or any(map(NUMBER.fullmatch, header)):
        return
    for row in (row for row in rows[1:] if len(row) == len(header)):
        for name, cell in zip(header, row, strict=True):
            if NUMBER.fullmatch(cell):
                yield name.strip(" \"'"), cell.strip()
