"""Exported files in TRL: `datasets` loads them, trainers take a step on each, and none trains on what tools said."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from exported import asked, called, episode, result, said, store_of

from ptt.diagnostics.traces.exports.export import export_traces
from ptt.diagnostics.traces.exports.options import ExportKind, ExportOptions, FileFormat, StepExtent, ToolOutput

SCRIPT = Path(__file__).with_name("train_on_exports.py")
TOOLS = [
    {"name": "look", "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}}},
    {"name": "add", "input_schema": {"type": "object", "properties": {"terms": {"type": "array"}}}},
]

pytestmark = [
    pytest.mark.trl,
    pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed; make test-exports installs it"),
]


def _episodes() -> list[dict[str, Any]]:
    """Attempts that call tools of different arguments, one of them with none, one with what is no JSON."""
    found = []
    for number in range(12):
        good = number % 2 == 0
        place = "shelf" if good else "floor"
        completion = [
            said("I look."),
            called("look", {"place": place, "depth": None} if number % 3 else {}, f"c{number}"),
            result(f"[result: {number} stones :result]", f"c{number}"),
            called("add", {"terms": [number, 1.5, "two"]} if number % 5 != 3 else "not json", f"d{number}"),
            result("[result: 4 :result]", f"d{number}"),
        ]
        if number % 4 < 3:
            completion.append(said(f"There are {number}."))
        prompt = [{"role": "system", "content": "Be exact."}, *asked(f"How many stones? {number // 4}")]
        found.append(episode(prompt, completion, TOOLS if number < 8 else None, success=good, reward=float(good)))
    return found


def _trained(tmp_path: Path, *more: str, **options: Any) -> dict[str, Any]:
    """Export the episodes, train on them, and return what was loaded and the losses."""
    store = store_of(tmp_path / "store", _episodes())
    export_traces(store, tmp_path / "exports", ExportOptions(kinds=tuple(ExportKind), **options))
    command = [sys.executable, str(SCRIPT), str(tmp_path / "exports"), str(tmp_path / "trained"), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert all(math.isfinite(of["loss"]) for of in found.values())
    return found


@pytest.mark.parametrize("form", list(FileFormat))
def test_exports_load_and_train(tmp_path: Path, form: FileFormat) -> None:
    found = _trained(tmp_path, format=form)
    lines = tmp_path / "lines"
    export_traces(tmp_path / "store", lines, ExportOptions(kinds=tuple(ExportKind), format=FileFormat.JSONL))
    for kind in ExportKind:
        first = json.loads((lines / f"{kind.value}.jsonl").read_bytes().split(b"\n")[0])
        loaded = found[kind.value]
        messages = [name for name in ("prompt", "chosen", "rejected", "completion") if name in first]
        assert {name: loaded["first"][name] for name in messages} == {name: first[name] for name in messages}
        assert loaded["first"]["tools"] == first["tools"]
    rendered = found["sft"]["rendered"].partition("<|im_start|>user")[2]
    assert '"arguments": {}' in rendered
    assert '"arguments": {"terms": [0, 1.5, "two"]}' in rendered
    assert "null" not in rendered


@pytest.mark.parametrize(("options", "plain"), [({}, ()), ({"tool_output": ToolOutput.SPLIT}, ("--plain",))])
def test_no_loss_falls_on_what_tools_said(tmp_path: Path, options: dict[str, Any], plain: tuple[str, ...]) -> None:
    found = _trained(tmp_path, *plain, **options)
    for kind in ("pairs", "kto", "sft", "steps"):
        assert found[kind]["on_tools"] == 0.0, kind
        assert found[kind]["on_others"] > 0.0
    assert all(found[kind]["unmasked_on_tools"] > 0.0 for kind in ("kto", "sft"))


def test_whole_episodes_are_trained_on_by_losses_without_a_mask(tmp_path: Path) -> None:
    """The measure finds what the other forms leave out."""
    found = _trained(tmp_path, "--plain", tool_output=ToolOutput.WHOLE, steps_to=StepExtent.END)
    assert all(found[kind]["on_tools"] > 0.0 for kind in ("pairs", "kto", "sft", "steps"))
