"""Runs in an object store, laid out in a scratch folder as they lie there: of token dumps only what judging reads.

Each object becomes a file of its name, size and time, so that all that reads runs takes it as any other. A recorder's
Parquet file becomes one with holes: its columns lie at their places, and those that only `ptt show` reads are left out.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, TypeVar, cast

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import InputError, no_room
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.parquet_files import DAMAGE, schema_of
from ptt.diagnostics.parsers.io.parquet_pages import pages
from ptt.diagnostics.parsers.io.run_files import CLOSED, MARKERS, MAX_FILES, SKIPPED_DIRS
from ptt.diagnostics.parsers.recorder import has_recorder_keys, of_texts
from ptt.diagnostics.schema import SEQUENCES
from ptt.diagnostics.scrub.scrub import Scrubber
from ptt.diagnostics.store.scan import SHOWN_ALONE
from ptt.diagnostics.store.table_parts import masks_in_place
from ptt.diagnostics.wording import counted
from ptt.object_stores.client import CONNECTIONS, Listed, ObjectError, ObjectStore, Url
from ptt.stopping import temporary_folder

PREFIX: Final = "ptt-s3-"  # of scratch folders
WHOLE_FILE: Final = 64 << 10  # bytes: a smaller file is read with one request
ENDS: Final = 4 << 10  # bytes at each end that say which state of a file this is
FOOTER: Final = 16 << 10  # bytes that hold the footer of most recorder files, and little else
SMALL_PAGE: Final = 16 << 10  # bytes: of smaller pages a column is read whole, rather than a header a request
FREE_RATIO: Final = 0.9  # of the disk that the scratch folder lies on
MAX_NAMED: Final = 5
MAX_NAME: Final = 240  # bytes of a run's name: file systems allow 255, and notes on the run end in `.notes`
MAX_AROUND: Final = 4  # folders around a run whose names are kept: no output names more
MANIFEST: Final = "manifest.json"  # of a store, whose files are read in full

Tell = Callable[[str, int, int], None]
Item = TypeVar("Item")
Result = TypeVar("Result")
READING: Final = "reading from the object store"


@dataclass(kw_only=True)
class Mirror:
    """What was laid out of a run, and what was passed over."""

    url: Url
    path: Path  # stands for the run
    notes: tuple[str, ...] = ()
    bytes_read: int = 0


@dataclass(kw_only=True)
class _Passed:
    """Objects that were passed over, by why."""

    gone: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    closed: dict[str, list[str]] = field(default_factory=dict)
    named: dict[str, list[str]] = field(default_factory=dict)
    cut: bool = False

    def notes(self) -> tuple[str, ...]:
        """Say what was passed over, as for a folder."""
        listed = [
            ("object(s) disappeared before reading", self.gone),
            ("object(s) left out: changed between listing and reading", self.changed),
            *sorted(self.named.items()),
        ]
        notes = [f"{counted(len(keys), why)}: {_some(keys)}." for why, keys in listed if keys]
        for why, keys in sorted(self.closed.items()):
            what = counted(len(keys), "object(s)")
            notes.append(f"{CLOSED} ({why}): {what} of unknown content, {_some(keys)}; fix that, or copy the run here.")
        if self.cut:
            notes.append(f"The run has more than {MAX_FILES} files; the rest were not read.")
        return tuple(notes)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:MAX_NAMED])
    return shown if len(names) <= MAX_NAMED else f"{shown} and {len(names) - MAX_NAMED} more"


def mirror(url: Url, folder: Path, *, every_column: bool = False, tell: Tell | None = None) -> Mirror:
    """Lay a run out below `folder`; InputError where nothing is there or nothing can be read.

    `every_column`: of recorder files as well, for what shows or copies tokens.
    """
    store = ObjectStore(url)
    passed = _Passed()
    if not local_name(url):
        raise InputError(f"{url}: no folder here can have this name; give the folder above it.")
    home = local_path(folder, url)
    home.parent.mkdir(parents=True, exist_ok=True)
    single = store.find(url)
    items = _listed(store, url, passed) if single is None or not single.size else []
    if not items and single is not None:
        placed = [(single, home)]
    else:
        if not items:
            raise InputError(_nothing_there(url))
        home.mkdir()
        placed = _placed(items, url, home, passed)
    whole = every_column or any(item.key.rsplit("/", 1)[-1] == MANIFEST for item, _ in placed)
    _Fetch(store, url, passed, tell).fetch(placed, whole=whole)
    if not any(path.exists() for _, path in placed):
        why = f" ({' '.join(passed.notes())})" if passed.notes() else ""
        raise InputError(f"{url}: contains no object that could be read{why}.")
    return Mirror(url=url, path=home, notes=passed.notes(), bytes_read=store.bytes_read)


def _nothing_there(url: Url) -> str:
    if glob.has_magic(url.key):
        return f"{url}: there is no object of this name, and globs of s3:// paths are not expanded; give the folder."
    return f"{url}: there is no object of this name and none below it; see what is there with aws s3 ls s3://{url.bucket}/."


def lay_out_whole(store: ObjectStore, url: Url, items: Sequence[Listed], folder: Path) -> bool:
    """Lay objects below a URL out in full; return whether all of them could be."""
    passed = _Passed()
    _Fetch(store, url, passed, None).fetch(_placed(items, url, folder, passed), whole=True)
    return not passed.notes()


def local_name(url: Url) -> str:
    """Return what a run or an output folder is called here; empty where no folder can have its name."""
    name = (url.key or url.bucket).rsplit("/", 1)[-1]
    return name if _usable(name) and len(os.fsencode(name)) <= MAX_NAME else ""


def local_path(folder: Path, url: Url) -> Path:
    """Return where a URL is laid out below `folder`: in folders of the names that it has there.

    Runs of one name are told apart by the folders around them, and a store is called after its own.
    """
    around = [url.bucket, *url.key.split("/")][:-1] if url.key else []
    named = [part for part in around[-MAX_AROUND:] if _usable(part) and len(os.fsencode(part)) <= MAX_NAME]
    return folder.joinpath(*named, local_name(url) or "run")


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """An object as it was laid out: its time holds its ETag."""

    url: str
    size: int
    mtime_ns: int


@contextmanager
def fetched(files: Sequence[RemoteFile], *, every_column: bool = False) -> Iterator[list[Path]]:
    """Lay single objects out once more, in their order; ObjectError where one is no longer what it was."""
    with temporary_folder(PREFIX) as scratch:
        store = ObjectStore(Url.parsed(files[0].url))

        def fetch(number: int) -> Path:
            url = Url.parsed(files[number].url)
            item = store.find(url)
            if item is None or (item.size, item.mtime_ns) != (files[number].size, files[number].mtime_ns):
                raise ObjectError("it changed since it was listed")
            path = Path(scratch, str(number), url.key.rsplit("/", 1)[-1])
            path.parent.mkdir()
            with path.open("xb") as file:
                file.truncate(item.size)
            sparse = _Sparse(store, item, path)
            if every_column or sparse.read_judged() is None:
                sparse.read_all()
            os.utime(path, ns=(item.mtime_ns, item.mtime_ns))
            return path

        with ThreadPoolExecutor(CONNECTIONS) as pool:
            paths = list(pool.map(fetch, range(len(files))))
        yield paths


def _listed(store: ObjectStore, url: Url, passed: _Passed) -> list[Listed]:
    found: list[Listed] = []
    for item in store.list_below(url):
        if len(found) == MAX_FILES:
            passed.cut = True
            break
        if not (item.key.endswith("/") and not item.size):  # by which consoles mark a folder
            found.append(item)
    return found


def _usable(part: str) -> bool:
    """Return whether a part of a key is the name of a file, and of one below the folder it is put into."""
    return part not in {"", ".", ".."} and not set("\0" if os.sep == "/" else '\0\\:*?"<>|') & set(part)


def _placed(items: Iterable[Listed], url: Url, folder: Path, passed: _Passed) -> list[tuple[Listed, Path]]:
    """Map each object to a path below a folder; skip keys that lead out of it or name no file."""
    placed: list[tuple[Listed, Path]] = []
    for item in items:
        rel = item.key[len(url.key) + 1 :] if url.key else item.key
        parts = rel.split("/")
        if not all(map(_usable, parts)):
            passed.named.setdefault("key(s) that are no path below the run", []).append(_printable(rel))
        elif SKIPPED_DIRS.isdisjoint(parts[:-1]) and not (parts[-1] in MARKERS and not item.size):
            placed.append((item, folder.joinpath(*parts)))
    return placed


def _printable(key: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in key[:200])


class _Fetch:
    """Reads objects into files, several at a time."""

    def __init__(self, store: ObjectStore, url: Url, passed: _Passed, tell: Tell | None) -> None:
        self._store, self._url, self._passed, self._tell = store, url, passed, tell
        self._free = 0

    def fetch(self, placed: Sequence[tuple[Listed, Path]], *, whole: bool) -> None:
        """Make every file; of recorder files what judging reads, unless `whole`."""
        for item, path in placed:
            self._make(item, path)
        made = [(item, path) for item, path in placed if path.is_file()]
        files = {path: _Sparse(self._store, item, path) for item, path in made}
        self._room(files.values())
        dumps: dict[Path, tuple[str, ...]] = {}

        def one(place: tuple[Listed, Path]) -> None:
            item, path = place
            texts = None if whole else self._guarded(item, path, files[path].read_judged)
            if texts is None and path.is_file():
                self._guarded(item, path, files[path].read_all)
            elif texts is not None:
                dumps[path] = texts

        self._all(made, one)
        if dumps and _holds_secrets(dumps, {path: self._rel(item) for item, path in made}):
            kept = [(item, path) for item, path in made if path in dumps and path.is_file()]
            self._all(kept, lambda place: self._guarded(*place, files[place[1]].read_all))
        for item, path in made:
            if path.is_file():
                os.utime(path, ns=(item.mtime_ns, item.mtime_ns))

    def _all(self, places: Sequence[tuple[Listed, Path]], one: Callable[[tuple[Listed, Path]], object]) -> None:
        in_threads(one, places, self._tell and partial(self._tell, READING))

    def _rel(self, item: Listed) -> str:
        return item.key[len(self._url.key) + 1 :] if self._url.key != item.key else item.key.rsplit("/", 1)[-1]

    def _make(self, item: Listed, path: Path) -> None:
        """Make a file of the object's size that holds nothing yet."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.truncate(item.size)
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            self._passed.named.setdefault("key(s) whose place another one takes", []).append(self._rel(item))
        except OSError as error:
            if no_room(error):
                raise InputError(f"{self._url}: {self._no_room()}") from error
            self._passed.named.setdefault("key(s) that no file here can have", []).append(self._rel(item)[:200])

    def _room(self, files: Iterable[_Sparse]) -> None:
        """Refuse what does not fit: a recorder's file may turn out to need less, but not much less."""
        needed = sum(file.item.size for file in files)
        home = Path(os.path.commonpath([file.path for file in files])) if needed else Path.cwd()
        if needed > FREE_RATIO * shutil.disk_usage(home if home.is_dir() else home.parent).free:
            raise InputError(f"{self._url}: {needed >> 20} MB: {self._no_room()}")

    @staticmethod
    def _no_room() -> str:
        return "there is no room for it where temporary files go; set TMPDIR to a larger disk."

    def _guarded(self, item: Listed, path: Path, read: Callable[[], tuple[str, ...] | None]) -> tuple[str, ...] | None:
        """Read one object; what cannot be read of a run is noted, and is no file then."""
        try:
            return read()
        except ObjectError as error:
            path.unlink(missing_ok=True)
            if error.gone:
                self._passed.gone.append(self._rel(item))
            elif error.closed:
                self._passed.closed.setdefault(str(error), []).append(self._rel(item))
            else:
                self._passed.changed.append(self._rel(item))
        except OSError as error:
            if not no_room(error):
                raise
            raise InputError(f"{self._url}: {self._no_room()}") from error
        return None


