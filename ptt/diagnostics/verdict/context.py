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
from ptt.diagnostics.model import JsonScalar
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.scrub.scrub import Scrubber, Sort
from ptt.diagnostics.wording import counted

MAX_BYTES: Final = 1 << 20  # metadata beside the logs are smaller
MAX_FILES: Final = 200  # opened: checkpoints repeat theirs
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
MAX_GAPS: Final = 5  # named
UNREAD: Final = "in a file whose values ptt does not read"


@dataclass(frozen=True)
class Recorded:
    """One value that a file of metadata records, and which file."""

    value: str
    source: str


Metadata = Mapping[str, Recorded]
"""By what is recorded: commit, dirty, diff, packages, model, dataset, config, command."""


def read_run_metadata(files: Sequence[RunFile]) -> Metadata:
    """Read the metadata among a run's files; the first that records a value counts, those nearest to the top first."""
    metadata: dict[str, Recorded] = {}
    opened, scrubber = 0, Scrubber()
    for file in sorted(files, key=lambda file: (file.rel.count("/"), file.rel)):
        name = file.rel.rsplit("/", 1)[-1]
        if _is_settings(file.rel):
            metadata.setdefault("config", Recorded(UNREAD, file.rel))
        if name in DIFFS:
            metadata.setdefault("diff", Recorded("recorded", file.rel))
        if name not in READERS or file.size > MAX_BYTES or opened == MAX_FILES:
            continue
        opened += 1
        try:
            text = file.path.read_bytes()[:MAX_BYTES].decode("utf-8", "replace")
        except OSError:  # gone or locked since the listing: then nothing is known of it
            continue
        for key, value in READERS[name](text).items():
            metadata.setdefault(key, Recorded(scrubber.text(value, Sort.ID), file.rel))
    return metadata


def _is_settings(rel: str) -> bool:
    """Return whether a file holds settings; a checkpoint's config.json describes the model, not the training."""
    path = PurePosixPath(rel)
    in_checkpoint = any(re.search(r"\d", part) for part in path.parts[:-1])
    return path.name in CONFIGS and not (path.name == "config.json" and in_checkpoint)


