"""This run shows sequences that are recorded more than once.

What: the same `sample_id` occurs twice or more at one step; or, over some steps, most sequences are copies of earlier
steps' or of other prompts', token for token, whatever their ids.
Why it matters: a resumed run that logs its steps again, or ranks that all write the whole batch, count the same tokens
twice; intervals may come out too narrow (mostly they do not, because resampling keeps prompt groups together). A batch
that is written again at later steps shows no policy of these steps.
What it is not: equal answers to one prompt, which a sure policy gives.
What to do: drop the earlier copy, or write one file a step and rank that a resume overwrites.
Source: resumed runs, and `gather` before writing, are the usual causes.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.recorded_batches import REPEATED_RATE, Copies
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_validity import BLOCKS, dates_of, extent, recorded_validity, when_words
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, Verdict, requires, rule
from ptt.diagnostics.wording import pct

MAX_SHARE = 0.001  # of sequences: ids may occasionally clash


@requires(recorded_validity)
def check(validity: Validity, evidence: Evidence, limits: Limits) -> Verdict:
    """Judge the number of repeats by id, then by content."""
    repeated = validity.coverage.repeated
    share = repeated.sequences / validity.sequences
    if share <= limits["share"]:
        if evidence.copies is not None:
            return _copied(evidence.copies)
        return Healthy(reason=f"{repeated.sequences} of {validity.sequences} sequences are repeats")
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{repeated.sequences} of {validity.sequences} sequences are recorded twice at a step",
        observed=share,
        limit=limits["share"],
        unit="share",
        evidence=extent(repeated, "their tokens count twice in tails, ESS and E[rho^2]; intervals are too narrow"),
        causes=("a resumed run recorded its steps again", "every rank wrote the whole batch"),
        next=("list the files with the same step and keep the later one",),
    )


def _copied(copies: Copies) -> Finding:
    others = "earlier steps" if copies.of_steps else "other prompts"
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"{pct(copies.share)} of the sequences recorded {when_words(copies.span)} are those of {others}, token "
        "for token",
        observed=copies.share,
        limit=REPEATED_RATE,
        unit="share",
        **dates_of(copies.span),
        evidence={
            **extent(copies.extent, "they are no samples of these steps: tails and means stand still or count twice"),
            BLOCKS: "all",
        },
        causes=("a buffer that is written again and again", "a data loader or an engine that stands still"),
        next=("compare the token ids of two of these steps", "judge the steps before"),
    )


RULE = rule(check, "repeated-sequences", Link.DATA_VALIDITY, max_severity=Severity.MEDIUM, share=MAX_SHARE)
