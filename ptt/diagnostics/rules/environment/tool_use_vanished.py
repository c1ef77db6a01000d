"""This run shows a policy that stopped calling its tools.

What: the share of sequences with a tool observation (or the logged call frequency) ends below 0.1 over 20 steps, after
a mean over five of 0.2 or more.
Why it matters: an agent that no longer acts has failed, whatever its loss says. It also empties the post-tool slice, so
tail statistics seem to improve or cannot be computed any more.
What to do: find out what made calls costly (errors, length penalties, a collapsed policy) just before the fall.
Source: our own observation on collapsed runs: use falls from 0.5 to nothing within a few dozen steps.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.environment import UNRECORDED
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import last_mean
from ptt.diagnostics.statistics.trend import rolling_mean
from ptt.diagnostics.wording import sig

UNUSED_SHARE = 0.1  # share of sequences (or calls a sequence) below which tools are as good as unused
SMOOTHING_VALUES = 5  # values a mean: a collapse may empty the slice within two dozen steps
MIN_PEAK_USE = 0.2  # a run that never used its tools has lost nothing


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the use of tools over the run."""
    series = _use(evidence)
    if series is None:
        return NotJudged(
            reason="too few steps record sequences or a tool-call frequency",
            missing=("tools/call_frequency", "model_mask"),
            enable="record sequences with model_mask, or log calls per sample, or completions with their tool calls",
        )
    steps, values = series.finite()
    mean = rolling_mean(values, SMOOTHING_VALUES, minimum=SMOOTHING_VALUES)[SMOOTHING_VALUES - 1 :]
    steps = steps[SMOOTHING_VALUES - 1 :]
    best, last = float(mean.max()), last_mean(series)
    if best < limits["was_used"]:
        return NotJudged(
            reason=f"tools are hardly used: {sig(best)} at best", enable="nothing to record, if the task has no tools"
        )
    if last >= limits["gone"]:
        return Healthy(reason=f"tool use went from {sig(mean[0])} to {sig(last)} (best {sig(best)})")
    low = mean < limits["gone"]
    back = np.flatnonzero(~low)[-1] if not low.all() else -1  # -1: never used as much as the user's own limit asks
    onset = int(steps[min(back + 1, len(steps) - 1)])
    return Finding(
        severity=Severity.HIGH,
        claim=f"Tool use fell from {sig(best)} to {sig(last)} and did not come back",
        observed=last,
        limit=limits["gone"],
        unit="share",
        slice="post_tool",
        onset_step=onset,
        evidence={"metric": series.name, "logged_as": series.raw_name, "best": best},
        causes=("the policy collapsed", "calls became costly: errors, truncation, penalties"),
        confirm=(f"compare 20 samples from before and after step {onset}: does the policy try to call at all?",),
        next=(
            "where it tries and fails, fix the syntax, the template or the tool first",
            "where it does not, look at what moved before the fall: KL, entropy, failures, a length penalty",
            "resume from the last checkpoint that still called its tools",
        ),
    )


def _use(evidence: Evidence) -> Series | None:
    """Return the logged frequency, which covers every step, or the share that is recorded; dumps often hold some."""
    series = evidence.metrics.get("tools/call_frequency")
    if series is not None and len(series.finite()[0]) >= MIN_LOGGED:
        return series
    use = evidence.tool_use
    if use is None or len(use.steps) < MIN_LOGGED:
        callers = (evidence.environment or UNRECORDED).callers
        return callers.series if callers is not None and len(callers.series.steps) >= MIN_LOGGED else None
    return Series(
        name="tool_use",
        raw_name="share of recorded sequences with an observation",
        steps=use.steps,
        values=use.share,
        flags=np.zeros(len(use.steps), np.uint8),
    )


RULE = rule(check, "tool-use-vanished", Link.ENVIRONMENT, gone=UNUSED_SHARE, was_used=MIN_PEAK_USE)
