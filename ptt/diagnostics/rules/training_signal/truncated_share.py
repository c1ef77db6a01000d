"""This run shows answers cut off at the length limit.

What: the share of responses that end at the limit stays above one half; or it rose above a quarter and by 0.2 over its
own early level, beyond its noise, and stays there. High where the reward fell. Where no such share is logged, a mean
length that stands at exactly one value, the longest ever, for the last three logged steps and more says that every
answer is cut there.
Why it matters: a cut answer has no end: its reward does not measure the full answer, and a tool call or a final answer
is missing. If it is trained on, it teaches that long answers are wrong; if it is left out, the batch shrinks.
What it is not: a few long answers. Overlong samples are common at first and become rarer with training.
What to do: find out why answers grow: a reward that pays for length, a policy that no longer ends, or a limit too short
for the task. Then raise the limit, or mask or softly penalise overlong samples.
Source: DAPO (arXiv 2503.14476, section 3.4, overlong filtering and soft punishment); TRL `completions/clipped_ratio`,
veRL `response_length/clip_ratio`. The shares are our own.
"""

import re
from dataclasses import replace

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import lasting_rise
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.metrics.name_words import words_of
from ptt.diagnostics.model import Link, Severity, Steps
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome, outcome_clause
from ptt.diagnostics.rules.single_series import derived, last_mean, lasting_excess, logged, series_evidence
from ptt.diagnostics.wording import pct, sig

SHARE_LIMIT = 0.5  # of the responses: more are cut than end
RISE_FLOOR = 0.25  # of the responses: what a share that rose must reach to matter
RISE_MARGIN = 0.2  # over its own early level
MIN_AT_LIMIT = 3  # logged steps at the end: a batch mean does not hit one number that often by chance
MIN_LIMIT = 16.0  # tokens: a task may ask for answers of one short length
SAME_LENGTH = 1e-6  # relative: precision of a float32 mean of equal numbers
TURNS = re.compile(
    r"(?i)(?:^|[/_])(?:num_)?turns(?:[/_](?:mean|avg)|_per_\w+)?$|steps_per_traj|(?:avg|mean)_(?:num_)?turns"
)
LIMIT_WORDS = frozenset({"max", "min", "limit", "config"})  # of how many turns are allowed, not taken
MIN_TURNS = 1.5  # on average: with less there is nothing after the first answer
MORE_TURNS = 1.2  # times
ENABLE = "log the share of responses that end at the length limit"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of responses cut at the limit, or that of steps at which all are cut."""
    series = logged(evidence, "len/clipped_frac", what="share of cut responses", enable=ENABLE)
    if isinstance(series, NotJudged):
        return _all_at_one_length(evidence) or series
    excess = lasting_excess(series, limits["most"])
    rise = lasting_rise(series, floor=limits["risen"], margin=RISE_MARGIN)
    last = last_mean(series)
    if excess is not None and last > limits["most"]:
        first = rise if rise is not None and rise.onset < excess.onset else excess
        return _finding(evidence, series, limits["most"], first.onset, first.interval, outcome(evidence))
    if rise is not None and not rise.ended:
        return _finding(evidence, series, rise.limit, rise.onset, rise.interval, outcome(evidence))
    return Healthy(reason=f"{pct(last)} of responses are cut at the end")


def _all_at_one_length(evidence: Evidence) -> Finding | None:
    """Return the finding of answers that are all exactly as long as the longest to the end of the run, or None."""
    lengths = evidence.metrics.get("len/response_mean")
    if lengths is None or len(lengths.finite()[0]) < MIN_LOGGED:
        return None
    steps, values = lengths.finite()
    longest = float(values.max())
    shorter = np.flatnonzero(values < longest * (1 - SAME_LENGTH))
    first = int(shorter[-1]) + 1 if len(shorter) else 0
    if len(values) - first < MIN_AT_LIMIT or longest < MIN_LIMIT or not len(shorter):
        return None
    at = derived(lengths, steps, (values >= longest * (1 - SAME_LENGTH)).astype(np.float64))
    onset = int(steps[first])
    found = _finding(evidence, at, SHARE_LIMIT, onset, (int(steps[first - 1]), onset), outcome(evidence))
    claim = f"All responses are {longest:.0f} tokens long, the length limit"
    return replace(found, claim=f"{claim}{outcome_clause(outcome(evidence))}", observed=1.0, severity=Severity.HIGH)


def _finding(evidence: Evidence, series: Series, limit: float, onset: int, interval: Steps, reward: Outcome) -> Finding:
    last = last_mean(series)
    masked = evidence.run.context.get("mask_truncated_completions") is True
    return Finding(
        severity=Severity.HIGH if reward is Outcome.FELL and last > SHARE_LIMIT else Severity.MEDIUM,
        claim=f"{pct(last)} of responses are cut at the length limit{outcome_clause(reward)}"
        + ("; they are masked out of the loss" if masked else "")
        + _turns_words(evidence, onset),
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


def _turns_words(evidence: Evidence, onset: int) -> str:
    """Say that episodes take more turns while their text stays at the limit: what is cut are the later turns."""
    known = (one for one in (*evidence.metrics.values(), *evidence.other.values()) if TURNS.search(one.raw_name))
    for series in known:
        steps, values = series.finite()
        if len(values) < MIN_LOGGED or words_of(series.raw_name) & LIMIT_WORDS:
            continue
        before = values[steps <= max(onset, int(steps[series.width - 1]))]
        after = values[-series.width :]
        if before.mean() >= MIN_TURNS and after.mean() >= MORE_TURNS * before.mean():
            return (
                f"; {series.raw_name} went from {sig(float(before.mean()))} to {sig(float(after.mean()))} meanwhile: a "
                "limit for one answer may cut whole episodes, whose later turns then never reach the loss"
            )
    return ""


RULE = rule(check, "truncated-share", Link.TRAINING_SIGNAL, most=SHARE_LIMIT, risen=RISE_FLOOR, families=LANGUAGE)
