"""Write files, whole or not at all: JSON of finite numbers, pages from templates; always the same bytes."""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from ptt.reports.text.markdown import code, md
from ptt.reports.text.names import LINKS, SEVERITIES, STATUSES, runs, sentence, status_word
from ptt.reports.text.sanitize import encodable, safe
from ptt.stopping import temporary_folder
from ptt.version import __version__

if TYPE_CHECKING:
    from jinja2 import BaseLoader, BytecodeCache, Environment
    from jinja2.bccache import Bucket

REFERENCE: Final = re.compile(r'{% (?:extends|from|import|include) "([^"]+)"')  # from one template to another


def write_text(path: Path, text: str) -> Path:
    """Write text as UTF-8 under a `.part` name, then rename it into place."""
    return write_with(path, lambda part: part.write_bytes(text.encode("utf-8")))


def write_with(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a `.part` file, then rename it into place; a failed one is removed.

    A link keeps pointing where it does, and a device or a pipe is written to: neither is replaced by a file.
    """
    target = path.resolve() if path.is_symlink() else path
    if target.exists() and not target.is_file() and not target.is_dir():
        with temporary_folder() as scratch:
            part = Path(scratch) / target.name
            write(part)
            with target.open("wb", buffering=0) as device:
                device.write(part.read_bytes())
        return path
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        write(part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return path


SIGNIFICANT_DIGITS = 6  # more would differ between machines: sums of floats depend on their order

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


def finite_json(content: Mapping[str, object]) -> str:
    """Return the text of a document, one space to a level."""
    return json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def versioned_json(content: Mapping[str, object], version: str) -> str:
    """Return the text of a document of schema version 1: numbers in full, sets sorted."""
    document = {"schema_version": 1, "ptt_version": version, **content}
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False, default=sorted) + "\n"


def _finite(value: object) -> Json:
    match value:
        case None | bool() | int():
            return value
        case float():
            return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(value) else None
        case str():
            return encodable(str(value))
        case Mapping():
            return {encodable(str(key)): _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
    raise TypeError(f"JSON cannot hold a {type(value).__name__}")


def fields_of(value: object, *names: str) -> dict[str, object]:
    """Return these fields of a value, for a document of JSON."""
    return {name: getattr(value, name) for name in names}


def render(template: str, **values: object) -> str:
    """Return the text of a page; the same values give the same bytes."""
    return encodable(_environment(template.endswith(".md.j2")).get_template(template).render(values))


def prepare(template: str) -> None:
    """Compile a template, and those it refers to, before its values are there."""
    environment = _environment(template.endswith(".md.j2"))
    environment.get_template(template)
    source, _, _ = cast("BaseLoader", environment.loader).get_source(environment, template)
    for name in dict.fromkeys(REFERENCE.findall(source)):
        prepare(name)


@cache
def _environment(markdown: bool) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ptt.reports"),
        autoescape=not markdown,  # noqa: S701  of Markdown `finalize` escapes every value
        finalize=md if markdown else None,
        bytecode_cache=_byte_code(),
        undefined=StrictUndefined,  # a name that is missing is an error
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=markdown,
    )
    environment.globals |= {"version": __version__, "links": LINKS, "severities": SEVERITIES, "statuses": STATUSES}
    environment.filters |= {"code": code, "plain": safe, "runs": runs, "sentence": sentence, "status_word": status_word}
    return environment


def _byte_code() -> BytecodeCache:
    """Keep compiled templates where Python keeps compiled modules: compiling takes longer than filling them in."""
    from jinja2 import FileSystemBytecodeCache

    class Kept(FileSystemBytecodeCache):
        def dump_bytecode(self, bucket: Bucket) -> None:
            with suppress(OSError):  # a folder that nobody may write to
                if not sys.dont_write_bytecode:
                    Path(self.directory).mkdir(parents=True, exist_ok=True)
                    super().dump_bytecode(bucket)

    kept = Path(cache_from_source(str(Path(__file__).parent / "templates" / "page.py"))).parent
    state = Path(__file__).stat().st_mtime_ns  # the options above are compiled in
    return Kept(str(kept), f"{state:x}-%s.cache")
