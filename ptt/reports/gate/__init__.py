"""Render a gate's answer in the formats that CI systems read; each renderer is a pure function of the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.gate.results import GateReport
from ptt.reports.gate import gate_json, junit, markdown, sarif
from ptt.reports.gate.index import index_html
from ptt.reports.gate.markdown import github_annotations, github_guard, job_summary
from ptt.reports.gate.terminal import print_gate


@dataclass(frozen=True, kw_only=True)
class Format:
    """One format: what it is called, what its file is called unless said otherwise, and who writes its text."""

    name: str
    file: str
    render: Callable[[GateReport], str]


FORMATS: Final[Mapping[str, Format]] = {
    form.name: form
    for form in (
        Format(name="json", file="gate.json", render=gate_json.render),
        Format(name="junit", file="junit.xml", render=junit.render),
        Format(name="sarif", file="gate.sarif", render=sarif.render),
        Format(name="markdown", file="gate.md", render=markdown.render),
    )
}


def github_workflow() -> str:
    """Return the workflow that gates runs on GitHub; docs/ci/github-actions.yml is a copy of it."""
    return files(__name__).joinpath("github-actions.yml").read_text(encoding="utf-8")


__all__ = [
    "FORMATS",
    "Format",
    "github_annotations",
    "github_guard",
    "github_workflow",
    "index_html",
    "job_summary",
    "print_gate",
]
