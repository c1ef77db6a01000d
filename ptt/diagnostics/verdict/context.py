"""The run's context: what is needed to repeat it or to explain it, present or missing, and how to record it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

import polars as pl

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.segments import Overlap
from ptt.diagnostics.parsers.io.interface import RunFile

LARGEST: Final = 1 << 20  # bytes: a paper beside the logs is smaller
MOST: Final = 200  # files opened: checkpoints repeat theirs
COMMIT: Final = re.compile(r"[0-9a-f]{7,40}")
VERSION: Final = re.compile(r"\d[\w.+!-]{0,30}")
NAME: Final = re.compile(r"[\w][\w.+-]{0,95}(?:/[\w][\w.+-]{0,95})?")
PACKAGES: Final = (
    "torch", "transformers", "trl", "verl", "openrlhf", "vllm", "sglang", "deepspeed", "accelerate", "peft",
    "megatron-core", "flash-attn", "ray", "datasets", "tokenizers", "verifiers", "unsloth", "numpy",
)  # fmt: skip
CONFIGS: Final = frozenset(
    {"config.yaml", "config.yml", "config.toml", "config.json", "args.json", "hparams.yaml", "params.json",
     "training_args.bin", "training_args.json", "run_config.yaml", "hydra.yaml", "overrides.yaml",
     "rl.toml", "trainer.toml", "orchestrator.toml"}
)  # fmt: skip
DIFFS: Final = frozenset({"code.diff", "git.diff", "diff.patch"})


@dataclass(frozen=True)
class Told:
    """One thing a paper tells, and which paper."""

    value: str
    source: str


Papers = Mapping[str, Told]
"""By what is told: commit, dirty, packages, model, dataset, config, command."""


def read_papers(files: Sequence[RunFile]) -> Papers:
    """Read the papers among a run's files; the first that tells a thing counts, those nearest to the top first."""
    found: dict[str, Told] = {}
    opened = 0
    for file in sorted(files, key=lambda file: (file.rel.count("/"), file.rel)):
        name = file.rel.rsplit("/", 1)[-1]
        if _settings_file(file.rel):
            found.setdefault("config", Told("recorded", file.rel))
        if name in DIFFS:
            found.setdefault("diff", Told("recorded", file.rel))
        reader = READERS.get(name)
        if reader is None or file.size > LARGEST or opened == MOST:
            continue
        opened += 1
        text = _text(file)
        for key, value in reader(text).items() if text is not None else ():
            found.setdefault(key, Told(value, file.rel))
    return found


def _settings_file(rel: str) -> bool:
    """Tell a file of settings; a checkpoint's config.json describes the model, not the training."""
    path = PurePosixPath(rel)
    if path.name not in CONFIGS:
        return False
    return path.name != "config.json" or not any(re.search(r"\d", part) for part in path.parts[:-1])


def _text(file: RunFile) -> str | None:
    try:
        return file.path.read_bytes()[:LARGEST].decode("utf-8", "replace")
    except OSError:  # gone or locked since the listing: then nothing is told
        return None


def _json(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _told(**values: object) -> dict[str, str]:
    """Keep the values whose shape is that of what they should be."""
    shapes = {"commit": COMMIT, "model": NAME, "dataset": NAME}
    kept = {}
    for key, value in values.items():
        if not isinstance(value, str) or value in {"", "None", "null"}:
            continue
        shape = shapes.get(key)
        text = PurePosixPath(value).name if key in {"model", "dataset"} and value[0] in "/.~" else value
        if shape is None or shape.fullmatch(text):
            kept[key] = text
    return kept


def _wandb(text: str) -> dict[str, str]:
    held = _json(text)
    git = held.get("git")
    commit = git.get("commit") if isinstance(git, dict) else None
    program = held.get("program")
    command = PurePosixPath(program).name if isinstance(program, str) else ""
    return _told(commit=commit) | ({"command": f"the command that started it ({command})"} if _plain(command) else {})


def _plain(name: str) -> bool:
    return re.fullmatch(r"[\w.-]{1,80}", name) is not None


def _metadata(text: str) -> dict[str, str]:
    held = _json(text)
    told = _told(
        commit=held.get("git_sha") or held.get("git_commit") or held.get("commit"),
        model=held.get("model_name"),
        dataset=held.get("dataset_name"),
    )
    dirty = held.get("git_dirty")
    return told | ({"dirty": "yes" if dirty else "no"} if isinstance(dirty, bool) and "commit" in told else {})


def _commit(text: str) -> dict[str, str]:
    return _told(commit=text.strip())


def _requirements(text: str) -> dict[str, str]:
    pinned = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;#]+)", text, re.MULTILINE))
    return _packages({name.lower().replace("_", "-"): version for name, version in pinned.items()})


def _card(text: str) -> dict[str, str]:
    """Read a model card that transformers wrote: the versions it lists, the model and the data it names."""
    rows = dict(re.findall(r"^- ([A-Za-z]+): (\S+)\s*$", text, re.MULTILINE))
    names = {"pytorch": "torch"} | {name: name for name in PACKAGES}
    told = _packages({names[key.lower()]: value for key, value in rows.items() if key.lower() in names})
    base = re.search(r"^base_model: (\S+)\s*$", text, re.MULTILINE)
    data = re.search(r"^datasets: (\S+)\s*$", text, re.MULTILINE)
    return told | _told(model=base[1] if base else None, dataset=data[1] if data else None)


def _packages(versions: Mapping[str, str]) -> dict[str, str]:
    known = [f"{name} {versions[name]}" for name in PACKAGES if VERSION.fullmatch(versions.get(name, ""))]
    return {"packages": ", ".join(known)} if known else {}


def _model_config(text: str) -> dict[str, str]:
    held = _json(text)
    version = held.get("transformers_version")
    told = _told(model=held.get("_name_or_path"))
    return told | (_packages({"transformers": version}) if isinstance(version, str) else {})


READERS: Final[Mapping[str, Callable[[str], dict[str, str]]]] = {
    "wandb-metadata.json": _wandb,
    "run_metadata.json": _metadata,
    "run_metadata_start.json": _metadata,
    "metadata.json": _metadata,
    "mlflow.source.git.commit": _commit,
    "requirements.txt": _requirements,
    "README.md": _card,
    "config.json": _model_config,
}


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
