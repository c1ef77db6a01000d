"""Every line that `ptt sources` tells a user to add imports, and names a function that is there."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

from ptt.diagnostics.metrics.recording import switches

LINES = [switch.line for switch in switches() if "ptt.recorders" in switch.line]


@pytest.mark.parametrize("line", LINES)
def test_the_line_names_what_exists(line: str) -> None:
    found = re.fullmatch(r"from (ptt\.recorders[\w.]*) import (\w+); (.+)", line)
    assert found is not None
    module, name, use = found.groups()
    assert callable(getattr(import_module(module), name))
    assert f"{name}(" in use
    compile(line, "switches.toml", "exec")


def test_each_recorder_has_a_line() -> None:
    assert sorted(re.findall(r"from ptt\.recorders(\S*) import", " ".join(LINES))) == [
        "",
        ".areal",
        ".openrlhf",
        ".trl",
        ".verl",
    ]
