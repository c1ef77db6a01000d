"""This run shows answers cut off at the length limit.

What: the share of responses that end at the limit stays above one half; or it rose above a quarter and by 0.2 over its
own early level, beyond its noise, and stays there. High where the reward fell.
Why it matters: a cut answer has no end: its reward does not measure the full answer, and a tool call or a final answer
is missing. If it is trained on, it teaches that long answers are wrong; if it is left out, the batch shrinks.
What it is not: a few long answers. Overlong samples are common at first and become rarer with training.
What to do: find out why answers grow: a reward that pays for length, a policy that no longer ends, or a limit too short
for the task. Then raise the limit, or mask or softly penalise overlong samples.
Source: DAPO (arXiv 2503.14476, section 3.4, overlong filtering and soft punishment); TRL `completions/clipped_ratio`,
veRL `response_length/clip_ratio`. The shares are our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_rise
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome, outcome_clause
from ptt.diagnostics.rules.single_series import last_mean, lasting_excess, requires_metric, series_evidence

SHARE_LIMIT = 0.5  # of the responses: more are cut than end
RISE_FLOOR = 0.25  # of the responses: what a share that rose must reach to matter
RISE_MARGIN = 0.2  # over its own early level
ENABLE = "log the share of responses that end at the length limit"


@requires_metric("len/clipped_frac", what="share of cut responses", enable=ENABLE)
def check(series: Series, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of responses cut at the limit."""
    excess = lasting_excess(series, limits["most"])
    rise = lasting_rise(series, floor=limits["risen"], margin=RISE_MARGIN)
    last = last_mean(series)
    if excess is not None and last > limits["most"]:
        first = rise if rise is not None and rise.onset < excess.onset else excess
        return _finding(evidence, series, limits["most"], first.onset, first.interval, outcome(evidence))
    if rise is not None and not rise.ended:
        return _finding(evidence, series, rise.limit, rise.onset, rise.interval, outcome(evidence))
    return Healthy(reason=f"{last:.0%} of responses are cut at the end")


def _finding(evidence: Evidence, series: Series, limit: float, onset: int, interval: Steps, reward: Outcome) -> Finding:
    last = last_mean(series)
    masked = evidence.run.context.get("mask_truncated_completions") is True
    return Finding(
        severity=Severity.HIGH if reward is Outcome.FELL and last > SHARE_LIMIT else Severity.MEDIUM,
        claim=f"{last:.0%} of responses are cut at the length limit{outcome_clause(reward)}"
        + ("; they are masked out of the loss" if masked else ""),
        observed=last,
        limit=limit,
        unit="share",
        onset_step=onset,
        onset_interval=interval,
        evidence=series_evidence(series, masked_out=masked),
        causes=(
            "a reward that pays for length",
            "a policy that no longer ends its answers",
            "a length limit that is too short for the task",
        ),
        confirm=(f"read five cut responses of step {onset}: at work, repeating themselves, or noise?",),
        next=(
            "if at work: raise the length limit; if repeating: look at what the reward pays for; if noise: at the "
            "policy update",
            "then mask overlong samples out of the loss, or penalise them softly, and change nothing else",
        ),
    )


RULE = rule(check, "truncated-share", Link.TRAINING_SIGNAL, most=SHARE_LIMIT, risen=RISE_FLOOR, families=LANGUAGE)
