"""Names the checkpoint in every sentence that advises to go back to the last healthy one."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Diagnosis, Finding, Link, Severity
from ptt.diagnostics.parsers.io.interface import RunFile

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


LEAST: Final = 2  # one point is best by default
NOISE_FROM: Final = 5  # points: fewer differences tell no noise
MAD_TO_SD: Final = 1.4826
Z: Final = 1.96  # of the difference of two figures: 95 %
CERTAIN: Final = 1e-12
GUESSED: Final = "console:"  # lines of a console name their step less surely than other writers do
# Of several logged figures the one closest to the task counts; the higher the better but for the last row.
HIGHER: Final = (
    r"(?<!token_)(?:accurac(?:y|ies)|acc|acc_norm|correct(?:ness)?|success(?:_rate)?|solve[d_]?\w*|exact_match|em|pass(?:@|_at_)?\w*|win_?rate|f1)",
    r"(?:avg_|mean_)?scores?",
    r"rewards?(?:_mean)?|mean_reward",
    r"mean_token_accuracy",
)  # fmt: skip
LOWER: Final = r"(?:loss|nll|perplexity|ppl)"
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
    noise: float | None  # half width at 95 % of the difference of two figures; None where it is not known
    ties: tuple[int, ...]  # other steps within the noise, or exactly equal where it is not known
    last_value: float
    last_step: int


def best_score(evaluated: Mapping[str, Series], evals: pl.DataFrame, family: Family | None) -> Score | None:
    """Give the best step by the figure closest to the task; None where fewer than two steps were evaluated.

    The loss of an RL objective says nothing of a model's worth, so that it is never taken in online training.
    """
    found = [
        (rank, name.startswith(GUESSED), -len(steps), name, steps, values, samples)
        for name, (steps, values, samples) in {**_logged(evaluated), **_harness(evals)}.items()
        if len(steps) >= LEAST and (rank := _rank(name, family)) is not None
    ]
    if not found:
        return None
    rank, _, _, name, steps, values, samples = min(found, key=lambda item: item[:4])
    return _best(name, steps, values, samples, higher=0 <= rank < len(HIGHER))


Points = tuple[np.ndarray, np.ndarray, int | None]


def _logged(evaluated: Mapping[str, Series]) -> dict[str, Points]:
    held: dict[str, Points] = {}
    for name, series in evaluated.items():
        steps, values = series.finite()
        held[name] = (np.asarray(steps), np.asarray(values), None)
    return held


def _harness(evals: pl.DataFrame) -> dict[str, Points]:
    """Give the figures of harnesses that name their step; of a step told twice the last."""
    if evals.is_empty():
        return {}
    usable = evals.filter(pl.col("step").is_not_null(), pl.col("value").is_finite())
    held: dict[str, Points] = {}
    for (suite, metric), rows in sorted(
        usable.group_by(["suite", "metric"], maintain_order=True), key=lambda item: str(item[0])
    ):
        one = rows.unique("step", keep="last", maintain_order=True).sort("step")
        n = one["n"].drop_nulls()
        samples = int(n.min()) if len(n) == one.height and len(n) else None  # type: ignore[arg-type]
        held[f"{suite}/{metric}"] = (one["step"].to_numpy(), one["value"].to_numpy(), samples)
    return held


def _rank(name: str, family: Family | None) -> int | None:
    """Give how close a figure is to the task, 0 the closest; None for one that is no score."""
    plain = name.removeprefix(GUESSED)
    parts = [part for part in re.split(r"[/:.]|^eval_|^val_|^test_", plain) if part]
    last = next((part for part in reversed(parts) if part.lower() not in {"mean", "avg", "none"}), plain)
    if NOT_A_SCORE.search(last) or parts[-1:] == ["std"]:
        return None
    if re.fullmatch(LOWER, last, re.IGNORECASE):
        if family is Family.ONLINE:
            return None
        return -1 if family is Family.SUPERVISED else len(HIGHER)
    for rank, pattern in enumerate(HIGHER):
        if re.fullmatch(pattern, last, re.IGNORECASE) or (
            rank == 0 and re.search(r"(?:^|_)(?:accuracy|success_rate|correct)(?:_|$)", last) and "token" not in last
        ):
            return rank
    return None


def _best(name: str, steps: np.ndarray, values: np.ndarray, samples: int | None, *, higher: bool) -> Score:
    worth = values if higher else -values
    place = int(np.argmax(worth))  # of equals the first
    noise = _noise(values, values[place], samples)
    reach = CERTAIN if noise is None else noise
    ties = np.flatnonzero(worth >= worth[place] - reach)
    return Score(
        metric=name,
        step=int(steps[place]),
        value=float(values[place]),
        higher=higher,
        points=len(steps),
        samples=samples,
        noise=noise,
        ties=tuple(int(steps[i]) for i in ties if i != place),
        last_value=float(values[-1]),
        last_step=int(steps[-1]),
    )


def _noise(values: np.ndarray, best: float, samples: int | None) -> float | None:
    """Give how far two figures of one model may lie apart: binomial for a share of `samples`, or from the series.

    Differences of neighbours hold the noise twice and the trend hardly at all.
    """
    if samples and bool(((values >= 0) & (values <= 1)).all()):
        share = min(max(best, 1 / (samples + 2)), 1 - 1 / (samples + 2))  # at 0 and 1 the formula would give none
        return Z * math.sqrt(2 * share * (1 - share) / samples)
    if len(values) < NOISE_FROM:
        return None
    between = np.diff(values)
    return Z * MAD_TO_SD * float(np.median(np.abs(between - np.median(between))))


SCHEMA: Final = {
    "role": pl.String,  # last_healthy | best | first_broken | last; empty for the others
    "step": pl.Int64,  # of the checkpoint; without one, the step to look for
    "path": pl.String,  # below the run dir; null where none is on disk
    "weights": pl.Boolean,  # whether files of weights lie in it; null where none is on disk
    "bytes": pl.Int64,
    "note": pl.String,
}
OF_THE_RECORD: Final = frozenset(
    {"eval-protocol-changed", "eval-spikes", "failures-under-load", "repeated-sequences", "missing-parts",
     "rounded-logprobs", "missing-logprobs", "placeholder-logprobs", "filled-rows", "copied-logprobs"}
)  # fmt: skip
"""Findings on what was written down or measured: the weights are none the worse for it."""
HARMLESS: Final = frozenset({Link.SYSTEMS})  # a slow or crowded machine leaves the weights as they were


@dataclass(frozen=True, kw_only=True)
class Role:
    """What one checkpoint is to be kept for; `held` is None where it is not on disk."""

    name: str
    step: int | None  # at or before which to look, or from which on
    held: Checkpoint | None
    note: str


@dataclass(frozen=True, kw_only=True)
class Kept:
    """All checkpoints, and the four roles."""

    held: tuple[Checkpoint, ...]
    onset: int | None  # the earliest step the weights may be spoilt from
    healthy: Role
    best: Role
    broken: Role
    last: Role

    @property
    def all(self) -> tuple[Role, ...]:
        """The roles in the order they are needed."""
        return self.healthy, self.best, self.broken, self.last


def roles(diagnosis: Diagnosis, held: Sequence[Checkpoint], best: Score | None) -> Kept:
    """Give every role its checkpoint, as far as the files and the findings tell."""
    spoilt = [finding for finding in diagnosis.findings if _spoils(finding, diagnosis)]
    dated = [(_low(finding), finding) for finding in spoilt if _low(finding) is not None]
    first = min(dated, key=lambda item: (item[0], item[1].id)) if dated else None
    onset = first[0] if first else None
    undated = sorted({finding.id for finding in spoilt if _low(finding) is None})
    return Kept(
        held=tuple(held),
        onset=onset,
        healthy=_healthy(diagnosis, held, onset, first[1] if first else None, undated),
        best=_best_role(held, best),
        broken=_broken(held, onset, undated),
        last=_last(diagnosis, held),
    )


def _spoils(finding: Finding, diagnosis: Diagnosis) -> bool:
    """Tell whether a finding dates the damage: one of weight, at the weights, and nobody's consequence."""
    if not finding.severity.at_least(Severity.MEDIUM) or finding.link in HARMLESS or finding.id in OF_THE_RECORD:
        return False
    causes = {other.link for other in diagnosis.findings if other.id == finding.consequence_of}
    return not causes - HARMLESS


