"""This run shows a reference that follows the policy, so KL and log-ratios against it start over at each sync.

What: the logged KL to the reference, or the mean of |log policy - log reference| over recorded tokens, climbs and falls
back at three or more regularly spaced steps (two where the spacing counts from the first step), while trainer and
engine agree there; or the run's settings sync the reference.
Why it matters: such a reference hides drift. A policy that moves 0.3 nats in every period is far from its start after
ten periods, and its KL still reads 0.3. A fall at a sync is no recovery.
What it is not: falls where the learning rate restarts, which are the schedule's. And no fault: it is a choice (TR-DPO,
ProRL), reported so that you read figures against the reference within a period. Tails are compared between whole
periods; with fewer than nine, growth stays undecided. A reference that follows a little at every step (a moving
average) shows no falls: only the settings reveal it.
What to do: also measure drift against a frozen copy of the starting policy, or by evaluations that do not use the
reference.
Source: TRL `sync_ref_model`, `ref_model_sync_steps` (default 512) and `ref_model_mixup_alpha` (default 0.6), slime
`ref_update_interval`, open-instruct `ref_policy_update_freq`; arXiv 2404.09656.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.reference import Reference
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import EVERY, Finding, Healthy, Limits, NotJudged, Verdict, by_kind, requires, rule
from ptt.diagnostics.statistics.sawtooth import Sawtooth
from ptt.diagnostics.wording import pct, sig

MIN_FACTOR = 1.5  # by which the distance falls at a sync: less is how KL varies from step to step
MAX_SHOWN = 6  # syncs named in the evidence


def _recorded(evidence: Evidence) -> Reference | NotJudged:
    reference = evidence.reference
    if reference is None or not (reference.watched or reference.setting):
        return NotJudged(
            reason="no distance to a reference is recorded",
            missing=("kl/ref",),
            enable=by_kind(
                evidence,
                sampled="log the KL to the reference: in TRL set beta > 0; in veRL use_kl_loss=True",
                given="keep the trainer's settings beside the run: sync_ref_model and ref_model_sync_steps in TRL",
            ),
        )
    return reference


@requires(_recorded)
def check(reference: Reference, evidence: Evidence, limits: Limits) -> Verdict:
    """Tell a reference that moves."""
    seen = reference.seen if reference.seen is not None and reference.seen.factor >= limits["factor"] else None
    setting, last = reference.setting, evidence.run.last_step
    if seen is None and setting is None and reference.restarts is not None:
        note = _of_the_rate(reference, reference.restarts)
        return Healthy(reason=note.claim, notes=(note,))
    if seen is None and setting is None:
        return Healthy(reason=f"{' and '.join(reference.watched)} never fall back at regular steps")
    if seen is None and setting is not None and last is not None and last < setting.interval:
        return Healthy(
            reason=f"{setting.name} moves the reference every {setting.interval} steps; the run ends before that"
        )
    note = _finding(reference, limits)
    return Healthy(reason=note.claim, notes=(note,))


def _of_the_rate(reference: Reference, falls: Sawtooth) -> Finding:
    return Finding(
        severity=Severity.INFO,
        claim=f"{reference.seen_in} falls back {sig(falls.factor)}-fold about every {falls.interval} steps, where the "
        "learning rate restarts: that is the schedule's, and the reference stays",
        observed=falls.factor,
        limit=None,
        unit="x",
        onset_step=falls.falls[0],
        evidence={"interval": falls.interval, "falls": len(falls.falls), "seen_in": reference.seen_in},
        causes=("a schedule with restarts of the learning rate",),
    )


def _finding(reference: Reference, limits: Limits) -> Finding:
    seen, setting = reference.seen, reference.setting
    if seen is not None:
        times = f"{len(seen.falls)} times from step {seen.falls[0]} on"
        claim = (
            f"The reference is moved to the policy every {seen.interval} steps ({times}): {reference.seen_in} falls "
        )
        claim += f"{sig(seen.factor)}-fold there, and covers only the last {seen.interval} steps"
        interval = seen.interval
    else:
        assert setting is not None, "one of the two moves the reference"
        interval = setting.interval
        claim = (
            f"{setting.name} moves the reference towards the policy every {interval} steps by {pct(setting.mixing)} of "
        )
        claim += "the way: KL and log-ratios against it cover only the last steps"
    return Finding(
        severity=Severity.INFO,
        claim=claim,
        observed=seen.factor if seen is not None else None,
        limit=limits["factor"] if seen is not None else None,
        unit="x",
        onset_step=seen.falls[0] if seen is not None else None,
        evidence={
            "interval": interval,
            "syncs": len(seen.falls) if seen is not None else None,
            "sync_steps": ", ".join(map(str, seen.falls[:MAX_SHOWN])) if seen is not None else None,
            "seen_in": reference.seen_in,
            "setting": setting.name if setting is not None else None,
            "set_interval": setting.interval if setting is not None else None,
            "mixing": setting.mixing if setting is not None else None,
        },
        causes=("the trainer syncs its reference model with the policy",),
        confirm=("find the setting that syncs the reference, and look at the KL around one of the syncs",),
        next=("record logprobs of a frozen copy of the starting policy, or measure drift by a fixed evaluation",),
    )


RULE = rule(
    check,
    "moving-reference",
    Link.POLICY_UPDATE,
    max_severity=Severity.INFO,
    factor=MIN_FACTOR,
    families=EVERY,
)
