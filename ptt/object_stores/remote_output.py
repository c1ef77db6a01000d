"""Output that goes to an object store: made in a folder, beside what an earlier command left, and written at once.

Nothing is written before all of it is made. A store's list of its parts is deleted first and written last: where this
is cut, there is no store rather than half of one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar

from ptt.diagnostics.errors import InputError, SettingsError
from ptt.diagnostics.parsers.io.run_files import MAX_FILES
from ptt.diagnostics.store.exclusive_lock import NOTE
from ptt.object_stores.client import CONNECTIONS, Listed, ObjectStore, Url, same_content
from ptt.object_stores.remote_runs import MANIFEST, lay_out_whole

STORE: Final = "store"
NOT_WRITTEN: Final = (".lock", ".part")  # ends of the names of files that are of this machine, as is NOTE
Item = TypeVar("Item")
Result = TypeVar("Result")


class RemoteOutput:
    """An output folder in an object store, and the folder of this machine that it is made in."""

    def __init__(self, url: Url, folder: Path) -> None:
        """Connect; SettingsError where nothing can be listed there."""
        self.url, self.folder = url, folder
        self._store = ObjectStore(url, writes=True)
        self._earlier: set[str] = set()  # what was laid out, by its key below the URL

    def read_earlier(self, folders: Iterable[Path], *, mark: str | None = None, beside: Sequence[str] = ()) -> None:
        """Lay out what an earlier command left in these folders, so that what is unchanged is not made again.

        A folder's store, where it is whole; and where the file `mark` is there, by which a command knows what it made,
        that file and those `beside` it. A store with an unreadable object is skipped, and built again.
        """

        def list_folder(folder: Path) -> tuple[Path, list[Listed]]:
            url = self._url_of(folder)
            store = list(islice(self._store.list_below(url.below(STORE)), MAX_FILES))
            if not any(item.key == url.below(f"{STORE}/{MANIFEST}").key for item in store):
                store = []
            marked = mark is not None and self._store.find(url.below(mark)) is not None
            named = [self._store.find(url.below(name)) for name in (mark, *beside)] if mark and marked else []
            return folder, [*store, *filter(None, named)]

        for folder, items in _each(list_folder, list(folders)):
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
            _each(act, sorted(rels))

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


def _each(act: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    pool = ThreadPoolExecutor(CONNECTIONS)
    try:
        return list(pool.map(act, items))
    finally:
        pool.shutdown(cancel_futures=True)