def _low(finding: Finding) -> int | None:
    if finding.onset_interval is not None:
        return finding.onset_interval[0]
    return finding.onset_step


def _healthy(
    diagnosis: Diagnosis, held: Sequence[Checkpoint], onset: int | None, first: Finding | None, undated: list[str]
) -> Role:
    name = "last_healthy"
    if onset is None or first is None:
        if undated:
            return Role(name=name, step=None, held=None, note=f"cannot be told: {_and(undated)} has no known onset")
        return _judged_healthy(diagnosis, held)
    doubt = f"; {_and(undated)} has no known onset and may be older" if undated else ""
    before = [one for one in held if one.step < onset]
    why = f"the last before step {onset}, from which {first.id} may date"
    if before:
        top = max(one.step for one in before)
        return Role(name=name, step=top, held=_of_step(before, top), note=why + doubt)
    start = diagnosis.run.first_step
    if start is not None and onset <= start:
        note = f"none: {first.id} may date from the first recorded step, so go back to the model the run started from"
        return Role(name=name, step=None, held=None, note=note + doubt)
    there = f"all {len(held)} on disk are later" if held else "none is on disk here"
    return Role(name=name, step=onset - 1, held=None, note=f"look for one before step {onset}: {there}{doubt}")


def _judged_healthy(diagnosis: Diagnosis, held: Sequence[Checkpoint]) -> Role:
    """Give the role where no finding dates any damage: only where enough was judged to say so."""
    if not diagnosis.healthy:
        return Role(name="last_healthy", step=None, held=None, note="cannot be told: no check could judge the run")
    note = "no finding of medium severity or above dates any damage to the weights"
    if held:
        top = held[-1].step
        return Role(name="last_healthy", step=top, held=_of_step(held, top), note=note)
    return Role(name="last_healthy", step=diagnosis.run.last_step, held=None, note=f"{note}; none is on disk here")


