"""This run shows a KL divergence from the reference that stays above its limit.

What: the mean of the logged KL over 20 steps lies above 0.3 nats a token, for half of those steps at least, and
stays there. Single spikes do not count: healthy runs show them.
Why it matters: the policy has left the region where the reference, and the KL penalty, say anything useful. It is
the aggregate that moves last: the tails of the log-ratio move hundreds of steps before it.
What to do: if the tails grew first, mend those. Otherwise roll back to the last healthy checkpoint, lower the
learning rate, raise the KL coefficient, or stop updates within a batch at a target KL.
Source: per-token k3 as TRL, veRL and OpenRLHF log it. 0.3 is the cap in use in the field for a mean KL to the
reference; where the run has its own target, set `limits.kl-over-target.limit` to twice that.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.model import Broken, Finding, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules.interface import ONLINE, Limits, Rule

ID = "kl-over-target"
KL_LIMIT = 0.3  # nats a token; see the source above
KL_GONE = 2.0  # nats a token: the typical token's probability has changed e^2-fold; nothing of the reference is left
KL_HIGH = 1.0


def check(evidence: Evidence, limits: Limits) -> RuleVerdict:
    """Judge the logged KL to the reference."""
    series = evidence.metrics.get("kl/ref")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return NotJudged(
            id=ID,
            link=Link.POLICY_UPDATE,
            reason="no KL to the reference is logged"
            if series is None
            else f"only {len(series.finite()[0])} finite KL values are logged",
            missing=("kl/ref",),
            enable="log the KL to the reference: in TRL set beta > 0; in veRL actor_rollout_ref.actor.use_kl_loss=True",
        )
    limit = limits["limit"]
    onset = series.excess(limit)
    _, mean = series.rolling()
    peak = float(np.nanmax(series.rolling_median()))  # the median: one wild step must not set the severity
    if onset is None:
        return Healthy(
            id=ID,
            link=Link.POLICY_UPDATE,
            reason=f"the {series.width}-step median of KL peaks at {peak:.3g} nats, limit {limit:g}",
        )
    first = series.first_above(limit, onset)
    severity = Severity.CRITICAL if peak > KL_GONE else Severity.HIGH if peak > KL_HIGH else Severity.MEDIUM
    return Broken(
        findings=(
            Finding(
                id=ID,
                severity=severity,
                link=Link.POLICY_UPDATE,
                claim=f"Mean KL to the reference stays above {limit:g} nats a token",
                observed=peak,
                limit=limit,
                unit="nats",
                onset_step=onset,
                onset_interval=(first, onset),
                evidence={
                    "metric": "kl/ref",
                    "logged_as": series.raw_name,
                    "window_steps": series.width,
                    "last_mean": float(mean[np.isfinite(mean)][-1]),
                },
                causes=(
                    "learning rate too high for this batch size",
                    "KL coefficient too small to hold the policy",
                    "growing tails in one slice that the mean only now shows",
                ),
                next=(
                    f"compare the checkpoint before step {first} with the last one on a fixed evaluation",
                    "rerun from it with half the learning rate, nothing else changed",
                ),
            ),
        )
    )


EXPLAINS = {
    "tool-use-vanished": "a policy far from the reference forgets to call",
    "no-signal-groups": "a collapsed policy answers alike",
    "entropy-collapse": "the policy left for a single answer",
    "clip-fraction-high": "updates stay as large as those that moved it",
    "gradient-spikes": "log-ratios far off make gradients that large",
    "metrics-lost": "ratios overflow",
}

RULE = Rule(id=ID, link=Link.POLICY_UPDATE, check=check, families=ONLINE, limits={"limit": KL_LIMIT}, explains=EXPLAINS)
