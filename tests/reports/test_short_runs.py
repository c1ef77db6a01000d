"""A run too short for a running mean still gets its report."""

from __future__ import annotations

import json
from pathlib import Path

import ptt


def test_three_steps_are_drawn(tmp_path: Path) -> None:
    rows = [{"step": step, "entropy": 3.0 + step / 10, "kl": 0.01 * step, "loss": 0.5} for step in range(1, 4)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = ptt.diagnose(tmp_path)
    assert found.signature.status == "cannot_say"
    assert "entropy" in found.to_html().lower()
