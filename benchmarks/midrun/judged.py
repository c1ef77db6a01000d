"""Makes one run of a kind, has it judged as `ptt.diagnose` judges it, and sets what is said against the truth."""

from __future__ import annotations

import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

import ptt
from benchmarks.midrun.kinds import Kind
from benchmarks.midrun.make import draw, make
from benchmarks.midrun.run import TOLERANCE_SHARE, TOLERANCE_STEPS, IntArray, Run, Truth
from benchmarks.midrun.write import figures, whole, write

BLOCKS: Final = {"dev": 32_001, "held-out": 32_777}
SEVERITIES: Final = ("info", "low", "medium", "high", "critical")
SIGNATURE: Final = "tool-tail-growth"
ONSET_SHARE: Final = 0.1  # of the run: an onset of growth so near is right


def build(kind: Kind, block: int, number: int) -> tuple[Run, Truth]:
    """Make a run of a kind and say what is true of it, the same every time."""
    seed = (block, zlib.crc32(kind.name.encode()), number)
    generator = np.random.default_rng([*seed, 9])
    plan = draw(seed)
    kind.prepare(plan, generator)
    run = make(plan)
    run.logged = whole(run)
    truth = kind.truth(run, generator)
    if run.share_log:
        run.logged |= figures(run, run.mask)
    return run, truth


def judge(kind: Kind, block: int, number: int, keep: Path | None = None) -> dict[str, Any]:
    """Make, write and judge a run; `keep` is a folder that its files stay in."""
    run, truth = build(kind, block, number)
    with TemporaryDirectory(prefix="midrun-") as made:
        folder = write(run, (keep or Path(made)) / f"{kind.name.replace(' ', '_')}_{number}")
        started = time.perf_counter()
        try:
            found = ptt.diagnose(folder)
        except Exception as error:  # a crash of the judged program is a result of the bench
            return _told(kind, number, run, truth) | {"crash": f"{type(error).__name__}: {error}"[:500]}
        seconds = time.perf_counter() - started
    findings = [_finding(one) for one in found.findings]
    signature = found.signature
    return (
        _told(kind, number, run, truth)
        | {
            "seconds": round(seconds, 2),
            "status": str(signature.status),
            "reason": signature.reason,
            "verdict": str(found.verdict.status),
            "headline": found.verdict.headline,
            "onset": signature.onset_step,
            "interval": signature.onset_interval,
            "findings": findings,
            "crash": "; ".join(f"{one.id}: {one.error}" for one in found.crashes),
        }
        | _compared(run.plan.steps, truth, findings, signature)
    )


def _told(kind: Kind, number: int, run: Run, truth: Truth) -> dict[str, Any]:
    plan = run.plan
    return {
        "kind": kind.name,
        "sort": kind.sort,
        "number": number,
        "recorded": run.count,
        "steps": [int(plan.steps[0]), int(plan.steps[-1])],
        "rows": len(run.place),
        "model_tokens": int(run.mask.sum()),
        "columns": sorted(plan.columns),
        "log_shares": run.share_log,
        "truth": asdict(truth),
    }


def _finding(one: Any) -> dict[str, Any]:
    return {
        "id": one.id,
        "severity": str(one.severity),
        "link": str(one.link),
        "slice": one.slice,
        "onset": one.onset_step,
        "interval": one.onset_interval,
        "held": one.held_from_step,
        "claim": one.claim,
    }


def at_least(severity: str, wanted: str) -> bool:
    """Whether a severity reaches another."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(wanted)


def _compared(steps: IntArray, truth: Truth, findings: Sequence[dict[str, Any]], signature: Any) -> dict[str, Any]:
    """Compare: is the fault named, with its step; what is said that is not so; how far is an onset of growth."""
    naming = [one for one in findings if one["link"] in truth.links and at_least(one["severity"], truth.severity)]
    naming = [one for one in naming if one["id"] != SIGNATURE]  # it tells of growth, not of a fault
    medium = [one["id"] for one in findings if at_least(one["severity"], "medium") and one["id"] not in truth.allowed]
    grew = truth.sort == "growth" and truth.step is not None and signature.onset_step is not None
    interval = signature.onset_interval
    return {
        "found": signature.status == "found",
        "wrongly_found": signature.status == "found" and not truth.found_allowed,
        "named": bool(naming),
        "named_with_step": any(step_is_right(one, steps, truth) for one in naming),
        "medium": medium,
        "onset_right": abs(signature.onset_step - truth.step) <= ONSET_SHARE * int(steps[-1] - steps[0])
        if grew
        else None,
        "onset_covered": interval[0] <= truth.step <= interval[1] if grew and interval else None,
    }


def step_is_right(finding: dict[str, Any], steps: IntArray, truth: Truth) -> bool:
    """Whether a finding tells the true step, or that it holds from the first one on where that is so."""
    gap = int(np.median(np.diff(steps)))
    near = max(TOLERANCE_STEPS * gap, TOLERANCE_SHARE * int(steps[-1] - steps[0]))
    if finding["onset"] is None:
        return truth.step is None or (truth.held and finding["held"] is not None)
    first = int(steps[0]) if truth.step is None else truth.step
    return bool(abs(finding["onset"] - first) <= near)
