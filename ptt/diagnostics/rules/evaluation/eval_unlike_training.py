"""This run shows an evaluation under different conditions from training: it cuts answers short or has no tools.

What: in the last third of the evaluations, the share of answers cut at the length limit lies 0.2 above that of training
on average and at least 0.1 at each one; or training makes at least one tool call in two trajectories and evaluation at
most a twentieth of that. Cut answers are medium where the gap grew by 0.2 over the run, low where it was there from the
start: harder tasks are cut more often too; medium again where half are cut, hardly any in training, and no figure that
training has too reaches a twentieth of what it is there: such answers may be junk. Or the settings give evaluations at
most half of training's length limit, and answers in training are on average longer than four fifths of it (high).
Why it matters: such a figure measures the limit or the missing tool, not the policy. A reward that evaluation does not
follow is then no reward hacking, and a gap between splits no contamination.
What it is not: a policy that has stopped calling tools in training as well.
What to do: evaluate the checkpoints again with the length limit and the tools of training.
Source: our own; TRL logs both figures for evaluations (eval_completions/clipped_ratio, eval_tools/call_frequency).
"""

import numpy as np

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import Condition
from ptt.diagnostics.evidence.length_limits import HALF, LONGEST, evaluation_limit
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.small_sample import MIN_POINTS
from ptt.diagnostics.statistics.trend import rolling_mean
from ptt.diagnostics.wording import pct, sig

CUT_GAP = 0.2  # of the answers: a score can be off by this much
MIN_CALLS = 0.5  # calls a trajectory in training: below it, tools are not essential
CALL_SHARE = 0.05  # of training's calls: next to none, whatever the suite's prompts
JUNK_SHARE = 0.5  # of the answers cut, and hardly any in training: they do not end
JUNK_REWARD = 0.05  # of what training earns: next to nothing
SHARE_SCALE = 1.0  # highest value of a share: beside it a larger figure of training is on another scale
NEARLY = 0.8  # of the evaluations' limit, by the mean in training: many answers are longer
ROUNDED = 1.02
JUNK_CAUSES = (
    "the engine slept and woke for the evaluation, and its prefix or KV cache was not reset",
    "the evaluation samples from other weights than training, or through another chat template",
    "a suite that is far harder and needs longer answers",
)
JUNK_NEXT = ("turn prefix caching off, or call reset_prefix_cache() before the engine sleeps; then evaluate again",)
CUT = "len/clipped_frac"
ENABLE = "TRL logs completions/clipped_ratio and tools/call_frequency for evaluations too: set eval_strategy"
CONFIRM = ("compare the evaluation's length limit and tools with those of training",)
NEXT = ("evaluate the checkpoints again under the conditions of training before comparing them",)


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge each condition that is logged for training and for an evaluation."""
    conditions = evidence.evaluation.conditions if evidence.evaluation is not None else ()
    pairs = [(one, *pair) for one in conditions if (pair := _beside_training(evidence, one)) is not None]
    short = _short(evidence)
    if not pairs and short is None:
        return NotJudged(
            reason=f"neither cut answers nor tool calls are logged for training and at {MIN_POINTS} evaluations",
            missing=("eval/len/clipped_frac",),
            enable=ENABLE,
        )
    judged = (_cut(evidence, *pair, limits) if pair[0].name == CUT else _without_tools(*pair, limits) for pair in pairs)
    findings = [finding for finding in (short, *judged) if finding is not None]
    serious = tuple(finding for finding in findings if finding.severity.at_least(Severity.MEDIUM))
    if serious:
        return Broken(findings=serious)
    names = ", ".join(condition.series.raw_name for condition, *_ in pairs[:4])
    return Healthy(reason=f"as in training: {names}" if not findings else "cut equally often from the start",
                   notes=tuple(findings))  # fmt: skip


def _short(evidence: Evidence) -> Finding | None:
    """Return the finding of a length limit of evaluations that training's own answers pass."""
    found, lengths = (
        evaluation_limit(evidence.settings) or _seen_limit(evidence),
        evidence.metrics.get("len/response_mean"),
    )
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    if found is None or lengths is None or not figures or not len(lengths.finite()[0]):
        return None
    setting, limit, trained = found
    steps, values = lengths.finite()
    usual = rolling_mean(values, lengths.width, minimum=1)
    if float(usual[-1]) < NEARLY * limit:
        return None
    held = [one for one in evidence.evaluation.lengths if len(one.finite()[0])] if evidence.evaluation else []
    pinned = next((one for one in held if float(one.finite()[1].max()) <= ROUNDED * limit), None)
    beside = f", and {pinned.raw_name} is {sig(float(np.median(pinned.finite()[1])))}" if pinned is not None else ""
    onset = int(steps[int(np.argmax(usual >= NEARLY * limit))])
    return Finding(
        severity=Severity.HIGH,
        claim=f"Evaluations cut answers at {limit:.0f} tokens ({setting}), training at {trained:.0f}, where they are "
        f"{sig(float(usual[-1]))} tokens long{beside}: what evaluations measure is the limit, not the policy",
        observed=float(usual[-1]),
        limit=limit,
        unit="tokens",
        onset_step=onset,
        onset_interval=(int(steps[0]), onset),
        evidence={"metric": lengths.name, "logged_as": lengths.raw_name, "setting": setting, "in_training": trained},
        causes=("the settings of evaluation have a length limit of their own, or its default",),
        confirm=CONFIRM,
        next=(f"give evaluations the limit of training ({setting}: {trained:.0f})", *NEXT),
    )


