"""The door for paths in an object store: runs are laid out in a scratch folder, and output is written back at the end.

What lies between knows folders alone. Nothing is written to the store before all of it is made.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.errors import InputError, PttError, SettingsError, no_room
from ptt.diagnostics.parsers.io.run_files import MAX_FILES
from ptt.diagnostics.store.folders import NOTE
from ptt.object_stores.client import (
    Listed,
    ObjectStore,
    UnreachableError,
    Url,
    is_url,
    refuse_other_stores,
    same_content,
)
from ptt.object_stores.remote_runs import (
    MANIFEST,
    PREFIX,
    Tell,
    in_threads,
    lay_out_whole,
    local_name,
    local_path,
    mirror,
)
from ptt.stopping import temporary_folder

STORE: Final = "store"
NOT_WRITTEN: Final = (".lock", ".part")  # ends of the names of files that are of this machine, as is NOTE

FINDINGS: Final = "findings.json"
BASE: Final = "ptt-report"
SCRATCH: Final = re.compile(PREFIX + "[0-9a-f]{16}")  # names of scratch folders
AnyPath = TypeVar("AnyPath", bound=str | Path | None)
NOTES: Final = ".notes"  # ends the name of the file beside a run that says what of it was passed over
ROOM_HERE: Final = "output is made where temporary files go before it is written there; set TMPDIR to a larger disk"
WHY: Final = ".why"  # ends the name of the file that says why a run could not be fetched

MAX_UNANSWERED: Final = 3  # runs in turn for which a store does not answer, each after three tries

_shown: dict[Path, str] = {}  # scratch folders, and what they stand for, while a command runs


class RemoteOutput:
    """An output folder in an object store, and the folder of this machine that it is made in."""

    def __init__(self, url: Url, folder: Path) -> None:
        """Connect; SettingsError where nothing can be listed there."""
        self.url, self.folder = url, folder
        self._store = ObjectStore(url, writes=True)
        self._earlier: set[str] = set()  # what was laid out, by its key below the URL

    def read_earlier(self, folders: Iterable[Path], *, mark: str | None = None, beside: Sequence[str] = ()) -> None:
        """Lay out what an earlier command left in these folders, so that what is unchanged is not made again.

        A folder's store, where it is whole, and its findings.json, which tells what wrote there; and where the file
        `mark` is there, by which a command knows what it made, that file and those `beside` it. A store with an
        unreadable object is skipped, and built again.
        """

        def list_folder(folder: Path) -> tuple[Path, list[Listed]]:
            url = self._url_of(folder)
            store = list(islice(self._store.list_below(url.below(STORE)), MAX_FILES))
            if not any(item.key == url.below(f"{STORE}/{MANIFEST}").key for item in store):
                store = []
            marked = mark is not None and self._store.find(url.below(mark)) is not None
            names = (mark, *beside) if mark and marked else (FINDINGS,)
            named = [self._store.find(url.below(name)) for name in names]
            return folder, [*store, *filter(None, named)]

        for folder, items in in_threads(list_folder, list(folders)):
            if items:
                self._lay_out(folder, items)

    def _lay_out(self, folder: Path, items: Sequence[Listed]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            whole = lay_out_whole(self._store, self._url_of(folder), items, folder)
        except InputError as error:
            raise SettingsError(str(error)) from error
        if not whole:  # of objects that are there and cannot be read: they are no leftovers to delete
            shutil.rmtree(folder / STORE, ignore_errors=True)
        start = len(self.url.key) + 1
        self._earlier |= {rel for item in items if (self.folder / (rel := item.key[start:])).is_file()}

    def _url_of(self, folder: Path) -> Url:
        return self.url.below("/".join(folder.relative_to(self.folder).parts)) if folder != self.folder else self.url

    def publish(self) -> None:
        """Write what was made, and delete what was laid out and is no longer there."""
        files = {path.relative_to(self.folder).as_posix(): path for path in sorted(self.folder.rglob("*"))}
        files = {rel: path for rel, path in files.items() if path.is_file() and _is_written(path)}
        start = len(self.url.key) + 1
        there = {item.key[start:]: item for item in islice(self._store.list_below(self.url), MAX_FILES)}
        manifests = {rel for rel in files if f"/{rel}".endswith(f"/{STORE}/{MANIFEST}")}
        changed = {rel for rel, path in files.items() if rel not in there or not same_content(path, there[rel])}
        of_store = {rel: _manifest_of(rel, manifests) for rel in (*files, *there)}
        stale = {rel for rel in there if rel not in files and (rel in self._earlier or of_store[rel] is not None)}
        of_changed = {of_store[rel] for rel in changed | stale}
        touched = {rel for rel in manifests if rel in there and rel in of_changed}
        changed |= touched
        inside = {rel for rel in changed if of_store[rel] is not None}
        for rels, act in (
            (touched | {rel for rel in stale if rel.rsplit("/", 1)[-1] == MANIFEST}, self._delete),
            (inside - manifests, self._write),
            (stale, self._delete),
            (inside & manifests, self._write),
            (changed - inside, self._write),
        ):
            in_threads(act, sorted(rels))

    def _write(self, rel: str) -> None:
        self._store.write(self.folder / rel, self.url.below(rel))

    def _delete(self, rel: str) -> None:
        self._store.delete(self.url.below(rel))


def _manifest_of(rel: str, manifests: Set[str]) -> str | None:
    """Return the manifest of the store that a file belongs to, of those that were made; None for any other file."""
    parts = rel.split("/")
    above = ("/".join((*parts[:depth], MANIFEST)) for depth in range(1, len(parts)))
    return next((manifest for manifest in above if manifest in manifests), None)


def _is_written(path: Path) -> bool:
    return not path.name.endswith(NOT_WRITTEN) and path.name != NOTE


def shown(path: Path) -> str:
    """Return a path as the user knows it: the URL of what lies in a scratch folder."""
    if (url := url_of(path)) is not None:
        return url
    return str(path)


def url_of(path: Path) -> str | None:
    """Return the URL of what lies in a scratch folder; None for any other path."""
    for local, url in tuple(_shown.items()):  # another thread may read runs as well
        if path == local or local in path.parents:
            return "/".join((url, *path.relative_to(local).parts))
    return None


def why_not_fetched(path: Path) -> str:
    """Say why a run of several could not be fetched; empty for any other path."""
    note = path.with_name(path.name + WHY) if path.name else path
    return note.read_text(encoding="utf-8") if path.name and _is_laid_out(path) and note.is_file() else ""


def room_advice(folder: Path) -> str:
    """Say what to do where no more can be written into a folder."""
    return ROOM_HERE if _is_laid_out(folder) else "give another --out, or free some space"


def notes_of(path: Path) -> tuple[str, ...]:
    """Return what was passed over when a run was laid out, in this process or the one that started it."""
    home = path.absolute()
    for local in (home, *home.parents):
        if not _is_laid_out(local):
            break
        if (note := local.with_name(local.name + NOTES)).is_file():
            return tuple(map(str, json.loads(note.read_text(encoding="ascii"))))
    return ()


def _is_laid_out(path: Path) -> bool:
    """Return whether a path lies in a scratch folder, of this process or the one that started it."""
    return any(SCRATCH.fullmatch(parent.name) for parent in path.parents)


class RemotePaths:
    """The paths of one command, as folders and files of this machine while the block runs."""

    def __init__(self, progress: Callable[[], AbstractContextManager[Tell]] | None = None) -> None:
        """`progress` makes what hears how far reading is."""
        self.bytes_read = 0
        self._progress = progress or _silent
        self._stack = ExitStack()
        self._scratch: Path | None = None
        self._made: list[Path] = []
        self._read: list[_Source] = []
        self._unanswered = 0  # runs in turn
        self._laid_out: dict[tuple[Url, bool], Path] = {}  # by whether every column was read: a run given twice is one
        self._outputs: list[RemoteOutput] = []

    def __enter__(self) -> Self:
        """Begin; nothing is made before a path needs it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the output, where nothing failed, and clear up; errors name what the user gave."""
        try:
            if error is None:
                for output in self._outputs:
                    output.publish()
            elif isinstance(error, PttError) and error.args:
                error.args = (self._renamed(str(error)), *error.args[1:])
            elif self._outputs and (why := no_room(error)):
                raise SettingsError(f"{self._outputs[0].url}: {why}; {ROOM_HERE}.") from error
        finally:
            for local in self._made:
                _shown.pop(local, None)
            self._stack.close()

    def run(self, path: Path, *, every_column: bool = False, beside: bool = False) -> Path:
        """Return what to read for a path: itself, or what was laid out of a run in an object store.

        `beside`: output may go beside the files of a folder that ptt wrote, as a report of it does.
        """
        refuse_other_stores(path)
        if not is_url(path):
            return path
        url = Url.parsed(path)
        if (known := self._laid_out.get((url, every_column))) is not None:
            return known
        if not beside:
            self._keep_clear(_Source(url=url))
        with self._progress() as tell:
            made = mirror(url, self._folder(), every_column=every_column, tell=tell)
        self.bytes_read += made.bytes_read
        made.path.with_name(made.path.name + NOTES).write_text(json.dumps(made.notes), encoding="ascii")
        if beside:
            self._keep_clear(_source(url, made.path))
        return self._laid_out.setdefault((url, every_column), self._show(made.path, url))

    def _keep_clear(self, source: _Source) -> None:
        self._read.append(source)
        for output in self._outputs:
            _refuse_inside(source, output.url)

    def runs(self, paths: Iterable[Path], *, every_column: bool = False) -> list[Path]:
        """Return what to read for each of several paths; one that cannot be read does not stop the others.

        Raises UnreachableError where the store does not answer for several in turn: each would wait as long.
        """
        given = list(paths)
        if len(given) == 1:
            return [self.run(given[0], every_column=every_column)]
        self._unanswered = 0
        return [self.run_or_why(path, every_column=every_column) for path in given]

    def run_or_why(self, path: Path, *, every_column: bool = False) -> Path:
        """Return what to read for one of several paths; where it cannot be read, whoever opens it is told why."""
        try:
            local = self.run(path, every_column=every_column)
        except InputError as error:
            self._unanswered += isinstance(error, UnreachableError)
            if self._unanswered >= MAX_UNANSWERED:
                raise
            url = Url.parsed(path)
            local = local_path(self._folder(), url)
            local.parent.mkdir(parents=True, exist_ok=True)
            local.with_name(local.name + WHY).write_text(str(error), encoding="utf-8")
            return self._laid_out.setdefault((url, every_column), self._show(local, url))
        self._unanswered = 0
        return local

    def maybe(self, path: Path | None) -> Path | None:
        """Return what to read for a path that may not be given."""
        return None if path is None else self.run(path)

    def output(self, path: Path | None, *, of: Sequence[Path] = ()) -> Path | None:
        """Return where to write for an output folder: itself, or a scratch folder that is written back at the end.

        `of`: the paths as given whose default is asked for. That of one is called after its URL, and not after where it
        is laid out.
        """
        if path is None:
            remote = [Url.parsed(run) for run in of if is_url(run)]
            if len(remote) != 1 or len(of) > 1:  # several are called after none of them
                return None
            return Path(BASE) / f"{remote[0].bucket}-{remote[0].key}".replace("/", "-")[:200]
        refuse_other_stores(path)
        if not is_url(path):
            return path
        url = Url.parsed(path)
        if not url.key:
            raise SettingsError(f"{url}/: names a whole bucket; give a folder in it, as s3://{url.bucket}/reports.")
        for source in self._read:
            _refuse_inside(source, url)
        if not local_name(url):
            raise SettingsError(f"{url}: no folder here can have this name; give another --out.")
        folder = local_path(self._folder(), url)
        folder.mkdir(parents=True)
        self._outputs.append(RemoteOutput(url, folder))
        self._outputs[-1].read_earlier([folder])
        return self._show(folder, url)

    def read_earlier(self, folders: Iterable[Path], *, mark: str | None = None, beside: Sequence[str] = ()) -> None:
        """Lay out what an earlier command left in folders of the output (see RemoteOutput); others are left alone."""
        wanted = list(folders)
        for output in self._outputs:
            output.read_earlier([path for path in wanted if output.folder in path.parents], mark=mark, beside=beside)

    def no_output(self, path: AnyPath, option: str) -> AnyPath:
        """Return a path that must lie on this machine."""
        if path is not None and is_url(path):
            raise SettingsError(
                f"{option} {Url.parsed(path)}: this takes a path of this machine, not of an object store."
            )
        return path

    def _folder(self) -> Path:
        """Make a folder of its own: two runs may have one name."""
        if self._scratch is None:
            self._scratch = Path(self._stack.enter_context(temporary_folder(PREFIX))).resolve()
        folder = self._scratch / str(len(list(self._scratch.iterdir())))
        folder.mkdir()
        return folder

    def _show(self, local: Path, url: Url) -> Path:
        _shown[local] = str(url)
        self._made.append(local)
        return local

    def _renamed(self, text: str) -> str:
        for local in sorted(self._made, key=lambda path: -len(str(path))):
            text = text.replace(str(local), _shown[local])
        return text


@contextmanager
def _silent() -> Iterator[Tell]:
    yield lambda _stage, _done, _of: None


@dataclass(frozen=True, kw_only=True)
class _Source:
    """What is read, and the folder that ptt wrote with it, beside whose files output may go."""

    url: Url
    written: Url | None = None


def _source(url: Url, path: Path) -> _Source:
    """Say which folder a store or a findings.json that was read belongs to."""
    if path.name == FINDINGS or (path.name == STORE and (path / MANIFEST).is_file()):
        return _Source(url=url, written=Url(bucket=url.bucket, key=url.key.rpartition("/")[0]))
    return _Source(url=url, written=url if (path / FINDINGS).is_file() else None)


def _refuse_inside(source: _Source, out: Url) -> None:
    """Raise where output would go into a run, or over what ptt wrote and is read here."""
    if source.written is None and out.is_in(source.url):
        raise SettingsError(f"{out}: lies inside {source.url}, which is never written to; give another --out.")
    if source.written is not None and (out == source.written or out.is_in(source.written.below(STORE))):
        raise SettingsError(f"{out}: is, or lies in, what the report is made from; give another --out.")
