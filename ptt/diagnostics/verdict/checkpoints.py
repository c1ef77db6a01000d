"""Find a run's checkpoints, choose which to keep, and name them where a sentence advises to go back to one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.algorithm import SAMPLED, Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Diagnosis, Finding, Link, Severity
from ptt.diagnostics.parsers.io.interface import RunFile
from ptt.diagnostics.statistics.arrays import MAD_TO_SD
from ptt.diagnostics.statistics.series_description import EQUAL_WITHIN
from ptt.diagnostics.wording import sig

# checkpoint-300 (transformers), global_step_100 (veRL, SkyRL), global_step100 (DeepSpeed), iter_0000100 (Megatron),
# epoch0epochstep9globalstep9 (AReaL)
CHECKPOINT_FOLDER: Final = re.compile(
    r"(?:checkpoint|ckpt)[-_](\d{1,12})|global_?step_?(\d{1,12})(?:_hf)?|iter(?:ation)?_(\d{1,12})"
    r"|epoch\d+epochstep\d+globalstep(\d{1,12})",
    re.IGNORECASE,
)
# step_100 (NeMo-RL, prime-rl, open-instruct), 000100 (Tinker), 0003 (ART): dumps of samples are named so as well
STEP_FOLDER: Final = re.compile(r"step[-_]?(\d{1,12})|(\d{3,12})", re.IGNORECASE)
MODEL_FOLDERS: Final = frozenset({"checkpoint", "checkpoints", "ckpt", "ckpts", "weights", "saved_models"})
CHECKPOINT_FILE: Final = re.compile(
    r"(?:.*[-_.=])?(?:step|iter|iteration|checkpoint|ckpt|model)[-_=]?(\d{1,12})\.(?:ckpt|pth|pt|safetensors|bin)",
    re.IGNORECASE,
)
WEIGHT_ENDINGS: Final = frozenset({".safetensors", ".distcp", ".bin", ".pth", ".ckpt", ".gguf"})
WEIGHT_NAMES: Final = re.compile(
    r"(?:.*model.*|mp_rank_\d+.*|zero_pp_rank.*|optim.*|optimizer.*|__\d+_\d+.*)\.(?:pt|distcp|bin)", re.IGNORECASE
)
NOT_WEIGHTS: Final = re.compile(r"optim|scheduler|rng_state|training_args|extra_state|data", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint: a folder, or a file, below the run dir."""

    step: int
    path: str
    weights: bool  # whether a file that holds a model's weights lies in it
    size: int  # bytes of all its files


def find_checkpoints(files: Iterable[RunFile]) -> tuple[Checkpoint, ...]:
    """Return the checkpoints by step, those with weights first; of nested ones the outermost.

    Links are no files of the run.
    """
    folders: dict[tuple[str, int], list[RunFile]] = {}
    step_folders: dict[tuple[str, int], list[RunFile]] = {}
    single: list[Checkpoint] = []
    for file in files:
        *parents, name = PurePosixPath(file.rel).parts
        if folder := _outermost(parents, CHECKPOINT_FOLDER):
            folders.setdefault(folder, []).append(file)
        elif folder := _outermost(parents, STEP_FOLDER):
            step_folders.setdefault(folder, []).append(file)
        elif (match := CHECKPOINT_FILE.fullmatch(name)) and (not parents or _saves_models(parents)):
            single.append(Checkpoint(step=int(match[1]), path=file.rel, weights=file.size > 0, size=file.size))
    folders |= {folder: inside for folder, inside in step_folders.items() if _is_checkpoint(folder[0], inside)}
    checkpoints = single + [
        Checkpoint(step=step, path=path, weights=any(map(_holds_weights, inside)), size=sum(f.size for f in inside))
        for (path, step), inside in folders.items()
    ]
    return tuple(sorted(checkpoints, key=lambda checkpoint: (checkpoint.step, not checkpoint.weights, checkpoint.path)))


def _outermost(parts: Sequence[str], pattern: re.Pattern[str]) -> tuple[str, int] | None:
    """Return the path of the outermost folder that is named so, and its step."""
    for depth, part in enumerate(parts, start=1):
        if match := pattern.fullmatch(part):
            return "/".join(parts[:depth]), int(next(filter(None, match.groups())))
    return None


