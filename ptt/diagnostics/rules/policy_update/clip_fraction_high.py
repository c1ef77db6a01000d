"""This run shows a clip fraction that stays high.

What: the share of tokens whose update ratio is clipped lies above 0.4 over 20 steps, and stays there.
Why it matters: PPO's clipping is a brake; a policy that is braked on most tokens learns from the rest alone, and the
batch is either stale or the steps are too big.
What to do: fewer epochs over a batch, a smaller learning rate, fresher rollouts; check the advantage scale.
Source: 0.4 is the limit of the common PPO debugging guides; TRL logs `clip_ratio/region_mean`, veRL
`actor/pg_clipfrac`, OpenRLHF `ppo_clip_ratio`.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.model import Broken, Finding, Healthy, Link, NotJudged, RuleVerdict, Severity
from ptt.diagnostics.rules.interface import ONLINE, Limits, Rule

ID = "clip-fraction-high"
CLIP_LIMIT = 0.4  # share of tokens; see the source above


def check(evidence: Evidence, limits: Limits) -> RuleVerdict:
    """Judge the logged clip fraction."""
    series = evidence.metrics.get("clip/frac")
    if series is None or len(series.finite()[0]) < MIN_LOGGED:
        return NotJudged(
            id=ID,
            link=Link.POLICY_UPDATE,
            reason="no clip fraction is logged" if series is None else "too few clip fractions are logged",
            missing=("clip/frac",),
            enable="log the clip fraction; with a single update a batch it is 0 by construction",
        )
    limit = limits["limit"]
    _, mean = series.rolling()
    peak = float(np.nanmax(mean)) if np.isfinite(mean).any() else float("nan")
    onset = series.excess(limit)
    if onset is None:
        return Healthy(
            id=ID,
            link=Link.POLICY_UPDATE,
            reason=f"the {series.width}-step mean of the clip fraction peaks at {peak:.3g}, limit {limit:g}",
        )
    return Broken(
        findings=(
            Finding(
                id=ID,
                severity=Severity.HIGH,
                link=Link.POLICY_UPDATE,
                claim=f"More than {limit:.0%} of tokens are clipped",
                observed=peak,
                limit=limit,
                unit="share",
                onset_step=onset,
                evidence={"metric": "clip/frac", "logged_as": series.raw_name, "window_steps": series.width},
                causes=("too many epochs over one batch", "learning rate too high", "stale rollouts"),
                next=("halve the epochs over a batch and compare the clip fraction over 50 steps",),
            ),
        )
    )


RULE = Rule(id=ID, link=Link.POLICY_UPDATE, check=check, families=ONLINE, limits={"limit": CLIP_LIMIT})