def _best_role(held: Sequence[Checkpoint], best: Score | None) -> Role:
    if best is None:
        return Role(name="best", step=None, held=None, note="cannot be told: fewer than two evaluations are recorded")
    size = f", n = {best.samples}" if best.samples else ", n not recorded"
    note = f"{best.metric} {best.value:.4g} at step {best.step}, of {best.points} evaluations{size}"
    if best.noise is None:
        note += "; too few to tell noise"
    if best.ties:
        within = "equal to it" if best.noise is None or best.noise == 0 else f"within the noise of ±{best.noise:.2g}"
        shown = ", ".join(map(str, best.ties[:5])) + (f" and {len(best.ties) - 5} more" if len(best.ties) > 5 else "")
        note += f"; {within}: step{'s' if len(best.ties) > 1 else ''} {shown}"
    exact = [one for one in held if one.step == best.step]
    if exact:
        return Role(name="best", step=best.step, held=_of_step(exact, best.step), note=note)
    alike = [one for one in held if one.step in best.ties]
    if alike:
        one = _of_step(alike, alike[0].step)
        return Role(name="best", step=one.step, held=one, note=f"{note}; {one.path} is the first of these on disk")
    if not held:
        return Role(name="best", step=best.step, held=None, note=note + "; none is on disk here")
    near = min(held, key=lambda one: (abs(one.step - best.step), one.step))
    return Role(
        name="best",
        step=best.step,
        held=None,
        note=note + f"; not on disk: the nearest, {near.path} (step {near.step}), is another model",
    )


