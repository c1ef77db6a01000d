"""This run shows sequences that do not say which policy version sampled them.

What: the run samples while it trains (an asynchronous algorithm, or logs of a rollout queue), or some of its sequences
carry a version, but a tenth of them or more carry none. Always a note.
Why it matters: afterwards, nothing shows whether a batch was stale; unknown is not fresh.
What to do: record policy_version with every sequence: how many updates the sampler's weights had seen.
Source: users of the frameworks ask for it (veRL issue 7569, miles issue 3334).
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_freshness import lag_of
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.wording import pct

UNKNOWN_SHARE = 0.1  # of the sequences
ASYNCHRONOUS = frozenset({"async_grpo"})  # algorithms by name
FRAMEWORKS = frozenset({"areal", "prime-rl"})  # asynchronous by design
QUEUES = ("sample/rollout_queue_size", "perf/rollout_wait_s", "async/staleness_violation_count")
ENABLE = "record policy_version with every sequence, counting up at every trainer step"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether versions are recorded where they matter."""
    fresh = evidence.freshness
    if fresh is not None and fresh.known_share < 1 - limits["unknown"]:
        unknown = 1 - fresh.known_share
        claim = f"{pct(unknown)} of the sequences do not say which policy version sampled them"
        return _finding(claim, unknown, limits["unknown"])
    if fresh is not None or lag_of(evidence) is not None:
        recorded = f"{fresh.versions} versions" if fresh is not None else "the staleness of each batch"
        return Healthy(reason=f"{recorded} recorded")
    sign = _asynchronous(evidence)
    if sign:
        return _finding(f"No policy version is recorded in an asynchronous run ({sign})", 1.0, 0.0)
    return NotJudged(
        reason="no policy version is recorded, and nothing shows whether sampling and training overlap",
        missing=("policy_version",),
        enable=ENABLE,
        absent=True,
    )


def _asynchronous(evidence: Evidence) -> str:
    """Return what shows that sampling and training overlap, or nothing."""
    name, framework = evidence.algorithm.name, evidence.run.framework
    if name in ASYNCHRONOUS:
        return evidence.algorithm.title
    if framework in FRAMEWORKS:
        return str(framework)
    spelt = {raw.removeprefix("train/") for raw in evidence.other}
    return next((queue for queue in QUEUES if queue in spelt), "")


def _finding(claim: str, observed: float, limit: float) -> Finding:
    return Finding(
        severity=Severity.LOW,
        claim=claim,
        observed=observed,
        limit=limit,
        unit="share",
        evidence={"metric": "policy_version"},
        causes=("a recorder that leaves the version out",),
        confirm=("check whether the sampler knows its own version: most engines count weight updates",),
        next=(ENABLE,),
    )


RULE = rule(check, "versions-unknown", Link.DATA_FRESHNESS, max_severity=Severity.LOW, unknown=UNKNOWN_SHARE)