def _seen_limit(evidence: Evidence) -> tuple[str, float, float] | None:
    """Return the longest answer of evaluations, where it is one and the same, and training's longest is far longer."""
    own = (one.finite()[1] for one in (*evidence.metrics.values(), *evidence.other.values()) if _is_longest(one))
    trained = max((float(np.median(values)) for values in own if len(values)), default=0.0)
    for series in evidence.evaluation.lengths if evidence.evaluation is not None else ():
        values = series.finite()[1]
        if (
            _is_longest(series)
            and len(values) >= MIN_POINTS
            and np.ptp(values) == 0
            and 0 < values[0] <= HALF * trained
        ):
            return series.raw_name, float(values[0]), trained
    return None


def _is_longest(series: Series) -> bool:
    return LONGEST.search(series.raw_name) is not None


def _beside_training(evidence: Evidence, condition: Condition) -> tuple[IntArray, FloatArray, FloatArray] | None:
    """Return the steps of an evaluation, its values, and training's rolling mean there."""
    trained = evidence.metrics.get(condition.name)
    at, evaluated = condition.series.finite()
    if trained is None or len(at) < MIN_POINTS or not len(trained.finite()[0]):
        return None
    steps, values = trained.finite()
    places = np.searchsorted(steps, at, side="right") - 1
    known = places >= 0
    if int(known.sum()) < MIN_POINTS:
        return None
    return at[known], evaluated[known], rolling_mean(values, trained.width, minimum=1)[places[known]]


def _cut(
    evidence: Evidence,
    condition: Condition,
    steps: IntArray,
    evaluated: FloatArray,
    trained: FloatArray,
    limits: Limits,
) -> Finding | None:
    gap, third, limit = evaluated - trained, len(steps) // 3, limits["cut"]
    early, late = float(gap[:third].mean()), float(gap[-third:].mean())
    if late < limit or float(gap[-third:].min()) < limit / 2:
        return None
    grew = late - early >= limit and float(gap[-third:].min()) > float(gap[:third].max())
    onset = _since(gap > early + (late - early) / 2) if grew else 0
    share = float(evaluated[-third:].mean())
    junk = _may_be_junk(evidence) if share >= JUNK_SHARE and float(trained[-third:].mean()) < limit else ""
    return Finding(
        severity=Severity.MEDIUM if junk or grew else Severity.LOW,
        claim=f"{pct(share)} of evaluated answers are cut at the length limit, {float(trained[-third:].mean()):.0%} of "
        f"those in training{junk}",
        observed=late,
        limit=limit,
        unit="share",
        onset_step=int(steps[onset]),
        onset_interval=(int(steps[max(0, onset - 1)]), int(steps[onset])),
        evidence={"metric": condition.name, "logged_as": condition.series.raw_name, "early": early, "late": late},
        causes=("a shorter limit in evaluation than in training", "prompts of the suite that need longer answers")
        if not junk
        else JUNK_CAUSES,
        confirm=("read ten answers of one evaluation: are they language?",) if junk else CONFIRM,
        next=(*JUNK_NEXT, *NEXT) if junk else NEXT,
    )


def _may_be_junk(evidence: Evidence) -> str:
    """Say that late evaluations earn next to nothing of what each same figure is in training, as the end of a claim."""
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    told = []
    for figure in figures:
        evaluated, trained = figure.series.finite()[1], figure.twin.finite()[1] if figure.twin else np.zeros(0)
        if len(evaluated) < MIN_POINTS or len(trained) < MIN_POINTS:
            continue
        late, usual = evaluated[-(len(evaluated) // 3) :], float(trained[-(len(trained) // 3) :].mean())
        if evaluated.max() <= SHARE_SCALE < trained.max():
            continue  # a sum of rewards beside a share of them tells nothing
        if late.min() < 0 or late.max() >= JUNK_REWARD * usual:
            return ""
        told.append(f"{figure.title} is {sig(float(late.mean()))} where training has {sig(usual)}")
    return f", and {told[0]}: they may be junk" if told else ""


def _without_tools(
    condition: Condition, steps: IntArray, evaluated: FloatArray, trained: FloatArray, limits: Limits
) -> Finding | None:
    third = len(steps) // 3
    usual = float(trained[-third:].mean())
    without = evaluated <= limits["share"] * trained
    if usual < limits["calls"] or not without[-third:].all():
        return None
    onset = _since(without & (trained >= limits["calls"]))
    return Finding(
        severity=Severity.MEDIUM,
        claim=f"Evaluation makes {float(evaluated[-third:].mean()):.2g} tool calls a trajectory, training {sig(usual)}",
        observed=float(evaluated[-third:].mean()),
        limit=limits["share"] * usual,
        unit="calls",
        onset_step=int(steps[onset]),
        onset_interval=(int(steps[max(0, onset - 1)]), int(steps[onset])),
        evidence={"metric": condition.name, "logged_as": condition.series.raw_name, "in_training": usual},
        causes=("the evaluation is not given the tools", "a different prompt or chat template in evaluation"),
        confirm=CONFIRM,
        next=NEXT,
    )


def _since(true: np.ndarray) -> int:
    """Return the place from which all values are true."""
    wrong = np.flatnonzero(~true)
    return min(int(wrong[-1]) + 1, len(true) - 1) if len(wrong) else 0


RULE = rule(
    check, "eval-unlike-training", Link.EVALUATION, cut=CUT_GAP, calls=MIN_CALLS,
    share=CALL_SHARE,
)  # fmt: skip
