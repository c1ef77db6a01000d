"""This run shows empty responses.

What: the share of sequences with no token of the policy's, or only the one that ends it, stays above 0.05 (medium) or
above 0.3 (high), over 20 steps. Or the mean response is exactly 0 tokens long, step after step to the end of the log:
then nothing is generated (high).
Why it matters: an empty response still gets a reward. Either an engine failed and was not retried, and its samples
teach noise, or the policy learnt to say nothing.
What to do: look for aborted requests in the engine's own log; check what reward an empty response gets.
Source: veRL logs `response/aborted_ratio` for it; the shares are our own.
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.single_series import last_mean, lasting_excess, measured, series_evidence
from ptt.diagnostics.wording import pct, sig

SHARE_LIMIT = 0.05  # of the responses: more than an occasional failed request
HIGH_SHARE = 0.3
MIN_SILENT_STEPS = 3  # logged steps at the end without a token: one may be a row that was not filled in


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the share of responses without content, or that of steps without a response."""
    if (silent := _nothing_generated(evidence)) is not None:
        return silent
    recorded = (evidence.metrics.get("len/empty_frac"), evidence.signal.empty)
    usable = [series for series in recorded if series is not None and len(series.finite()[0]) >= MIN_LOGGED]
    if not usable:
        return NotJudged(
            reason="neither a share of empty responses nor enough sequences are recorded",
            missing=("len/empty_frac", "model_mask"),
            enable="record sequences with model_mask, or log the share of responses without a token",
        )
    series = usable[0]
    excess = lasting_excess(series, limits["some"])
    if excess is None or last_mean(series) <= limits["some"]:
        return Healthy(reason=f"{pct(last_mean(series))} of responses are empty")
    return Finding(
        severity=Severity.HIGH if excess.last > limits["many"] else Severity.MEDIUM,
        claim=f"{pct(excess.last)} of responses are empty",
        unit="share",
        **measured(excess),
        evidence=series_evidence(series),
        causes=(
            "requests that the engine aborted or timed out",
            "a policy that learnt to end at once",
            "a chat template that leaves nothing to say",
        ),
        confirm=(f"count the aborted requests in the engine's log at step {excess.onset}",),
        next=(
            "if requests were aborted: sample them again, or take them out of the loss",
            "if the policy ended at once: check the reward of an empty response, then roll back to before its onset",
        ),
    )


def _nothing_generated(evidence: Evidence) -> Finding | None:
    """Return the finding of a run that goes on without a token being generated, or None."""
    lengths = evidence.metrics.get("len/response_mean")
    steps, values = lengths.finite() if lengths is not None else (np.zeros(0, np.int64), np.zeros(0))
    said = np.flatnonzero(values > 0)
    if lengths is None or not len(said) or len(values) - int(said[-1]) - 1 < MIN_SILENT_STEPS:
        return None
    last, first = int(steps[said[-1]]), int(steps[said[-1] + 1])
    return Finding(
        severity=Severity.HIGH,
        claim=f"Nothing is generated from step {first} on: the mean response is 0 tokens long at all "
        f"{len(values) - int(said[-1]) - 1} logged steps since, {sig(float(values[said[-1]]))} at step {last}",
        observed=0.0,
        limit=float(values[said].min()),
        unit="tokens",
        onset_step=first,
        onset_interval=(last + 1, first),
        evidence=series_evidence(lengths),
        causes=(
            "the process that generates, or runs the agents, died and the trainer went on without it",
            "every request is refused or aborted",
        ),
        confirm=(
            f"look at the logs of the engine and of the agents at step {first}: killed, out of memory, unreachable?",
        ),
        next=(
            f"stop the run: nothing is trained on since step {first}",
            f"start the side that generates again, and resume from the checkpoint of step {last} or before",
        ),
    )


RULE = rule(check, "empty-responses", Link.TRAINING_SIGNAL, some=SHARE_LIMIT, many=HIGH_SHARE, families=LANGUAGE)
