"""From the rules' verdicts to one answer: what broke first, what followed from it, what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ptt.diagnostics.model import (
    Answer,
    Broken,
    Diagnosis,
    Finding,
    Healthy,
    Link,
    NotJudged,
    RuleCrash,
    RuleVerdict,
    Run,
    RunVerdict,
    Severity,
    Signature,
    Source,
    Status,
)

if TYPE_CHECKING:
    import polars as pl

EXPLAINS: Final[Mapping[str, frozenset[str]]] = {
    "unmasked-tools": frozenset({"missing-logprobs", "placeholder-logprobs", "truncated-support", "retokenised-turns"}),
    "shifted-logprobs": frozenset({"missing-logprobs", "placeholder-logprobs"}),
    "scaled-logprobs": frozenset({"truncated-support"}),
    "mixed-temperatures": frozenset({"scaled-logprobs", "truncated-support"}),
    "resumed-segments": frozenset({"repeated-sequences"}),
    "tool-tail-growth": frozenset({"kl-over-target", "clip-fraction-high", "gradient-spikes"}),
    "kl-over-target": frozenset(
        {
            "tool-use-vanished",
            "no-signal-groups",
            "entropy-collapse",
            "clip-fraction-high",
            "gradient-spikes",
            "metrics-lost",
        }
    ),
    "metrics-lost": frozenset({"tool-use-vanished", "no-signal-groups", "entropy-collapse"}),
}
"""Which failure explains which, where it came first: the later one is then told under it."""

MAX_NEXT: Final = 4
UNKNOWN: Final = 1 << 60  # later than any step


def verdict_of(
    *,
    run: Run,
    signature: Signature,
    verdicts: Sequence[RuleVerdict],
    crashes: Sequence[RuleCrash],
    sources: Sequence[Source],
    tables: Mapping[str, pl.DataFrame],
) -> Diagnosis:
    """Put the diagnosis together."""
    found = [finding for verdict in verdicts if isinstance(verdict, Broken) for finding in verdict.findings]
    found += [note for verdict in verdicts if isinstance(verdict, Healthy) for note in verdict.notes]
    findings = tuple(_linked(sorted(found, key=_order)))
    not_judged = tuple(verdict for verdict in verdicts if isinstance(verdict, NotJudged))
    return Diagnosis(
        run=run,
        verdict=_answer(findings, signature, not_judged),
        signature=signature,
        findings=findings,
        healthy=tuple(verdict for verdict in verdicts if isinstance(verdict, Healthy)),
        not_judged=not_judged,
        crashes=tuple(crashes),
        sources=tuple(sources),
        tables=tables,
    )


def contaminated(verdicts: Sequence[RuleVerdict], pair: str | None) -> str | None:
    """Say why the tails of `pair` must not be judged, or None; findings name what they contaminate as evidence."""
    for verdict in verdicts:
        for finding in verdict.findings if isinstance(verdict, Broken) else ():
            what = finding.evidence.get("contaminates")
            sides = {f"{side}_logp" for side in (pair or "").split("/")}
            if what == "all" or (what is not None and (what == pair or what in sides)):
                return finding.claim
    return None


def _order(finding: Finding) -> tuple[int, int, int, str]:
    onset = finding.onset_step if finding.onset_step is not None else 1 << 60
    return finding.severity.rank, onset, list(Link).index(finding.link), finding.id


def _linked(findings: Sequence[Finding]) -> list[Finding]:
    """Name the cause of each finding that an earlier one explains."""
    linked = []
    for finding in findings:
        causes = [
            other
            for other in findings
            if finding.id in EXPLAINS.get(other.id, ()) and _since(other) <= _since(finding) < UNKNOWN
        ]
        first = min(causes, key=lambda cause: (_since(cause), cause.id), default=None)
        linked.append(replace(finding, consequence_of=first.id) if first else finding)
    return linked


def _answer(findings: Sequence[Finding], signature: Signature, not_judged: Sequence[NotJudged]) -> RunVerdict:
    serious = [finding for finding in findings if finding.severity.at_least(Severity.MEDIUM)]
    roots = [finding for finding in serious if finding.consequence_of is None]
    if serious:
        worst = min(serious, key=lambda finding: finding.severity.rank).severity
        first = min(roots, key=_time)
        return RunVerdict(
            status=Status.UNSTABLE if worst is Severity.CRITICAL else Status.SUSPECT,
            headline=first.claim + (f", since step {first.onset_step}." if first.onset_step is not None else "."),
            first_broken_link=first.link,
            next=_next([first, *(root for root in roots if root is not first)]),
        )
    if signature.status is Answer.CANNOT_SAY:
        return RunVerdict(
            status=Status.CANNOT_SAY,
            headline=f"Cannot say: {signature.reason}.",
            first_broken_link=None,
            next=tuple(dict.fromkeys(item.enable for item in not_judged if item.enable))[:MAX_NEXT],
        )
    return RunVerdict(
        status=Status.HEALTHY,
        headline="Nothing of medium severity or above was found.",
        first_broken_link=None,
        next=("keep recording: the same figures of the next run show whether it stays so",),
    )


def _since(finding: Finding) -> int:
    """Give the step a failure began at; logprobs that cannot be trusted could not from the start."""
    if finding.onset_step is not None:
        return finding.onset_step
    return -1 if finding.link is Link.DATA_VALIDITY else UNKNOWN


def _time(finding: Finding) -> tuple[int, int]:
    return (_since(finding), list(Link).index(finding.link))


def _next(roots: Sequence[Finding]) -> tuple[str, ...]:
    steps = [step for root in roots for step in root.next]
    return tuple(dict.fromkeys(steps))[:MAX_NEXT]
