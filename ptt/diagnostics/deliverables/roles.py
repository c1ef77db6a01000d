"""Which checkpoints to keep and why: the last healthy, the best, the first broken and the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from ptt.diagnostics.deliverables.checkpoints import Checkpoint
from ptt.diagnostics.deliverables.scores import Score
from ptt.diagnostics.model import Diagnosis, Finding, Link, Severity

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
        best=_best(held, best),
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


def _best(held: Sequence[Checkpoint], best: Score | None) -> Role:
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
