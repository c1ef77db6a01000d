"""Microsoft's post-training toolkit in runbench: its own callback records each run, its own rules judge it.

The callback (`DiagnosticsCallback`) is given every row that TRL logged, as in training. What it drops though its rules
read it (lengths, spread of rewards, gradient norm, clipped share) is put back under the names those rules know, so what
it misses is not for want of a name. Its findings have no link: each gets that of the first word in LINKS which
its type holds, and the faults it is about, by the table that the loop's truth table uses.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.loop.rival import ABOUT

TOOL: Final = "microsoft/post-training-toolkit 0.2.0 (7ab98552)"
LINKS: Final[Mapping[str, str]] = {
    "reward": "reward", "kl": "policy_update", "policy_drift": "policy_update", "clip": "policy_update",
    "entropy": "exploration", "mode_collapse": "exploration", "length": "exploration", "gradient": "numerics",
    "loss": "numerics", "nan": "numerics", "advantage": "training_signal", "value": "critic", "refusal": "reward",
    "slice": "reward", "truncation": "training_signal", "throughput": "systems", "slowdown": "systems",
    "importance": "policy_update", "instability": "policy_update",
}  # fmt: skip
CRITICAL: Final = "critical_failure"  # what its callback writes at an infinite value
CRITICAL_NAMES: Final = ("metrics-lost", "reward-outliers", "loss-divergence")  # each fault that such a file points to
DROPPED: Final[Mapping[str, str]] = {
    "completions/mean_length": "completion_length", "reward_std": "group_reward_std", "grad_norm": "grad_norm",
    "clip_ratio/region_mean": "clip_fraction",
}  # fmt: skip
"""What TRL logs and its callback leaves out, under the names that its rules read."""
DRIVER: Final = """
import contextlib, json, math, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from transformers import TrainerControl, TrainerState
from post_training_toolkit.integrations.trl import DiagnosticsCallback
from post_training_toolkit.models.engine import compute_derived_metrics, load_jsonl
from post_training_toolkit.models.heuristics import run_heuristics

class GRPOConfig:
    max_length, per_device_train_batch_size = None, 32
    def to_dict(self):
        return {}

def record(history, folder):
    state, control, args = TrainerState(), TrainerControl(), GRPOConfig()
    state.is_world_process_zero = True
    callback = DiagnosticsCallback(
        run_dir=folder, enable_snapshots=False, enable_live_warnings=False, auto_diagnostics=False
    )
    callback.on_train_begin(args, state, control, model=None)
    for row in history:
        state.global_step = row["step"]
        callback.on_log(args, state, control, logs=row)
    callback.on_train_end(args, state, control)

def judge(history, folder, dropped):
    with contextlib.redirect_stdout(sys.stderr):
        record(history, folder)
    path = Path(folder) / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    known = {}
    for row in history:
        known.setdefault(row["step"], {}).update(
            {name: float(row[raw]) for raw, name in dropped.items()
             if isinstance(row.get(raw), (int, float)) and not math.isnan(row[raw])}
        )
    for row in rows:
        if "metrics" in row:
            row["metrics"] |= known.get(row["step"], {})
    path.write_text("".join(json.dumps(row) + chr(10) for row in rows))
    told = []
    failure = Path(folder) / "critical_failure.json"
    if failure.is_file():
        found = json.loads(failure.read_text())
        told.append(["critical_failure: " + found["reason"], "high", [found["step"]]])
    frame, trainer = load_jsonl(path)
    found = run_heuristics(compute_derived_metrics(frame, trainer), trainer_type=trainer)
    return told + [[one.type, one.severity, one.steps] for one in found]

given = json.load(sys.stdin)
answers = []
for run, folder in given["runs"]:
    history = json.loads((Path(run) / "trainer_state.json").read_text())["log_history"]
    try:
        answers.append(judge(history, folder, given["dropped"]))
    except Exception as error:
        answers.append([["crash: " + type(error).__name__, "crash", None]])
json.dump(answers, sys.stdout)
"""


def ask(runs: Sequence[Path], answers: Path, python: str) -> None:
    """Have it record and judge each run, and write its findings as runbench reads them."""
    kept = [run for run in runs if (run / "trainer_state.json").is_file()]
    pairs = [(str(run.resolve()), str((answers / run.name / "toolkit").resolve())) for run in kept]
    told = subprocess.run(
        [python, "-c", DRIVER],
        input=json.dumps({"runs": pairs, "dropped": DROPPED}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {run.name: findings for run, findings in zip(kept, json.loads(told.stdout), strict=True)}
    for run in runs:
        (answers / run.name).mkdir(parents=True, exist_ok=True)
        judged = found.get(run.name)  # it reads nothing of a run whose trainer left no state
        answer = verdict([] if judged is None else judged, judged=judged is not None)
        (answers / run.name / "findings.json").write_text(json.dumps(answer, indent=1) + "\n")


def verdict(told: Sequence[tuple[str, str, Sequence[int] | None]], *, judged: bool = True) -> dict[str, Any]:
    """Return its findings in runbench's terms; the first one, the most severe, is its headline."""
    findings = [
        {
            "id": kind,
            "severity": severity,
            "link": _link(kind),
            "names": _names(kind),
            "onset_step": min(steps) if steps else None,
            "onset_interval": None,
        }
        for kind, severity, steps in told
    ]
    loud = [finding for finding in findings if finding["severity"] in {"high", "medium"}]
    status = ("suspect" if loud else "healthy") if judged else "cannot_say"
    return {
        "verdict": {"status": status, "first_broken_link": loud[0]["link"] if loud else None},
        "findings": findings,
    }


def _link(kind: str) -> str | None:
    return next((link for word, link in LINKS.items() if word in kind), None)


def _names(kind: str) -> list[str]:
    if kind.startswith(CRITICAL):
        return list(CRITICAL_NAMES)
    return [ours for ours, theirs in ABOUT.items() if kind in theirs]
