"""Fill the message of a custom rule: a closed list of fields, each with a number format, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ptt.diagnostics.custom.terms import RuleError

FIELDS: Final = ("value", "limit", "early", "onset")
_FIELD: Final = re.compile(r"\{\{|\}\}|\{(\w+)(?::([^{}]*))?\}|[{}]")
_FORMAT: Final = re.compile(r",?(?:\.\d)?[efg%]?")


def check(template: str) -> None:
    """Refuse a template with unknown fields, a format that is none, or a lone brace."""
    for found in _FIELD.finditer(template):
        if found.group() in {"{", "}"}:
            raise RuleError(f"a lone {found.group()!r}; write it twice to show it")
        name, form = found.group(1), found.group(2) or ""
        if name is not None and name not in FIELDS:
            raise RuleError(f"there is no field {{{name}}}; known are {', '.join(FIELDS)}")
        if not _FORMAT.fullmatch(form):
            raise RuleError(f"{form!r} is no number format; write for example {{value:.3f}} or {{value:.1%}}")


def filled(template: str, values: Mapping[str, float | int | None]) -> str:
    """Fill a template that `check` let pass; a value that is not known reads "unknown"."""

    def one(found: re.Match[str]) -> str:
        if found.group(1) is None:
            return found.group()[0]
        value = values.get(found.group(1))
        if value is None:
            return "unknown"
        form = found.group(2) or ("d" if isinstance(value, int) else ".4g")
        return format(value if form in {"d", ","} else float(value), form)

    return _FIELD.sub(one, template)