def in_threads(
    act: Callable[[Item], Result], items: Sequence[Item], on_done: Callable[[int, int], None] | None = None
) -> list[Result]:
    """Do something with each item, as many at a time as there are connections; an error ends what has not begun."""
    pool, results = ThreadPoolExecutor(CONNECTIONS), list[Result]()
    try:
        for result in pool.map(act, items):
            results.append(result)
            if on_done is not None:
                on_done(len(results), len(items))
    finally:
        pool.shutdown(cancel_futures=True)
    return results


def _holds_secrets(dumps: dict[Path, tuple[str, ...]], rels: dict[Path, str]) -> bool:
    """Return whether recorder files hold what must be masked: they are then copied, and are needed in full."""
    scrubber = Scrubber()
    names = list(rels.values())
    if scrubber.paths(names) != names:
        return True
    by_texts: dict[tuple[str, ...], list[Path]] = {}
    for path, texts in dumps.items():
        by_texts.setdefault(texts, []).append(path)
    return any(
        tuple(scrubber.names(texts)) != texts or bool(masks_in_place(paths, texts, scrubber))
        for texts, paths in by_texts.items()
    )


class _Sparse:
    """A file whose bytes come from an object as they are asked for, each once."""

    def __init__(self, store: ObjectStore, item: Listed, path: Path) -> None:
        self.item, self.path = item, path
        self._store = store
        self._here: list[tuple[int, int]] = []  # what is here, in order and apart

    def fetch(self, *ranges: tuple[int, int]) -> None:
        """Read what is not here of some ranges; neighbours in one request."""
        wanted = _joined([(max(0, start), min(end, self.item.size)) for start, end in ranges])
        with self.path.open("r+b") as file:
            for start, end in _without(wanted, self._here):
                self._store.read_into(self.item, file, start, end)
        self._here = _joined([*self._here, *wanted])

    def read_all(self) -> tuple[str, ...] | None:
        """Read all that is not here."""
        self.fetch((0, self.item.size))
        return None

    def read_judged(self) -> tuple[str, ...] | None:
        """Read of a recorder file what judging reads, and return its columns of texts; None for any other file."""
        size = self.item.size
        if not self.path.name.endswith(".parquet") or size <= WHOLE_FILE:
            return None
        self.fetch((0, ENDS), (size - FOOTER, size))
        with self.path.open("rb") as file:
            file.seek(size - 8)
            length = int.from_bytes(file.read(4), "little")
        if length > size:
            return None
        self.fetch((size - 8 - length, size))
        footer = schema_of(RunFile(path=self.path, rel=self.path.name, size=size))
        if footer is None or not has_recorder_keys(set(footer[0].names)):
            return None
        texts = tuple(column.name for column in footer[0] if of_texts(column.type))
        try:
            self._read_columns(frozenset(footer[0].names), texts)
        except DAMAGE:  # places that lie in no file, pages that are none
            return None
        return texts

    def _read_columns(self, names: frozenset[str], texts: Sequence[str]) -> None:
        """Read the chunks of the columns that judging reads, and of the others the headers of their pages."""
        import pyarrow.parquet as pq

        wanted: list[tuple[int, int]] = []
        left: list[tuple[int, int, int]] = []
        with pq.ParquetFile(self.path) as parquet:
            meta, schema = parquet.metadata, parquet.schema_arrow
            judged = {name for name in names if _is_judged(name, schema, texts)}
            for group in map(meta.row_group, range(meta.num_row_groups)):
                for chunk in map(group.column, range(group.num_columns)):
                    start = min(at for at in (chunk.dictionary_page_offset, chunk.data_page_offset) if at)
                    end = start + chunk.total_compressed_size
                    if not 0 < start <= end <= self.item.size:
                        raise ValueError("a column that lies in no file")
                    if any(
                        chunk.path_in_schema == name or chunk.path_in_schema.startswith(f"{name}.") for name in judged
                    ):
                        wanted.append((start, end))
                    else:
                        left.append((start, end, chunk.num_values))
        self.fetch(*wanted)
        for start, end, values in left:
            self._read_headers(start, end, values)

    def _read_headers(self, start: int, end: int, values: int) -> None:
        """Read the headers of a column's pages, by which what it claims is checked; all of it where they are small."""
        if end - start <= SMALL_PAGE:
            self.fetch((start, end))
        for page in pages(cast("BinaryIO", _Ranges(self, end)), start, values):
            if page.packed < SMALL_PAGE and not page.is_dictionary:
                self.fetch((start, end))


