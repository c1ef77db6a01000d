"""This run shows a trainer and an engine that disagree after tool output and hardly anywhere else.

What: in sampled sequences, most tokens whose logprobs differ by more than 0.2 nats between trainer and engine come
after tool output, at least 1.5 times as often as their share of the tokens. Low where the mean difference there is
above 0.05 nats, otherwise a note: over all tokens it stays below the limits of engine-mismatch.
Why it matters: the ratios of these tokens are already farthest from 1, and their share grows with tool use; averaged
over all tokens the difference is diluted. Its shape shows the cause: noise on improbable tokens is precision, a shift
in one direction is sampling, one that grows with the lag is a late weight sync, one at the end of the tool output is
tokenisation.
What it is not: a pattern that tokens follow before tool output too: engine-mismatch names it and says how much of it
lies after tools. Nor tails against the reference (tool-tail-growth), which can grow where trainer and engine agree.
What to do: fix the cause that the shape shows; use importance weights only for what is left.
Source: veRL's rollout-correction docs; rllm issue 272 (retokenised turns), trl issue 6789 (truncated sampling); the
shapes are our own.
"""

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.data_freshness import cause_of
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.statistics.mismatch_shape import LARGE
from ptt.diagnostics.wording import pct, sig

MIN_LIFT = 1.5  # share of the large differences over share of the tokens, at the low end of its interval
MIN_SHARE = 0.5  # of the large differences: most of them
LOW_MEAN = 0.05  # nats of mean |r| after tool output: engine-mismatch's limit for all tokens


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge whether large differences lie after tool output, and say what their shape points to."""
    shape = evidence.mismatch
    if shape is None:
        return NotJudged(
            reason="too few tokens have a logprob from both trainer and engine, before and after tool output",
            missing=("rollout_logp", "old_logp"),
            enable="record rollout_logp and old_logp of every token, and the mask that separates tool output",
        )
    dose = f"p95 of |{shape.pair}| is {sig(shape.post.p95)} nats after tool output, {sig(shape.text.p95)} before it"
    tail = shape.tail
    if tail is None or tail.share < limits["share"] or tail.lift_interval[0] < limits["lift"]:
        return Healthy(reason=dose)
    pattern = evidence.mismatch_pattern
    if pattern is not None and pattern.noticed:
        return Healthy(reason=f"{dose}; engine-mismatch names the pattern that all the tokens follow")
    cause = cause_of(shape)
    low = shape.post.mean > limits["mean"]
    finding = Finding(
        severity=Severity.LOW if low else Severity.INFO,
        claim=f"Trainer and engine disagree after tool output: {dose}; {pct(tail.share)} of the differences beyond "
        f"{LARGE:g} nats lie there, but only {pct(tail.token_share)} of the tokens. {cause.shape}: {cause.name}",
        observed=shape.post.mean,
        limit=limits["mean"],
        unit="nats",
        evidence={
            "pair": shape.pair,
            "cause": cause.name,
            "mean_post_tool": shape.post.mean,
            "mean_text_only": shape.text.mean,
            "p95_post_tool": shape.post.p95,
            "p95_text_only": shape.text.p95,
            "p99_post_tool": shape.post.p99,
            "share_of_tokens": tail.token_share,
            "share_of_differences": tail.share,
            "beyond_clip_range_post_tool": shape.post.large,
            "beyond_clip_range_text_only": shape.text.large,
            "ess_post_tool": shape.post.ess,
            "ess_text_only": shape.text.ess,
        },
        causes=(cause.name,),
        confirm=(cause.confirm,),
        next=(
            cause.fix,
            f"until then {pct(shape.post.large)} of the post-tool tokens leave the clip range before any update, and "
            f"their weights have an effective sample size of {pct(shape.post.ess)}",
        ),
    )
    return finding if low else Healthy(reason=dose, notes=(finding,))


RULE = rule(
    check,
    "mismatch-after-tools",
    Link.DATA_FRESHNESS,
    max_severity=Severity.LOW,
    share=MIN_SHARE,
    lift=MIN_LIFT,
    mean=LOW_MEAN,
)
