"""What trainers and trackers call the folders and files of a run: which are a part of it, and which one itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.parsers.io.run_files import SKIPPED_DIRS, by_number

MAX_DEPTH: Final = 8  # of nested folders; experiment/date/arm/seed/checkpoints/checkpoint-100 are six
PART: Final = compiled(  # a part of the surrounding run, whatever it contains
    r"(?:train|training|eval|evals|evaluation|val|valid|validation|test|dev)"
    r"(?:[-_.](?:data|logs?|rollouts?|dumps?|metrics|samples|generations|set|results?|traces?))?"
    r"|logs?|logging|log_?dir|tb|tb_?logs?|tensorboard(?:[-_]logs?)?|tf_?logs?|events?|lightning_logs|wandb|mlruns|mlflow"
    r"|trackio|aim|swanlog|runs|results?|outputs?|out|artifacts|metrics|stats|reports?|plots|figures|images|media"
    r"|checkpoints?|ckpts?|models?|weights|saved_models|adapters?|lora|merged|best|last|latest|final"
    r"|(?:best|last|latest|final|merged|lora)[-_](?:model|checkpoint|ckpt|adapter|weights)"
    r"|config|configs|\.hydra|code|src|scripts|data|datasets?|tmp|cache|files|ptt_run"
    r"|trainer|orchestrator|inference|rollout|actor|critic|ref|reward|reward_model|server|driver|head|learner|generator"
    r"|torchelastic|stdout|stderr|console|slurm|profile[rs]?|tokens",
    re.IGNORECASE,
)
RANK: Final = compiled(
    r"(?:.*[-_.])?(?:local|global|world)?[-_]?(?:rank|node|host|worker|gpu|device|process|proc|replica|shard|pod|env|agent"
    r"|player|dp|tp|pp|ip)[-_.]?\d+(?:[-_.].*)?",
    re.IGNORECASE,
)
CHECKPOINT: Final = compiled(r"(?:checkpoint|ckpt)[-_=]?\d+.*|global_?step_?\d+.*", re.IGNORECASE)
STEP: Final = compiled(
    r"(?:step|iter(?:ation)?|epoch|round|update|rollout)[-_=]?\d+.*|epoch\d+epochstep.*",
    re.IGNORECASE,
)
RUN_NUMBER: Final = compiled(r"(?:seed|run|trial|replicate|experiment)[-_=]?\d+", re.IGNORECASE)
NUMBER: Final = compiled(r"\d+")
FORMAT: Final = compiled(r"jsonl?|npz|parquet|pt|csv|pkl", re.IGNORECASE)
DUMPS: Final = compiled(
    r".*(?:dump|logp|rollout|completion|sample|token|trace|trajector|batch|export|debug|generation).*"
    rf"|{FORMAT.pattern}",
    re.IGNORECASE,
)
RUN_LOG: Final = compiled(r".*\.(?:log|out)|.*(?:metrics|history|train_?log).*\.(?:jsonl?|csv)", re.IGNORECASE)
WANDB_RUN: Final = compiled(r"(?:offline-)?run-\d{8}_\d{6}-(.+)")
WANDB_FILE: Final = compiled(r"run-(.+)\.wandb")
MLFLOW_RUN: Final = compiled(r"[0-9a-f]{32}")
EVENT_FOLDER: Final = compiled(r"[A-Z][a-z]{2}\d{2}_\d{2}-\d{2}-\d{2}_.+|version_\d+")  # transformers, Lightning
OWN_RECORDS: Final = frozenset(
    {"trainer_state.json", ".hydra", "args.json", "config.yaml", "run.json", "training_args.json"}
)  # fmt: skip
OUTPUTS: Final = ({"findings.json", "report.html"}, {"index.json", "index.html"}, {"gate.json", "index.html"})
LOG_NAME: Final = compiled(
    r".*(?:log|metric|train|state|history|result|reward|wandb|stdout).*\.(?:jsonl?|log|txt|csv|tsv|out|gz|zst)"
    r"|.*\.(?:log|out|eval)",
    re.IGNORECASE,
)


class Folder:
    """One folder, listed when it is asked for."""

    def __init__(self, path: Path, rel: str, root: Path, depth: int = 0) -> None:
        self.path, self.rel, self.root, self.depth = path, rel, root, depth
        self.name = path.name

    @cached_property
    def _listing(self) -> tuple[list[RunFile], list[str]]:
        files, folders = [], []
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    name = os.fsencode(entry.name).decode("utf-8", "replace")
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_file(follow_symlinks=False):
                        size = entry.stat(follow_symlinks=False).st_size
                        files.append(RunFile(path=Path(entry.path), rel=f"{self._below}{name}", size=size))
        except OSError:  # reported where the run is read
            pass
        files.sort(key=lambda file: by_number(file.rel))
        return files, sorted(set(folders) - SKIPPED_DIRS, key=by_number)

    @property
    def _below(self) -> str:
        return f"{self.rel}/" if self.rel else ""

    @property
    def files(self) -> list[RunFile]:
        """The regular files directly in it."""
        return self._listing[0]

    @property
    def names(self) -> frozenset[str]:
        """The names of all that lies directly in it."""
        return frozenset({file.name for file in self.files} | set(self._listing[1]))

    def folders(self) -> Iterator[Folder]:
        """Yield the folders directly in it."""
        if self.depth < MAX_DEPTH:
            for name in self._listing[1]:
                yield Folder(self.path / name, f"{self._below}{name}", self.root, self.depth + 1)


def is_output(folder: Folder) -> bool:
    """Return whether a folder is what this program wrote of runs, and no run."""
    return folder.name == "ptt-report" or any(names <= folder.names for names in OUTPUTS)


def is_part(folder: Folder) -> bool:
    """Return whether a folder is a part of the run around it: by its name, or as a dump of a step, rank or format."""
    name = folder.name
    if any(pattern.fullmatch(name) for pattern in (PART, RANK, CHECKPOINT)):
        return True
    return bool(STEP.fullmatch(name) or NUMBER.fullmatch(name) or DUMPS.fullmatch(name)) and not _is_whole(folder)


def _is_whole(folder: Folder) -> bool:
    """Return whether a folder named like a dump or a step has a run's contents: a state, settings, logs, dumps."""
    if OWN_RECORDS & folder.names or any(RUN_LOG.fullmatch(file.name) for file in folder.files):
        return True
    below = [child.name for child in folder.folders()]
    return any(
        CHECKPOINT.fullmatch(name) or PART.fullmatch(name) or (DUMPS.fullmatch(name) and not FORMAT.fullmatch(name))
        for name in below
        if not STEP.fullmatch(name)
    )