def _json(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _valid(**values: object) -> dict[str, str]:
    """Keep the values that look like what they should be; of a path its last part."""
    valid = {}
    for key, value in values.items():
        if not isinstance(value, str) or value in {"", "None", "null"}:
            continue
        text = PurePosixPath(value).name if key != "commit" and value[0] in "/.~" else value
        if (COMMIT if key == "commit" else NAME).fullmatch(text):
            valid[key] = text
    return valid


def _wandb(text: str) -> dict[str, str]:
    metadata = _json(text)
    git, program = metadata.get("git"), metadata.get("program")
    values = _valid(commit=git.get("commit") if isinstance(git, dict) else None)
    name = PurePosixPath(program).name if isinstance(program, str) else ""
    if re.fullmatch(r"[\w.-]{1,80}", name):
        values["command"] = f"the command that started it ({name})"
    return values


def _run_metadata(text: str) -> dict[str, str]:
    metadata = _json(text)
    values = _valid(
        commit=metadata.get("git_sha") or metadata.get("git_commit") or metadata.get("commit"),
        model=metadata.get("model_name"),
        dataset=metadata.get("dataset_name"),
    )
    dirty = metadata.get("git_dirty")
    if isinstance(dirty, bool) and "commit" in values:
        values["dirty"] = "yes" if dirty else "no"
    return values


def _commit(text: str) -> dict[str, str]:
    return _valid(commit=text.strip())


def _requirements(text: str) -> dict[str, str]:
    pinned = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;#]+)", text, re.MULTILINE))
    return _packages({name.lower().replace("_", "-"): version for name, version in pinned.items()})


def _model_card(text: str) -> dict[str, str]:
    """Read a model card that transformers wrote: the versions it lists, the model and the data it names."""
    versions = {name.lower(): value for name, value in re.findall(r"^- ([A-Za-z]+): (\S+)\s*$", text, re.MULTILINE)}
    named = dict(reversed(re.findall(r"^(base_model|datasets): (\S+)\s*$", text, re.MULTILINE)))  # the first counts
    packages = _packages({"torch": versions.pop("pytorch", "")} | versions)
    return packages | _valid(model=named.get("base_model"), dataset=named.get("datasets"))


def _packages(versions: Mapping[str, str]) -> dict[str, str]:
    known = [f"{name} {versions[name]}" for name in PACKAGES if VERSION.fullmatch(versions.get(name, ""))]
    return {"packages": ", ".join(known)} if known else {}


def _model_config(text: str) -> dict[str, str]:
    config = _json(text)
    version = config.get("transformers_version")
    packages = _packages({"transformers": version}) if isinstance(version, str) else {}
    return _valid(model=config.get("_name_or_path")) | packages


READERS: Final[Mapping[str, Callable[[str], dict[str, str]]]] = {
    "wandb-metadata.json": _wandb,
    "run_metadata.json": _run_metadata,
    "run_metadata_start.json": _run_metadata,
    "metadata.json": _run_metadata,
    "mlflow.source.git.commit": _commit,
    "requirements.txt": _requirements,
    "README.md": _model_card,
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
DECIDING: Final = ("temperature", "max_tokens")  # without either, nobody can repeat an evaluation
SEEDS: Final = ("seed", "data_seed", "random_seed")
ANYWHERE: Final = {
    "settings": "copy the resolved settings into the run folder at the start",
    "seed": "write the seed into the logged settings, one run folder per seed",
    "code": "write the output of git rev-parse HEAD and of git diff into the run folder at the start",
    "packages": "write the output of pip freeze to requirements.txt in the run folder at the start",
    "model": "log the model's name and revision with the settings",
    "dataset": "log the data set's name, revision and split with the settings",
    "evaluation": "write the evaluation command, with temperature, max_tokens and tool set, beside its results",
}
TRACKED: Final = frozenset({"settings", "code", "packages"})  # what a tracker writes by itself


def context_table(evidence: Evidence, metadata: Metadata, evals: pl.DataFrame, *, evaluated: bool) -> pl.DataFrame:
    """Return each item of the run's context with its value, or with how to record it."""
    facts = evidence.run.context
    seed = next((name for name in SEEDS if facts.get(name) is not None), None)
    logged = len(evidence.run.settings)
    settings = Recorded(counted(logged, "setting(s)"), "the logs") if logged else metadata.get("config")
    commit, config = metadata.get("commit"), metadata.get("config")
    if settings is not None and config is not None:
        settings = Recorded(settings.value, config.source)
    items = {
        "settings": settings,
        "seed": Recorded(str(facts[seed]), "the logged settings") if seed else None,
        "code": commit and Recorded(_code(metadata), commit.source),
        "packages": metadata.get("packages") or _logged_packages(facts),
        "model": metadata.get("model"),
        "dataset": metadata.get("dataset"),
    }
    rows = [_row(evidence, item, recorded) for item, recorded in items.items()]
    rows += [_evaluation(evidence, evals, evaluated=evaluated), *_completeness(evidence)]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _logged_packages(facts: Mapping[str, JsonScalar]) -> Recorded | None:
    """Return the versions that stand among the logged settings."""
    suffix = "_version"
    logged = {name.removesuffix(suffix): str(value) for name, value in facts.items() if name.endswith(suffix) and value}
    packages = _packages({name.replace("_", "-"): value for name, value in logged.items()}).get("packages")
    return None if packages is None else Recorded(packages, "the logged settings")


Row = tuple[str, bool | None, str, str, str]


def _row(evidence: Evidence, item: str, recorded: Recorded | None) -> Row:
    if recorded is not None:
        return item, True, recorded.value, recorded.source, ""
    tracker = TRACKER.get(evidence.run.framework or "") if item in TRACKED else None
    advice = ANYWHERE[item] + (f", or let a tracker do it: {tracker}" if tracker else "")
    return item, False, "", "", advice


def _code(metadata: Metadata) -> str:
    commit = f"commit {metadata['commit'].value}"
    if "diff" in metadata:
        return f"{commit} and a diff"
    dirty = "dirty" in metadata and metadata["dirty"].value == "yes"
    return f"{commit}, with changes that are not recorded" if dirty else commit


def _evaluation(evidence: Evidence, evals: pl.DataFrame, *, evaluated: bool) -> Row:
    """Return the settings an evaluation was taken under; figures without them do not make a protocol."""
    protocol = {column: set(evals[column].drop_nulls()) for column in DECIDING}
    for setting in evidence.evaluation.settings if evidence.evaluation is not None else ():
        if setting.name != "samples":  # how large the suite is, not how it is sampled
            protocol.setdefault(setting.name, set()).update(value for _, value in setting.points)
    if any(protocol[column] for column in DECIDING):
        values = [
            f"{name} {', '.join(f'{one:g}' for one in sorted(found))}" for name, found in protocol.items() if found
        ]
        source = evals["source"].drop_nulls().min() or "the logged metrics"
        return _row(evidence, "evaluation", Recorded(", ".join(values), str(source)))
    item, present, value, source, advice = _row(evidence, "evaluation", None)
    logged = "figures are logged, but neither temperature nor max_tokens: " if evaluated or evals.height else ""
    return item, present, value, source, logged + advice


def _completeness(evidence: Evidence) -> list[Row]:
    """Return whether the record is whole: steps written twice, and steps that are missing."""
    rows: list[Row] = []
    segments, validity = evidence.segments, evidence.validity
    if segments is not None:
        overlaps = [*segments.metrics, *([segments.sequences] if segments.sequences is not None else [])]
        value = "; ".join(
            f"steps {overlap.first_step} to {overlap.last_step} are recorded twice ({overlap.steps} steps)"
            for overlap in overlaps
        )
        names = list(dict.fromkeys(name for overlap in overlaps for name in overlap.sources))
        source = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
        nothing = (True, "no step is recorded twice", "all logs")
        rows.append(("resumed", *((None, value, source) if overlaps else nothing), ""))
    if validity is not None:
        gaps = validity.coverage.step_gaps
        value = "; ".join(f"nothing between steps {low} and {high}" for low, high in gaps[:MAX_GAPS])
        more = f"; {len(gaps) - MAX_GAPS} more gaps" if len(gaps) > MAX_GAPS else ""
        nothing_missing = (True, "no gap in the recorded steps")
        rows.append(("gaps", *((None, value + more) if gaps else nothing_missing), "the recorded sequences", ""))
    return rows
