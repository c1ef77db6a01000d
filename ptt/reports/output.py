"""Makes JSON of what is told: finite numbers of six digits or null, text any file can hold, the same bytes always."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from ptt.reports.text.sanitize import encodable


def write_text(path: Path, text: str) -> Path:
    """Write text as UTF-8 under a `.part` name, then rename it into place."""
    return write_with(path, lambda part: part.write_bytes(text.encode("utf-8")))


def write_with(path: Path, write: Callable[[Path], object]) -> Path:
    """Let `write` fill a `.part` file, then rename it into place; a failed one is removed.

    A link keeps pointing where it does, and a device or a pipe is written to: neither is replaced by a file.
    """
    target = path.resolve() if path.is_symlink() else path
    if target.exists() and not target.is_file() and not target.is_dir():
        with TemporaryDirectory(prefix="ptt-") as scratch:
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
    """Give the text of a document, one space to a level."""
    return json.dumps(_finite(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


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