def _saves_models(parts: Sequence[str]) -> bool:
    """Return whether models are saved in such a folder: dumps of tensors have like names elsewhere."""
    return any(part.lower() in MODEL_FOLDERS for part in parts)


def _is_checkpoint(path: str, files: Iterable[RunFile]) -> bool:
    """Distinguish a checkpoint from a dump that is named like one: it lies where models are saved, or holds weights."""
    *parents, name = PurePosixPath(path).parts
    return _saves_models(parents) or (name.lower().startswith("step") and any(map(_holds_weights, files)))


def _holds_weights(file: RunFile) -> bool:
    name = PurePosixPath(file.rel).name
    if file.size == 0 or NOT_WEIGHTS.match(name):
        return False
    return PurePosixPath(name).suffix.lower() in WEIGHT_ENDINGS or WEIGHT_NAMES.fullmatch(name) is not None


MIN_POINTS: Final = 2  # one point is best by default
MIN_NOISE_POINTS: Final = 5  # points: fewer differences tell no noise
Z: Final = 1.96  # of the difference of two figures: 95%
MAX_TIES: Final = 5  # named in a note
CONSOLE: Final = "console:"  # lines of a console name their step less surely than other writers do
# Of several logged figures the one closest to the task counts; the higher the better but for the last row.
HIGHER_IS_BETTER: Final = (
    r"(?<!token_)(?:accurac(?:y|ies)|acc|acc_norm|correct(?:ness)?|success(?:_rate)?|solve[d_]?\w*|exact_match|em|pass(?:@|_at_)?\w*|win_?rate|f1)",
    r"(?:avg_|mean_)?scores?",
    r"rewards?(?:_mean)?|mean_reward",
    r"mean_token_accuracy",
)  # fmt: skip
LOWER_IS_BETTER: Final = r"(?:loss|nll|perplexity|ppl)"
NOT_A_SCORE: Final = re.compile(r"std|stderr|count|runtime|per_second|num_|length|entropy|zero_std", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Score:
    """The best figure of one evaluation over the steps."""

    metric: str  # as its writer spelt it
    step: int
    value: float
    higher: bool  # the higher the better
    points: int
    samples: int | None  # behind the figure; None where nobody wrote it down
    noise: float | None  # half width at 95% of the difference of two figures; None where it is not known
    ties: tuple[int, ...]  # other steps within the noise, or exactly equal where it is not known
    last_step: int


Points = tuple[np.ndarray, np.ndarray, int | None]  # steps, values, samples behind each


def best_score(evaluated: Mapping[str, Series], evals: pl.DataFrame, family: Family | None) -> Score | None:
    """Return the best step by the figure closest to the task; None where fewer than two steps were evaluated.

    The loss of an RL objective says nothing of a model's worth, so that it is never taken in online training.
    """
    logged: dict[str, Points] = {name: (*series.finite(), None) for name, series in evaluated.items()}
    candidates = [
        (rank, name.startswith(CONSOLE), -len(points[0]), name, points)
        for name, points in (logged | _harness_points(evals)).items()
        if len(points[0]) >= MIN_POINTS and (rank := _rank(name, family)) is not None
    ]
    if not candidates:
        return None
    rank, _, _, name, points = min(candidates, key=lambda candidate: candidate[:4])
    return _best(name, *points, higher=0 <= rank < len(HIGHER_IS_BETTER))


def _harness_points(evals: pl.DataFrame) -> dict[str, Points]:
    """Return the figures of harnesses that name their step; of a step recorded twice the last."""
    if evals.is_empty():
        return {}
    usable = evals.filter(pl.col("step").is_not_null(), pl.col("value").is_finite())
    groups = usable.group_by(["suite", "metric"], maintain_order=True)
    points: dict[str, Points] = {}
    for (suite, metric), rows in sorted(groups, key=lambda group: str(group[0])):
        rows = rows.unique("step", keep="last", maintain_order=True).sort("step")
        samples = None if rows.is_empty() or rows["n"].has_nulls() else int(rows["n"].min())  # type: ignore[arg-type]
        points[f"{suite}/{metric}"] = (rows["step"].to_numpy(), rows["value"].to_numpy(), samples)
    return points


def _rank(name: str, family: Family | None) -> int | None:
    """Return how close a figure is to the task, 0 the closest; None for one that is no score."""
    plain = name.removeprefix(CONSOLE)
    parts = [part for part in re.split(r"[/:.]|^eval_|^val_|^test_", plain) if part]
    last = next((part for part in reversed(parts) if part.lower() not in {"mean", "avg", "none"}), plain)
    if NOT_A_SCORE.search(last) or parts[-1:] == ["std"]:
        return None
    if re.fullmatch(LOWER_IS_BETTER, last, re.IGNORECASE):
        if family in SAMPLED:
            return None
        return -1 if family is Family.SUPERVISED else len(HIGHER_IS_BETTER)
    for rank, pattern in enumerate(HIGHER_IS_BETTER):
        if re.fullmatch(pattern, last, re.IGNORECASE) or (
            rank == 0 and re.search(r"(?:^|_)(?:accuracy|success_rate|correct)(?:_|$)", last) and "token" not in last
        ):
            return rank
    return None


def _best(name: str, steps: np.ndarray, values: np.ndarray, samples: int | None, *, higher: bool) -> Score:
    worth = values if higher else -values
    best = int(np.argmax(worth))  # of equals the first
    noise = _noise(values, values[best], samples)
    ties = np.flatnonzero(worth >= worth[best] - (EQUAL_WITHIN if noise is None else noise))
    return Score(
        metric=name,
        step=int(steps[best]),
        value=float(values[best]),
        higher=higher,
        points=len(steps),
        samples=samples,
        noise=noise,
        ties=tuple(int(steps[i]) for i in ties if i != best),
        last_step=int(steps[-1]),
    )


def _noise(values: np.ndarray, best: float, samples: int | None) -> float | None:
    """Return how far two figures of one model may lie apart: binomial for a share of `samples`, or from the series.

    Differences of neighbours hold the noise twice and the trend hardly at all.
    """
    if samples and bool(((values >= 0) & (values <= 1)).all()):
        share = min(max(best, 1 / (samples + 2)), 1 - 1 / (samples + 2))  # at 0 and 1 the formula would give none
        return Z * math.sqrt(2 * share * (1 - share) / samples)
    if len(values) < MIN_NOISE_POINTS:
        return None
    differences = np.diff(values)
    return Z * MAD_TO_SD * float(np.median(np.abs(differences - np.median(differences))))


SCHEMA: Final = {
    "role": pl.String,  # last_healthy | best | first_broken | last; empty for the others
    "step": pl.Int64,  # of the checkpoint; without one, the step to look for
    "path": pl.String,  # below the run dir; null where none is on disk
    "weights": pl.Boolean,  # whether files of weights lie in it; null where none is on disk
    "bytes": pl.Int64,
    "note": pl.String,
}
RECORDING_FINDINGS: Final = frozenset(
    {"eval-protocol-changed", "eval-spikes", "failures-under-load", "repeated-sequences", "missing-parts",
     "rounded-logprobs", "missing-logprobs", "placeholder-logprobs", "filled-rows", "copied-logprobs"}
)  # fmt: skip
"""Findings on what was written down or measured: the weights are none the worse for it."""
HARMLESS_LINKS: Final = frozenset({Link.SYSTEMS})  # a slow or crowded machine leaves the weights as they were


@dataclass(frozen=True)
class Role:
    """What one checkpoint is to be kept for."""

    name: str
    step: int | None  # at or before which to look, or from which on
    checkpoint: Checkpoint | None  # None where it is not on disk
    note: str


@dataclass(frozen=True, kw_only=True)
class CheckpointRoles:
    """All checkpoints, and the four roles."""

    checkpoints: tuple[Checkpoint, ...]
    onset: int | None  # the earliest step the weights may be spoilt from
    healthy: Role
    best: Role
    broken: Role
    last: Role


def assign_roles(diagnosis: Diagnosis, checkpoints: Sequence[Checkpoint], best: Score | None) -> CheckpointRoles:
    """Assign every role its checkpoint, as far as the files and the findings tell.

    `checkpoints` are in the order of `find_checkpoints`.
    """
    damaging = [finding for finding in diagnosis.findings if _damages_weights(finding, diagnosis)]
    dated = [(onset, finding.id) for finding in damaging if (onset := _earliest_onset(finding)) is not None]
    onset, first = min(dated, default=(None, ""))
    undated = sorted({finding.id for finding in damaging if _earliest_onset(finding) is None})
    return CheckpointRoles(
        checkpoints=tuple(checkpoints),
        onset=onset,
        healthy=_last_healthy(diagnosis, checkpoints, onset, first, undated),
        best=_best_role(checkpoints, best),
        broken=_first_broken(checkpoints, onset, undated),
        last=_last(diagnosis.run.last_step, checkpoints),
    )


def _damages_weights(finding: Finding, diagnosis: Diagnosis) -> bool:
    """Return whether a finding dates the damage: one of weight, at the weights, and nobody's consequence."""
    if not finding.severity.at_least(Severity.MEDIUM):
        return False
    if finding.link in HARMLESS_LINKS or finding.id in RECORDING_FINDINGS:
        return False
    causes = {other.link for other in diagnosis.findings if other.id == finding.consequence_of}
    return causes <= HARMLESS_LINKS


def _earliest_onset(finding: Finding) -> int | None:
    """Return the earliest step the weights may be spoilt from: growth spoils none before it passes its limit."""
    if finding.limit_passed_interval is not None:
        return finding.limit_passed_interval[0]
    return finding.seen_interval[0] if finding.seen_interval is not None else finding.seen_step


def _at(checkpoints: Sequence[Checkpoint], step: int) -> Checkpoint | None:
    """Return the first checkpoint of a step: one with weights where there is one."""
    return next((checkpoint for checkpoint in checkpoints if checkpoint.step == step), None)


def _last_healthy(
    diagnosis: Diagnosis, checkpoints: Sequence[Checkpoint], onset: int | None, first: str, undated: list[str]
) -> Role:
    role = partial(Role, "last_healthy")
    if onset is None:
        if undated:
            return role(None, None, f"cannot say: {_and(undated)} has no known onset")
        if not diagnosis.healthy:  # only where enough was judged to say so
            return role(None, None, "cannot say: no check could judge the run")
        note = "no finding of medium severity or above dates any damage to the weights"
        if not checkpoints:
            return role(diagnosis.run.last_step, None, f"{note}; none is on disk here")
        return role(checkpoints[-1].step, _at(checkpoints, checkpoints[-1].step), note)
    doubt = f"; {_and(undated)} has no known onset and may be older" if undated else ""
    before = [checkpoint.step for checkpoint in checkpoints if checkpoint.step < onset]
    if before:
        note = f"the last before step {onset}, where {first} may have begun"
        return role(before[-1], _at(checkpoints, before[-1]), note + doubt)
    start = diagnosis.run.first_step
    if start is not None and onset <= start:
        note = f"none: {first} may have begun at the first recorded step, so go back to the model the run started from"
        return role(None, None, note + doubt)
    there = f"all {len(checkpoints)} on disk are later" if checkpoints else "none is on disk here"
    return role(onset - 1, None, f"look for one before step {onset}: {there}{doubt}")


def _best_role(checkpoints: Sequence[Checkpoint], best: Score | None) -> Role:
    role = partial(Role, "best")
    if best is None:
        return role(None, None, "cannot say: fewer than two evaluations are recorded")
    size = f", n = {best.samples}" if best.samples else ", n not recorded"
    note = f"{best.metric} {best.value:.4g} at step {best.step}, of {best.points} evaluations{size}"
    if best.noise is None:
        note += "; too few to estimate noise"
    if best.ties:
        within = f"within the noise of ±{sig(best.noise)}" if best.noise else "equal to it"
        shown = ", ".join(map(str, best.ties[:MAX_TIES]))
        more = f" and {len(best.ties) - MAX_TIES} more" if len(best.ties) > MAX_TIES else ""
        note += f"; {within}: step{'s' if len(best.ties) > 1 else ''} {shown}{more}"
    if exact := _at(checkpoints, best.step):
        return role(best.step, exact, note)
    if tied := next((checkpoint for checkpoint in checkpoints if checkpoint.step in best.ties), None):
        return role(tied.step, tied, f"{note}; {tied.path} is the first of these on disk")
    if not checkpoints:
        return role(best.step, None, f"{note}; none is on disk here")
    near = min(checkpoints, key=lambda checkpoint: (abs(checkpoint.step - best.step), checkpoint.step))
    missing = f"not on disk: the nearest, {near.path} (step {near.step}), is a different model"
    return role(best.step, None, f"{note}; {missing}")


def _first_broken(checkpoints: Sequence[Checkpoint], onset: int | None, undated: list[str]) -> Role:
    role = partial(Role, "first_broken")
    if onset is None:
        unknown = f"cannot say: {_and(undated)} has no known onset"
        return role(None, None, unknown if undated else "nothing broke that would date it")
    after = next((checkpoint for checkpoint in checkpoints if checkpoint.step >= onset), None)
    if after is not None:
        return role(after.step, after, f"the first from step {onset} on")
    there = f"all {len(checkpoints)} on disk are earlier" if checkpoints else "none is on disk here"
    return role(onset, None, f"look for the first from step {onset} on: {there}")


def _last(end: int | None, checkpoints: Sequence[Checkpoint]) -> Role:
    ends = f"the record ends at step {end}"
    if not checkpoints:
        return Role("last", end, None, "none is on disk here" + (f"; {ends}" if end is not None else ""))
    step = checkpoints[-1].step
    return Role("last", step, _at(checkpoints, step), "the end of the run" if end in (None, step) else ends)


def _and(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else ", ".join(names[:-1]) + " and " + names[-1]


def checkpoint_table(roles: CheckpointRoles) -> pl.DataFrame:
    """Return the four roles, then every checkpoint on disk, by step."""
    nothing = (None, None, None)
    rows: list[tuple[str | int | bool | None, ...]] = []
    for role in (roles.healthy, roles.best, roles.broken, roles.last):
        checkpoint = role.checkpoint
        rows.append(
            (
                role.name,
                role.step,
                *((checkpoint.path, checkpoint.weights, checkpoint.size) if checkpoint else nothing),
                role.note,
            )
        )
    rows += [
        ("", checkpoint.step, checkpoint.path, checkpoint.weights, checkpoint.size, "")
        for checkpoint in roles.checkpoints
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


LAST_HEALTHY: Final = re.compile(
    r"\bthe (?:last|latest|most recent|nearest) (?:known )?(?:healthy|good) checkpoint\b(?! \()", re.IGNORECASE
)
BEFORE_STEP: Final = re.compile(
    r"\b(?:an?|the) (?:last |early )?checkpoint (?:from )?before step (\d{1,12})\b(?! \()", re.IGNORECASE
)
START: Final = "the model that the run started from"


def with_checkpoint_names(diagnosis: Diagnosis, roles: CheckpointRoles) -> Diagnosis:
    """Append the checkpoint to the words, in the verdict and in the findings; findings keep all else.

    Before the first step there is none but the model that the run started from.
    """
    name, start = _name(roles.healthy), diagnosis.run.first_step

    def healthy(match: re.Match[str]) -> str:
        return match[0] if name is None else f"{match[0]} ({name})"

    def before(match: re.Match[str]) -> str:
        earlier = [checkpoint.path for checkpoint in roles.checkpoints if checkpoint.step < int(match[1])]
        if earlier:
            return f"{match[0]} ({earlier[-1]})"
        return START if start is not None and int(match[1]) <= start else match[0]

    def named(sentences: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(BEFORE_STEP.sub(before, LAST_HEALTHY.sub(healthy, text)) for text in sentences)

    return replace(
        diagnosis,
        verdict=replace(diagnosis.verdict, next=named(diagnosis.verdict.next)),
        findings=tuple(
            replace(finding, confirm=named(finding.confirm), next=named(finding.next)) for finding in diagnosis.findings
        ),
    )


def _name(role: Role) -> str | None:
    """Return what stands in brackets: the folder, or the steps to look at."""
    if role.checkpoint is not None:
        shell = "" if role.checkpoint.weights else ", without weights here"
        return f"{role.checkpoint.path}, step {role.checkpoint.step}{shell}"
    return f"step {role.step} or earlier" if role.step is not None else None
