"""Make notebook.ipynb: run each of its cells here and write down what Jupyter would show.

Usage: python docs/make_notebook.py
"""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
CELLS = (
    ("markdown", "# A run in a notebook\n\nMade by `docs/make_notebook.py` in the root of a checkout."),
    ("code", 'import ptt\n\nrun = ptt.diagnose("sample_logs/tool_tail_growth")\nrun'),
    ("markdown", "The findings are a Polars frame, and the figures show themselves as SVG."),
    ("code", 'run.findings_frame.select("id", "severity", "since_step", "claim")'),
    ("code", 'run.figures["tail_emergence"]'),
    ("markdown", "A policy decides whether runs may pass; `ptt.compare` sets runs side by side."),
    (
        "code",
        'gate = ptt.gate(["sample_logs/healthy", "sample_logs/tool_tail_growth"])\n'
        "{run.name: run.outcome.value for run in gate.runs}",
    ),
    (
        "code",
        'both = ptt.compare(["sample_logs/healthy", "sample_logs/tool_tail_growth"])\n[arm.name for arm in both.arms]',
    ),
)
KINDS = {"text/html": "_repr_html_", "image/svg+xml": "_repr_svg_"}


def shown(value: object) -> dict[str, list[str]]:
    """Return a value in each form that a notebook shows."""
    forms = {"text/plain": repr(value)}
    forms |= {kind: getattr(value, method)() for kind, method in KINDS.items() if hasattr(value, method)}
    return {kind: text.splitlines(keepends=True) for kind, text in forms.items() if text}


def executed(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell in a notebook's names, and return its outputs: the value of its last line."""
    *body, last = ast.parse(source).body
    assert isinstance(last, ast.Expr), source
    exec(compile(ast.Module(body, type_ignores=[]), "<cell>", "exec"), names)  # noqa: S102  our own cells
    value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # noqa: S307
    return [{"output_type": "execute_result", "data": shown(value), "metadata": {}}]


def notebook() -> dict[str, Any]:
    """Return the notebook as a document of nbformat 4.5, executed."""
    names: dict[str, Any] = {}
    cells: list[dict[str, Any]] = []
    for number, (kind, source) in enumerate(CELLS, start=1):
        cell = {"id": f"cell-{number}", "cell_type": kind, "metadata": {}, "source": source.splitlines(keepends=True)}
        if kind == "code":
            count = sum(made["cell_type"] == "code" for made in cells) + 1
            outputs = [output | {"execution_count": count} for output in executed(source, names)]
            cell |= {"execution_count": count, "outputs": outputs}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": cells}


def main() -> None:
    """Write the notebook."""
    os.chdir(ROOT)
    NOTEBOOK.write_text(json.dumps(notebook(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