def _broken(held: Sequence[Checkpoint], onset: int | None, undated: list[str]) -> Role:
    name = "first_broken"
    if onset is None:
        note = f"cannot be told: {_and(undated)} has no known onset" if undated else "nothing broke that would date it"
        return Role(name=name, step=None, held=None, note=note)
    after = [one for one in held if one.step >= onset]
    if after:
        step = min(one.step for one in after)
        return Role(name=name, step=step, held=_of_step(after, step), note=f"the first from step {onset} on")
    there = f"all {len(held)} on disk are earlier" if held else "none is on disk here"
    return Role(name=name, step=onset, held=None, note=f"look for the first from step {onset} on: {there}")


def _last(diagnosis: Diagnosis, held: Sequence[Checkpoint]) -> Role:
    end = diagnosis.run.last_step
    if not held:
        note = "none is on disk here" + (f"; the record ends at step {end}" if end is not None else "")
        return Role(name="last", step=end, held=None, note=note)
    step = held[-1].step
    note = f"the record ends at step {end}" if end is not None and end != step else "the end of the run"
    return Role(name="last", step=step, held=_of_step(held, step), note=note)


def _of_step(held: Sequence[Checkpoint], step: int) -> Checkpoint:
    """Of several of one step the one that holds weights, then by path."""
    return min((one for one in held if one.step == step), key=lambda one: (not one.weights, one.path))


def _and(names: Sequence[str]) -> str:
    return " and ".join(names) if len(names) < 3 else ", ".join(names[:-1]) + " and " + names[-1]


def checkpoint_table(kept: Kept) -> pl.DataFrame:
    """Give the four roles, then every checkpoint on disk, by step."""
    rows: list[tuple[str, int | None, str | None, bool | None, int | None, str]] = []
    for role in kept.all:
        one = role.held
        rows.append(
            (
                role.name,
                role.step,
                one.path if one else None,
                one.weights if one else None,
                one.size if one else None,
                role.note,
            )
        )
    rows += [("", one.step, one.path, one.weights, one.size, "") for one in kept.held]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


PHRASE: Final = re.compile(
    r"\bthe (?:last|latest|most recent|nearest) (?:known )?(?:healthy|good) checkpoint\b(?! \()", re.IGNORECASE
)
BEFORE: Final = re.compile(r"\bthe (?:last )?checkpoint before step (\d{1,12})\b(?! \()", re.IGNORECASE)


def with_names(diagnosis: Diagnosis, kept: Kept) -> Diagnosis:
    """Put the checkpoint behind the words, in the verdict and in the findings; findings keep all else."""
    verdict = replace(diagnosis.verdict, next=_each(diagnosis.verdict.next, kept))
    return replace(
        diagnosis, verdict=verdict, findings=tuple(_finding(finding, kept) for finding in diagnosis.findings)
    )


def _name(role: Role) -> str | None:
    """Give what stands in brackets: the folder, or the steps to look at."""
    if role.held is not None:
        shell = "" if role.held.weights else ", without weights here"
        return f"{role.held.path}, step {role.held.step}{shell}"
    return f"one saved at or before step {role.step}" if role.step is not None else None


def _finding(finding: Finding, kept: Kept) -> Finding:
    confirm, following = _each(finding.confirm, kept), _each(finding.next, kept)
    if confirm == finding.confirm and following == finding.next:
        return finding
    return replace(finding, confirm=confirm, next=following)


def _each(sentences: tuple[str, ...], kept: Kept) -> tuple[str, ...]:
    name = _name(kept.healthy)

    def healthy(found: re.Match[str]) -> str:
        return found[0] if name is None else f"{found[0]} ({name})"

    def before(found: re.Match[str]) -> str:
        earlier = [one for one in kept.held if one.step < int(found[1])]
        return f"{found[0]} ({earlier[-1].path})" if earlier else found[0]

    return tuple(BEFORE.sub(before, PHRASE.sub(healthy, text)) for text in sentences)
