"""Reads from small files beside the logs which code, packages, model and data a run used.

Only what has the shape of a commit, a version or a public name is taken: such files also hold hosts, users and paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from ptt.diagnostics.parsers.interface import RunFile

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
