"""This run shows different prompts that get the same answer.

What: among the final answers of a step, the share of pairs from different prompts whose texts are equal, letter by
letter. It rises for good above 0.3 and by 0.2 over its early level, or lies above 0.9 in the last third. For answers of
24 words and more, pairs that share seven in ten of their three-word sequences count in the same way.
Why it matters: the answer no longer depends on the question. Entropy does not show it: a policy may choose among
templates at random and still ignore the prompt.
What it is not: equal answers to one prompt, as on a solved task. Answers shorter than 40 letters may rightly agree
(yes, no, a class): that is a note unless the reward falls. Nearly equal texts are a note where the reward rose
meanwhile, or where they were so from the start: a format that the task asks for.
What to do: read the most common answer. If it is a refusal or a template, find out what rewards it; if it is empty
talk, go back to before the onset and hold the policy closer to the reference.
Source: template collapse in RAGEN-2 (openreview 4U7oGsOdiW): entropy stays while the mutual information of prompt and
answer falls. Equal pairs across prompts are its cheapest estimate. Seven in ten is the overlap at which BigCode treats
texts as near-duplicates (huggingface.co/blog/dedup).
"""

from dataclasses import replace

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.answers import SKETCH
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, lasting_rise
from ptt.diagnostics.evidence.environment import AnswerAgreement
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import LANGUAGE, Broken, Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import Outcome, outcome, outcome_since, reward_dropped
from ptt.diagnostics.wording import pct

FLOOR = 0.3  # of the pairs: every other answer of a step is then one and the same
MARGIN = 0.2  # over the early level: tasks with few answers have equal pairs by chance
CHRONIC = 0.9  # of the pairs: there is one answer
HIGH = 0.8
SHORT_LETTERS = 40  # letters: a class or a number; longer texts do not agree by chance

ENABLE = "log completions with their prompts (TRL: log_completions=True), several prompts a step"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how alike answers to different prompts are: equal, or else near-duplicates."""
    equal = evidence.environment.answers if evidence.environment is not None else None
    verdict = _of_equal(equal, evidence, limits)
    alike = evidence.answers.alike if evidence.answers is not None else None
    if alike is None or isinstance(verdict, Broken | Finding) or (isinstance(verdict, Healthy) and verdict.notes):
        return verdict
    late, rise = _late_and_rise(alike, limits)
    if rise is None and not _chronic(alike, limits):
        return verdict
    finding = replace(_finding(alike, late, rise, limits), severity=Severity.MEDIUM)
    reward = outcome_since(evidence, rise.interval[0]) if rise is not None else outcome(evidence)
    if reward is Outcome.FELL:
        return replace(finding, severity=Severity.HIGH)
    if rise is not None and reward is not Outcome.ROSE:
        return finding
    reason = "answers to different prompts are nearly the same, but the reward does not fall"
    return Healthy(reason=reason, notes=(replace(finding, severity=Severity.LOW),))


def _of_equal(answers: AnswerAgreement | None, evidence: Evidence, limits: Limits) -> Verdict:
    if answers is None:
        missing = ("turns.text_hash", "trajectories.prompt_hash")
        reason = "no step records answers to several prompts"
        return NotJudged(reason=reason, missing=missing, enable=ENABLE)
    count = len(answers.across.steps)
    late, rise = _late_and_rise(answers, limits)
    if rise is None and not _chronic(answers, limits):
        if count < MIN_VALUES:
            return NotJudged(reason=f"answers are recorded at {count} steps; {MIN_VALUES} are needed", enable=ENABLE)
        share = f"{pct(late)} of pairs of answers to different prompts are equal at the end"
        return Healthy(reason=f"{share}, limit {pct(limits['floor'])}")
    finding = _finding(answers, late, rise, limits)
    if answers.length >= limits["short"] or reward_dropped(evidence):
        return finding
    reason = f"answers agree across prompts, but are short ({answers.length} letters) and the reward does not fall"
    return Healthy(reason=reason, notes=(replace(finding, severity=Severity.LOW),))


def _late_and_rise(answers: AnswerAgreement, limits: Limits) -> tuple[float, BaselineShift | None]:
    """Return the share in the end, and how it rose for good."""
    late = float(answers.across.values[-max(1, len(answers.across.steps) // 3) :].mean())
    rise = lasting_rise(answers.across, floor=limits["floor"], margin=limits["margin"])
    return late, None if rise is None or rise.ended else rise


def _chronic(answers: AnswerAgreement, limits: Limits) -> bool:
    late, _ = _late_and_rise(answers, limits)
    never = lasting_rise(answers.across, floor=limits["floor"], margin=limits["margin"]) is None
    return never and late > limits["chronic"] and len(answers.across.steps) >= MIN_LOGGED


def _finding(answers: AnswerAgreement, late: float, rise: BaselineShift | None, limits: Limits) -> Finding:
    nearly = answers.across.raw_name == SKETCH
    same = "nearly the same text" if nearly else "the same text"
    within = answers.within.finite()[1] if answers.within is not None else None
    return Finding(
        severity=Severity.HIGH if late >= limits["high"] else Severity.MEDIUM,
        claim=f"{pct(late)} of pairs of answers to different prompts are {same} at the end"
        + (f", {pct(rise.early)} at first" if rise is not None else ""),
        observed=late,
        limit=rise.limit if rise is not None else limits["chronic"],
        unit="share",
        onset_step=rise.onset if rise is not None else int(answers.across.steps[0]),
        onset_interval=rise.interval if rise is not None else None,
        evidence={
            "metric": "answers.sketch" if nearly else "turns.text_hash",
            "logged_as": answers.across.name,
            "within_a_prompt": float(within[-max(1, len(within) // 3) :].mean()) if within is not None else None,
            "commonest_share": answers.commonest,
            "trajectory_id": answers.example,
            "letters": answers.length or None,
        },
        causes=(
            "a reward that one answer earns whatever the question: a template, a refusal",
            "a collapsed policy",
            "prompts cut off, so that the policy never sees the question",
        ),
        confirm=(
            f"read trajectory {answers.example} and ten others of its step: is the question in the prompt, and does "
            "the reward distinguish the answers?",
        ),
        next=(
            "check that prompts reach the policy uncut",
            "find out what the common answer earns, and remove it from the reward",
            "resume from before the onset with a higher KL coefficient, and change nothing else",
        ),
    )


RULE = rule(
    check,
    "template-collapse",
    Link.EXPLORATION,
    floor=FLOOR,
    margin=MARGIN,
    chronic=CHRONIC,
    high=HIGH,
    short=SHORT_LETTERS,
    families=LANGUAGE,
)
