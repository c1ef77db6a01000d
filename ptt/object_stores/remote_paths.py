"""The door for paths in an object store: runs are laid out in a scratch folder, and output is written back at the end.

What lies between knows folders alone. Nothing is written to the store before all of it is made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from ptt.diagnostics.errors import InputError, PttError, SettingsError
from ptt.diagnostics.parsers.io.run_files import MAX_FILES
from ptt.diagnostics.store.exclusive_lock import NOTE
from ptt.object_stores.client import CONNECTIONS, ObjectStore, Url, is_url, refuse_other_stores, same_content
from ptt.object_stores.remote_runs import MANIFEST, PREFIX, Tell, local_name, mirror
from ptt.stopping import temporary_folder

STORE: Final = "store"
BASE: Final = "ptt-report"
NOT_WRITTEN: Final = (".lock", ".part")  # ends of the names of files that are of this machine, as is NOTE
AnyPath = TypeVar("AnyPath", bound=str | Path | None)
NOTES: Final = ".notes"  # ends the name of the file beside a run that says what of it was passed over
WHY: Final = ".why"  # ends the name of the file that says why a run could not be fetched

_shown: dict[Path, str] = {}  # scratch folders, and what they stand for, while a command runs


def shown(path: Path) -> str:
    """Return a path as the user knows it: the URL of what lies in a scratch folder."""
    if (url := url_of(path)) is not None:
        return url
    return str(path)


def url_of(path: Path) -> str | None:
    """Return the URL of what lies in a scratch folder; None for any other path."""
    for local, url in _shown.items():
        if path == local or local in path.parents:
            return "/".join((url, *path.relative_to(local).parts))
    return None


def why_not_fetched(path: Path) -> str:
    """Say why a run of several could not be fetched; empty for any other path."""
    note = path.with_name(path.name + WHY)
    if path.name and note.parent.parent.name.startswith(PREFIX) and note.is_file():
        return note.read_text(encoding="utf-8")
    return ""


def notes_of(path: Path) -> tuple[str, ...]:
    """Return what was passed over when a run was laid out, in this process or the one that started it."""
    home = path.absolute()
    for local in (home, *home.parents):
        if local.parent.parent.name.startswith(PREFIX):
            note = local.with_name(local.name + NOTES)
            return tuple(map(str, json.loads(note.read_text(encoding="ascii")))) if note.is_file() else ()
    return ()


class RemotePaths:
    """The paths of one command, as folders and files of this machine while the block runs."""

    def __init__(self, progress: Callable[[], AbstractContextManager[Tell]] | None = None) -> None:
        """`progress` makes what hears how far reading is."""
        self.bytes_read = 0
        self._progress = progress or _silent
        self._stack = ExitStack()
        self._scratch: Path | None = None
        self._made: list[Path] = []
        self._read: list[Url] = []
        self._outputs: list[tuple[Path, Url, ObjectStore]] = []

    def __enter__(self) -> Self:
        """Begin; nothing is made before a path needs it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Write the output, where nothing failed, and clear up; errors name what the user gave."""
        try:
            if error is None:
                for folder, url, store in self._outputs:
                    _publish(folder, url, store)
            elif isinstance(error, PttError) and error.args:
                error.args = (self._renamed(str(error)), *error.args[1:])
        finally:
            for local in self._made:
                _shown.pop(local, None)
            self._stack.close()

    def run(self, path: Path, *, every_column: bool = False) -> Path:
        """Return what to read for a path: itself, or what was laid out of a run in an object store."""
        refuse_other_stores(path)
        if not is_url(path):
            return path
        url = Url.parsed(path)
        with self._progress() as tell:
            made = mirror(url, self._folder(), every_column=every_column, tell=tell)
        self.bytes_read += made.bytes_read
        made.path.with_name(made.path.name + NOTES).write_text(json.dumps(made.notes), encoding="ascii")
        self._read.append(url)
        return self._show(made.path, url)

    def runs(self, paths: Iterable[Path], *, every_column: bool = False) -> list[Path]:
        """Return what to read for each of several paths; one that cannot be read does not stop the others."""
        given = list(paths)
        if len(given) == 1:
            return [self.run(given[0], every_column=every_column)]
        return [self.run_or_why(path, every_column=every_column) for path in given]

    def run_or_why(self, path: Path, *, every_column: bool = False) -> Path:
        """Return what to read for one of several paths; where it cannot be read, whoever opens it is told why."""
        try:
            return self.run(path, every_column=every_column)
        except InputError as error:
            url = Url.parsed(path)
            local = self._folder() / (local_name(url) or "run")
            local.with_name(local.name + WHY).write_text(str(error), encoding="utf-8")
            return self._show(local, url)

    def maybe(self, path: Path | None) -> Path | None:
        """Return what to read for a path that may not be given."""
        return None if path is None else self.run(path)

    def output(self, path: Path | None, *, of: Sequence[Path] = ()) -> Path | None:
        """Return where to write for an output folder: itself, or a scratch folder that is written back at the end.

        `of`: the paths as given whose default is asked for. It is called after the URL, since each look at a run in an
        object store lays it out elsewhere.
        """
        if path is None:
            remote = [Url.parsed(run) for run in of if is_url(run)]
            return Path(BASE) / f"{remote[0].bucket}-{remote[0].key}".replace("/", "-")[:200] if remote else None
        refuse_other_stores(path)
        if not is_url(path):
            return path
        url = Url.parsed(path)
        if not url.key:
            raise SettingsError(f"{url}/: names a whole bucket; give a folder in it, as s3://{url.bucket}/reports.")
        for run in self._read:
            if url.bucket == run.bucket and f"{url.key}/".startswith(f"{run.key}/" if run.key else ""):
                raise SettingsError(f"{url}: lies inside {run}, which is never written to; give another --out.")
        if not (name := local_name(url)):
            raise SettingsError(f"{url}: no folder here can have this name; give another --out.")
        store = ObjectStore(url, writes=True)
        folder = self._folder() / name
        folder.mkdir()
        if store.find(url.below(f"{STORE}/{MANIFEST}")) is not None:
            _read_earlier(url.below(STORE), folder)
        self._outputs.append((folder, url, store))
        return self._show(folder, url)

    def no_output(self, path: AnyPath, option: str) -> AnyPath:
        """Return a path that must lie on this machine."""
        if path is not None and is_url(path):
            raise SettingsError(f"{option} {path}: takes a folder of this machine; only --out writes to object stores.")
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


def _read_earlier(url: Url, folder: Path) -> None:
    """Lay out the store that an earlier look left in the output, which saves time; one that is not whole is left."""
    try:
        earlier = mirror(url, folder)
    except InputError as error:
        raise SettingsError(str(error)) from error
    if earlier.notes:  # of objects that are there and cannot be read: they are no leftovers to delete
        shutil.rmtree(earlier.path)


def _publish(folder: Path, url: Url, store: ObjectStore) -> None:
    """Write what was made, a store's list of its parts last: where this is cut, there is no store rather than half."""
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    files = {rel: path for rel, path in files.items() if not rel.endswith(NOT_WRITTEN) and path.name != NOTE}
    start = len(url.key) + 1
    there = {item.key[start:]: item for item in islice(store.list_below(url), MAX_FILES)}
    changed = [rel for rel, path in files.items() if rel not in there or not same_content(path, there[rel])]
    stores = {rel.removesuffix(MANIFEST) for rel in files if f"/{rel}".endswith(f"/{STORE}/{MANIFEST}")}
    earlier = {home for home in stores if f"{home}{MANIFEST}" in there}
    stale = [rel for rel in there if rel not in files and any(rel.startswith(home) for home in earlier)]
    for home in earlier:
        if any(rel.startswith(home) for rel in (*changed, *stale)):
            store.delete(url.below(f"{home}{MANIFEST}"))
            changed = sorted({*changed, f"{home}{MANIFEST}"})
    inside = [rel for rel in changed if any(rel.startswith(home) for home in stores)]
    manifests = [rel for rel in inside if rel.rsplit("/", 1)[-1] == MANIFEST]
    _each(lambda rel: store.write(files[rel], url.below(rel)), [rel for rel in inside if rel not in manifests])
    _each(lambda rel: store.delete(url.below(rel)), stale)
    _each(lambda rel: store.write(files[rel], url.below(rel)), manifests)
    _each(lambda rel: store.write(files[rel], url.below(rel)), [rel for rel in changed if rel not in inside])


def _each(act: Callable[[str], None], names: Sequence[str]) -> None:
    pool = ThreadPoolExecutor(CONNECTIONS)
    try:
        list(pool.map(act, names))
    finally:
        pool.shutdown(cancel_futures=True)
