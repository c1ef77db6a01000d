"""The run's context: what is needed to repeat it or to explain it, present or missing, and how to record it."""

from __future__ import annotations

from typing import Final

import polars as pl

from ptt.diagnostics.deliverables.papers import Papers
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.records import Overlap

SCHEMA: Final = {
    "item": pl.String,
    "present": pl.Boolean,  # null: a fact to know, which is neither present nor missing
    "value": pl.String,
    "source": pl.String,  # which file tells it
    "enable": pl.String,  # how to record it, where it is missing
}
TRACKER: Final = {
    "trl": 'report_to="wandb" in the trainer\'s config, with WANDB_MODE=offline',
    "verl": 'trainer.logger=["console","wandb"] with WANDB_MODE=offline',
    "slime": "--use-wandb --wandb-mode offline",
    "nemo-rl": "logger.wandb_enabled=true with WANDB_MODE=offline",
    "skyrl": "trainer.logger=wandb with WANDB_MODE=offline",
}
"""The framework's own line that has a tracker write settings, commit, packages and command beside the logs."""
STATE: Final = frozenset({"global_step", "logging_steps", "max_steps", "save_steps", "status", "train_batch_size"})
"""What a trainer's saved state holds by itself: of its settings hardly any."""
SEEDS: Final = ("seed", "data_seed", "random_seed")
ANYWHERE: Final = {
    "settings": "copy the resolved settings into the run dir at the start",
    "seed": "write the seed into the settings that are logged, one run dir a seed",
    "code": "write the output of git rev-parse HEAD and of git diff into the run dir at the start",
    "packages": "write the output of pip freeze to requirements.txt in the run dir at the start",
    "model": "log the model's name and revision with the settings",
    "dataset": "log the data set's name, revision and split with the settings",
    "evaluation": "write the evaluation command, with temperature, max_tokens and tool set, beside its results",
}
TRACKED: Final = frozenset({"settings", "code", "packages"})  # what a tracker writes by itself


def context_table(evidence: Evidence, papers: Papers, evals: pl.DataFrame, evaluated: bool) -> pl.DataFrame:
    """Give each item of the run's context with its value, or with how to record it."""
    facts = evidence.run.context
    seed = next((name for name in SEEDS if facts.get(name) is not None), None)
    settings = [name for name in sorted(facts) if name not in STATE]
    config = papers.get("config")
    known = f"{len(settings)} settings" if settings else ""
    rows = [
        _row(evidence, "settings", known or (config.value if config else ""), config.source if config else "the logs"),
        _row(evidence, "seed", str(facts[seed]) if seed else "", "the logged settings"),
        _row(evidence, "code", _code(papers), _source(papers, "commit", "diff")),
        _row(evidence, "packages", _value(papers, "packages"), _source(papers, "packages")),
        _row(evidence, "model", _value(papers, "model"), _source(papers, "model")),
        _row(evidence, "dataset", _value(papers, "dataset"), _source(papers, "dataset")),
        _evaluation(evidence, evals, evaluated),
        *_record(evidence),
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


Row = tuple[str, bool | None, str, str, str]


def _row(evidence: Evidence, item: str, value: str, source: str) -> Row:
    if value:
        return item, True, value, source, ""
    tracker = TRACKER.get(evidence.run.framework or "") if item in TRACKED else None
    advice = ANYWHERE[item] + (f", or let a tracker do it: {tracker}" if tracker else "")
    return item, False, "", "", advice


def _value(papers: Papers, key: str) -> str:
    return papers[key].value if key in papers else ""


def _source(papers: Papers, *keys: str) -> str:
    return next((papers[key].source for key in keys if key in papers), "")


def _code(papers: Papers) -> str:
    commit = _value(papers, "commit")
    if not commit:
        return ""
    if _value(papers, "dirty") == "yes" and "diff" not in papers:
        return f"commit {commit}, with changes that are not recorded"
    return f"commit {commit}" + (" and a diff" if "diff" in papers else "")


def _evaluation(evidence: Evidence, evals: pl.DataFrame, evaluated: bool) -> Row:
    row = _row(evidence, "evaluation", _protocol(evals), _first(evals))
    if row[1] or not (evaluated or evals.height):
        return row
    return *row[:4], f"figures are logged, but not under which settings: {row[4]}"


def _protocol(evals: pl.DataFrame) -> str:
    """Give the settings an evaluation was taken under; figures without them do not make a protocol."""
    parts = []
    for column in ("temperature", "max_tokens"):
        seen = evals[column].drop_nulls().unique().sort().to_list() if not evals.is_empty() else []
        if seen:
            parts.append(f"{column} {', '.join(f'{value:g}' for value in seen)}")
    return ", ".join(parts)


def _first(evals: pl.DataFrame) -> str:
    sources = evals["source"].drop_nulls().unique().sort().to_list() if not evals.is_empty() else []
    return str(sources[0]) if sources else ""


def _record(evidence: Evidence) -> list[Row]:
    """Say whether the record is whole: steps written twice, and steps that are missing."""
    rows: list[Row] = []
    segments, validity = evidence.segments, evidence.validity
    if segments is not None:
        twice = [*segments.metrics, *([segments.sequences] if segments.sequences is not None else [])]
        told = "; ".join(_overlap(one) for one in twice)
        rows.append(
            (
                "resumed",
                None if twice else True,
                told or "no step is recorded twice",
                _sources(twice) if twice else "all logs",
                "",
            )
        )
    if validity is not None:
        gaps = validity.coverage.step_gaps
        told = "; ".join(f"nothing between steps {low} and {high}" for low, high in gaps[:5])
        more = f"; {len(gaps) - 5} more gaps" if len(gaps) > 5 else ""
        rows.append(
            (
                "gaps",
                None if gaps else True,
                (told + more) or "no gap in the recorded steps",
                "the recorded sequences",
                "",
            )
        )
    return rows


def _overlap(one: Overlap) -> str:
    return f"steps {one.first_step} to {one.last_step} are recorded twice ({one.steps} steps)"


def _sources(overlaps: list[Overlap]) -> str:
    names = list(dict.fromkeys(name for one in overlaps for name in one.sources))
    return ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
