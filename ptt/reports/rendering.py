"""Renders the templates: HTML with every value escaped, Markdown with every value made harmless."""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from ptt.reports.text.markdown import md
from ptt.reports.text.names import LINKS, SEVERITIES, STATUSES, sentence
from ptt.reports.text.sanitize import encodable, safe
from ptt.version import __version__


def render(template: str, **values: object) -> str:
    """Return the text of a page; the same values give the same bytes."""
    return encodable(_environment(template.endswith(".md.j2")).get_template(template).render(values))


@cache
def _environment(markdown: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("ptt.reports"),
        autoescape=not markdown,  # noqa: S701  of Markdown `finalize` escapes every value
        finalize=md if markdown else None,
        undefined=StrictUndefined,  # a name that is missing is an error
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=markdown,
    )
    environment.globals |= {"version": __version__, "links": LINKS, "severities": SEVERITIES, "statuses": STATUSES}
    environment.filters |= {"plain": safe, "sentence": sentence}
    return environment
