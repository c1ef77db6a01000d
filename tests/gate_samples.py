"""LoadedRun runs for the gate's tests: findings, rules that gave no answer, and logged series with a known level."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
from builders import aggregates, run_of

from ptt import api
from ptt.diagnostics.evidence.series import read_series, series_table
from ptt.diagnostics.gate.judge import judge
from ptt.diagnostics.gate.policy import Known, Policy
from ptt.diagnostics.gate.read_policy import read_policy
from ptt.diagnostics.gate.results import CheckResult, GatedRun
from ptt.diagnostics.metrics.aliases import canonical, split_of
from ptt.diagnostics.model import (
    Answer,
    Broken,
    Finding,
    Healthy,
    Link,
    NotJudged,
    RuleCrash,
    RuleVerdict,
    Severity,
    Signature,
)
from ptt.diagnostics.statistics.tail_curves import Profile
from ptt.diagnostics.store.diagnosis import LoadedRun
from ptt.diagnostics.store.wide_metrics import WideMetrics
from ptt.diagnostics.verdict.headline import verdict_of

TODAY = date(2031, 5, 1)
STEPS = 300


def finding(
    name: str = "reward-fell", severity: Severity = Severity.HIGH, where: str | None = None, onset: int | None = 40
) -> Finding:
    return Finding(
        id=name, severity=severity, link=Link.REWARD, claim=f"{name} was seen", observed=2.0, limit=1.0, unit="x",
        slice=where, onset_step=onset, next=("look at it",), evidence={"tokens_file": "tokens/step_000040.parquet"},
    )  # fmt: skip


def healthy(*names: str) -> list[Healthy]:
    return [Healthy(id=name, link=Link.REWARD, reason="it looked well") for name in names or ("reward-jump",)]


def not_judged(name: str, *, applies: bool = True) -> NotJudged:
    return NotJudged(id=name, link=Link.REWARD, reason="no reward is logged", enable="log it", applies=applies)


def metrics(series: Mapping[str, Sequence[float | None]], *, first: int = 1, every: int = 1) -> pl.DataFrame:
    """One row a value; None is a null, NaN and infinities have their flags."""
    rows = []
    for name, values in series.items():
        for index, value in enumerate(values):
            finite = value is not None and np.isfinite(value)
            flag = 0 if finite else 4 if value is None else 1 if np.isnan(value) else 2 if value > 0 else 3
            step = first + index * every
            rows.append(
                (step, split_of(name), name, canonical(name), value if finite else None, flag, index, "log.csv")
            )
    columns = {
        "step": pl.Int64, "split": pl.String, "name_raw": pl.String, "name": pl.String, "value": pl.Float64,
        "flag": pl.UInt8, "seq": pl.Int64, "source": pl.String,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    return frame.with_columns(
        rank=pl.lit(None, pl.Int32), wall_time=pl.lit(None, pl.Float64), priority=pl.lit(0, pl.Int32)
    )


def _tables(rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    return {"metrics": rows, "series": series_table(read_series(rows, WideMetrics(Path())))}


def opened(
    *verdicts: RuleVerdict,
    findings: Sequence[Finding] = (),
    series: Mapping[str, Sequence[float | None]] | None = None,
    steps: int = STEPS,
    sequences: int = 0,
    model_tokens: int = 0,
    crashed: str | None = None,
    every: int = 1,
    profile: Profile | None = None,
    tables: Mapping[str, pl.DataFrame] | None = None,
    kind: str = "run",
) -> LoadedRun:
    run = replace(
        run_of(last_step=steps or None),
        first_step=1 if steps else None,
        sequences=sequences,
        model_tokens=model_tokens,
    )
    broken = [Broken(findings=tuple(findings))] if findings else []
    diagnosis = verdict_of(
        run=run,
        signature=Signature(status=Answer.CANNOT_SAY, reason="", pair=None, aggregates=aggregates()),
        verdicts=[*verdicts, *broken],
        crashes=[RuleCrash(id=crashed, error="ValueError: no")] if crashed else [],
        sources=(),
        tables={**_tables(metrics(series or {}, every=every)), **(tables or {})},
    )
    why = "" if profile else "the run records no pair of logprobs"
    return LoadedRun(diagnosis=diagnosis, profile=profile, why_no_profile=why, source="0" * 64, kind=kind)  # type: ignore[arg-type]


def policy(text: str) -> Policy:
    """Read the policy of a settings file."""
    return read_policy(tomllib.loads(text), Path("ptt.toml"), known=Known(custom={"custom:mine": Severity.HIGH}))


def gated(run: LoadedRun, text: str = "", *, today: date = TODAY) -> GatedRun:
    return judge(run, policy(text), name="a", today=today)


def gate_of(run: Path, out: Path, text: str = "") -> GatedRun:
    """Judge a run on disk."""
    return gated(api.open_run(run, out=out), text)


def check_of(run: GatedRun, name: str) -> CheckResult:
    return next(check for check in run.checks if check.id == name)
