"""This run shows a new start that loses the place in the training data: prompts come again, or are left out.

What: from a new start on, over three recorded steps and more, four in five prompts are those that the run trained on a
constant number of steps before, in their order, and no epoch ended there. Or one pass through the data ended while a
tenth of its prompts or more was never trained on, in a run that was started again.
Why it matters: the reward of prompts that were seen jumps and falls back once they are over: that is memory. Prompts
that are skipped were in flight or in a buffer: the long and the hard ones, so that the data are thinned of just these.
What it is not: a second epoch; prompts that dynamic sampling leaves out.
What to do: save the place of what was trained, not of what was handed out, and put what was in flight back in the line.
Source: NeMo-RL pull request 3599 (the cursor runs ahead of training), TRL issue 7274 (a dropped group holds it back).
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.data_position import SKIPPED, Replay, Skipped
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import (
    REWARDED_LANGUAGE,
    Broken,
    Finding,
    Healthy,
    Limits,
    NotJudged,
    Verdict,
    rule,
)
from ptt.diagnostics.wording import counted, pct, sig

BESIDE_STEPS = 20  # before and after the new start: what the reward is compared over
MIN_BESIDE = 5
JUST_AFTER = 3  # steps after a new start
CONFIRM = "compare the prompts of the first steps after the new start with those of earlier steps"
NEXT = (
    "save with a checkpoint how far training has come in the data, not how far the loader or the sampler has",
    "put prompts that are in flight or buffered back in the line before saving",
)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge where each new start continues in the data."""
    position = evidence.position
    if position is None or not position.recorded:
        return NotJudged(
            reason="the run was not started again" if position is None else "no prompts are recorded by step",
            missing=("trajectories.prompt_hash",),
            enable="save samples with step and prompt (veRL: trainer.rollout_data_dir; TRL: log_completions=True)",
            absent=True,
        )
    findings = [] if position.replay is None else [_replayed(evidence, position.replay)]
    if position.skipped is not None and 1 - position.skipped.trained / position.skipped.prompts >= limits["skipped"]:
        findings.append(_skipped(evidence, position.skipped))
    return Broken(findings=tuple(findings)) if findings else Healthy(reason="each new start goes on in the data")


def _replayed(evidence: Evidence, found: Replay) -> Finding:
    first = found.restart + 1
    jump = _jump(evidence, found)
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"From step {first} to {found.last}, after the restart at step {found.restart}, "
        f"{pct(found.share)} of the prompts are those trained on from step {found.earlier} on, in the same order: the "
        f"data go on from an old position{jump}",
        observed=found.share,
        limit=0.0,
        unit="share",
        onset_step=first,
        evidence={
            "metric": "trajectories.prompt_hash",
            "restart_step": found.restart,
            "repeats_from_step": found.earlier,
            "until_step": found.last,
        },
        causes=(
            "the position in the data that the checkpoint holds lags behind, as where a dropped prompt pins it",
            "the loader or its sampler begins anew, with the same seed",
        ),
        confirm=(CONFIRM,),
        next=NEXT,
    )


def _jump(evidence: Evidence, found: Replay) -> str:
    reward = evidence.metrics.get("reward/mean")
    if reward is None:
        return ""
    steps, values = reward.finite()
    before = values[steps <= found.restart][-BESIDE_STEPS:]
    after = values[(steps > found.restart) & (steps <= found.last)][:BESIDE_STEPS]
    if min(len(before), len(after)) < MIN_BESIDE:
        return ""
    return (
        f"; the reward goes from {sig(float(before.mean()))} to {sig(float(after.mean()))} there, which is memory of "
        "seen prompts and not progress"
    )


def _skipped(evidence: Evidence, found: Skipped) -> Finding:
    lost = 1 - found.trained / found.prompts
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"The data are through (1 epoch) after {found.trained} of their {found.prompts} prompts were trained on: "
        f"{pct(lost)} are skipped, and there were {counted(len(found.restarts), 'restart(s)')}: prompts in "
        f"flight or in a buffer are lost at each new start{_after_starts(evidence, found.restarts)}",
        observed=lost,
        limit=SKIPPED,
        unit="share",
        evidence={
            "metric": "samples/trained",
            "prompts": found.prompts,
            "trained_prompts": found.trained,
            "restarts": len(found.restarts),
        },
        causes=(
            "the position of the loader, which runs ahead of training, is saved and restored",
            "what a buffer or the engine holds when a job ends is not put back",
        ),
        confirm=("count the different prompts that were trained on, and look which of the data are missing",),
        next=NEXT,
    )


def _after_starts(evidence: Evidence, restarts: tuple[int, ...]) -> str:
    """Say what length and reward do just after the new starts: short episodes come back first."""
    told = []
    for name in ("len/response_mean", "reward/mean"):
        series = evidence.metrics.get(name)
        if series is None:
            continue
        steps, values = series.finite()
        after = np.concatenate([values[(steps > at) & (steps <= at + JUST_AFTER)] for at in restarts])
        before = np.concatenate([values[(steps <= at) & (steps > at - MIN_BESIDE)] for at in restarts])
        if len(after) and len(before):
            told.append(f"{series.raw_name} goes from {sig(float(before.mean()))} to {sig(float(after.mean()))}")
    return f"; just after them {' and '.join(told)}: what comes back first is short" if told else ""


RULE = rule(check, "data-position-lost", Link.ENVIRONMENT, skipped=SKIPPED, families=REWARDED_LANGUAGE)