def _is_judged(name: str, schema: object, texts: Sequence[str]) -> bool:
    """Return whether judging reads a column of a recorder file: a canonical one, a text, or what sets samples apart."""
    import pyarrow as pa
    import pyarrow.types as pat

    if name in SEQUENCES or name in texts:
        return name not in SHOWN_ALONE
    kind = cast(pa.Schema, schema).field(name).type
    return bool(pat.is_integer(kind) or pat.is_boolean(kind))


class _Ranges:
    """A sparse file that is read where it is asked for."""

    def __init__(self, sparse: _Sparse, end: int) -> None:
        self._sparse, self._end, self._at = sparse, end, 0

    def seek(self, offset: int) -> int:
        """Go to a place; ValueError where none is expected."""
        if offset >= self._end:
            raise ValueError("pages that end behind their column")
        self._at = offset
        return offset

    def read(self, size: int) -> bytes:
        """Read from there, from the object where it must be."""
        self._sparse.fetch((self._at, self._at + size))
        with self._sparse.path.open("rb") as file:
            file.seek(self._at)
            content = file.read(size)
        self._at += len(content)
        return content


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _without(wanted: Iterable[tuple[int, int]], here: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    left: list[tuple[int, int]] = []
    for start, end in wanted:
        for begin, stop in here:
            if stop <= start or begin >= end:
                continue
            if begin > start:
                left.append((start, begin))
            start = max(start, stop)
        if start < end:
            left.append((start, end))
    return left
