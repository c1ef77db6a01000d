"""Finds the checkpoints among a run's files by the names trainers give them; no file is opened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from ptt.diagnostics.parsers.interface import RunFile

# checkpoint-300 (transformers), global_step_100 (veRL, SkyRL), global_step100 (DeepSpeed), iter_0000100 (Megatron),
# epoch0epochstep9globalstep9 (AReaL)
SURE: Final = re.compile(
    r"(?:checkpoint|ckpt)[-_](\d{1,12})|global_?step_?(\d{1,12})(?:_hf)?|iter(?:ation)?_(\d{1,12})"
    r"|epoch\d+epochstep\d+globalstep(\d{1,12})",
    re.IGNORECASE,
)
# step_100 (NeMo-RL, prime-rl, open-instruct), 000100 (Tinker), 0003 (ART): dumps of samples are named so as well
MAYBE: Final = re.compile(r"step[-_]?(\d{1,12})|(\d{3,12})", re.IGNORECASE)
PLACES: Final = frozenset({"checkpoint", "checkpoints", "ckpt", "ckpts", "weights", "saved_models"})
ONE_FILE: Final = re.compile(
    r"(?:.*[-_.=])?(?:step|iter|iteration|checkpoint|ckpt|model)[-_=]?(\d{1,12})\.(?:ckpt|pth|pt|safetensors|bin)",
    re.IGNORECASE,
)
WEIGHTS: Final = frozenset({".safetensors", ".distcp", ".bin", ".pth", ".ckpt", ".gguf"})
WEIGHT_NAMES: Final = re.compile(
    r"(?:.*model.*|mp_rank_\d+.*|zero_pp_rank.*|optim.*|optimizer.*|__\d+_\d+.*)\.(?:pt|distcp|bin)", re.IGNORECASE
)
NO_MODEL: Final = re.compile(r"(?:optim|scheduler|rng_state|training_args|extra_state|dataloader|data)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint: a folder, or a file, below the run dir."""

    step: int
    path: str
    weights: bool  # whether a file that holds a model's weights lies in it
    size: int  # bytes of all its files


def checkpoints_among(files: Iterable[RunFile]) -> tuple[Checkpoint, ...]:
    """Give the checkpoints in order of their steps; of nested ones the outermost. Links are no files of the run."""
    folders: dict[str, tuple[int, list[RunFile]]] = {}
    single: list[Checkpoint] = []
    maybe: dict[str, tuple[int, list[RunFile]]] = {}
    for file in files:
        parts = PurePosixPath(file.rel).parts
        sure = _folder(parts[:-1], SURE)
        if sure is not None:
            folders.setdefault(sure[0], (sure[1], []))[1].append(file)
            continue
        other = _folder(parts[:-1], MAYBE)
        if other is not None:
            maybe.setdefault(other[0], (other[1], []))[1].append(file)
        elif (found := ONE_FILE.fullmatch(parts[-1])) and _in_place(parts[:-1]):
            single.append(Checkpoint(step=int(found[1]), path=file.rel, weights=file.size > 0, size=file.size))
    folders |= {path: item for path, item in maybe.items() if _is_checkpoint(path, item[1])}
    found_all = [_checkpoint(path, step, held) for path, (step, held) in folders.items()] + single
    return tuple(sorted(found_all, key=lambda one: (one.step, not one.weights, one.path)))


def _folder(parts: Sequence[str], pattern: re.Pattern[str]) -> tuple[str, int] | None:
    """Give the path of the outermost folder that is named so, and its step."""
    for depth, part in enumerate(parts, start=1):
        found = pattern.fullmatch(part)
        if found:
            return "/".join(parts[:depth]), int(next(group for group in found.groups() if group))
    return None


def _in_place(parts: Sequence[str]) -> bool:
    """Tell whether a single file lies where models are saved: dumps of tensors have like names elsewhere."""
    return not parts or any(part.lower() in PLACES for part in parts)


def _is_checkpoint(path: str, held: Sequence[RunFile]) -> bool:
    """Tell a checkpoint from a dump that is named like one: it lies where models are saved, or holds weights."""
    above = PurePosixPath(path).parts[:-1]
    stepped = bool(re.match("step", PurePosixPath(path).name, re.IGNORECASE))
    return any(part.lower() in PLACES for part in above) or (stepped and any(_holds_weights(file) for file in held))


def _holds_weights(file: RunFile) -> bool:
    name = PurePosixPath(file.rel).name
    if file.size == 0 or NO_MODEL.match(name):
        return False
    return PurePosixPath(name).suffix.lower() in WEIGHTS or WEIGHT_NAMES.fullmatch(name) is not None


def _checkpoint(path: str, step: int, held: Sequence[RunFile]) -> Checkpoint:
    return Checkpoint(
        step=step,
        path=path,
        weights=any(_holds_weights(file) for file in held),
        size=sum(file.size for file in held),
    )
