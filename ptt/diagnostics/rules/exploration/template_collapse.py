"""This run shows different prompts that get the same answer.

What: among the last answers of a step, the share of pairs of different prompts whose texts are equal, letter by
letter. It rises for good above 0.3 and by 0.2 over its early level, or lies above 0.9 in the last third.
Why it matters: the answer no longer depends on the question. Entropy does not show it: a policy may choose among
templates at random and still not look at the prompt.
What it is not: answers alike within one prompt, which a solved task brings. Answers shorter than 40 letters may
rightly agree (yes, no, a class): then it is a note unless the reward falls.
What to do: read the commonest answer. If it is a refusal or a form, look at what pays for it; if it is empty talk,
go back to before the onset and hold the policy closer to the reference.
Source: template collapse in RAGEN-2 (openreview 4U7oGsOdiW): entropy stays while the mutual information of prompt and
answer falls. Equal pairs across prompts against equal pairs within one are the cheapest reading of it.
"""

from dataclasses import replace

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.baseline_shift import MIN_VALUES, BaselineShift, lasting_rise
from ptt.diagnostics.evidence.environment import AnswerAgreement
from ptt.diagnostics.evidence.series import MIN_LOGGED
from ptt.diagnostics.model import Link, Severity
from ptt.diagnostics.rules.interface import Finding, Healthy, Limits, NotJudged, Verdict, rule
from ptt.diagnostics.rules.reward_outcome import reward_dropped

FLOOR = 0.3  # of the pairs: every other answer of a step is then one and the same
MARGIN = 0.2  # over the early level: tasks with few answers have equal pairs by chance
CHRONIC = 0.9  # of the pairs: there is one answer
HIGH = 0.8
SHORT_LETTERS = 40  # letters: a class or a number; longer texts do not agree by chance

ENABLE = "log completions with their prompts (TRL: log_completions=True), several prompts a step"


def check(evidence: Evidence, limits: Limits) -> Verdict:
    """Judge how alike answers to different prompts are."""
    answers = evidence.environment.answers if evidence.environment is not None else None
    if answers is None:
        missing = ("turns.text_hash", "trajectories.prompt_hash")
        reason = "no answers to several prompts of one step are recorded"
        return NotJudged(reason=reason, missing=missing, enable=ENABLE)
    count = len(answers.across.steps)
    rise = lasting_rise(answers.across, floor=limits["floor"], margin=limits["margin"])
    late = float(answers.across.values[-max(1, count // 3) :].mean())
    chronic = rise is None and late > limits["chronic"] and count >= MIN_LOGGED
    if not chronic and (rise is None or rise.ended):
        if count < MIN_VALUES:
            return NotJudged(reason=f"answers are recorded at {count} steps; {MIN_VALUES} are needed", enable=ENABLE)
        share = f"{late:.1%} of pairs of answers to different prompts are equal in the end"
        return Healthy(reason=f"{share}, limit {limits['floor']:.0%}")
    finding = _finding(answers, late, rise, limits)
    if answers.length >= limits["short"] or reward_dropped(evidence):
        return finding
    reason = f"answers agree across prompts, but are short ({answers.length} letters) and the reward does not fall"
    return Healthy(reason=reason, notes=(replace(finding, severity=Severity.LOW),))


def _finding(answers: AnswerAgreement, late: float, rise: BaselineShift | None, limits: Limits) -> Finding:
    within = answers.within.finite()[1] if answers.within is not None else None
    return Finding(
        severity=Severity.HIGH if late >= limits["high"] else Severity.MEDIUM,
        claim=f"{late:.0%} of pairs of answers to different prompts are the same text in the end"
        + (f", {rise.early:.0%} at first" if rise is not None else ""),
        observed=late,
        limit=rise.limit if rise is not None else limits["chronic"],
        unit="share",
        onset_step=rise.onset if rise is not None else int(answers.across.steps[0]),
        onset_interval=rise.interval if rise is not None else None,
        evidence={
            "metric": "turns.text_hash",
            "logged_as": answers.across.name,
            "within_a_prompt": float(within[-max(1, len(within) // 3) :].mean()) if within is not None else None,
            "commonest_share": answers.commonest,
            "trajectory_id": answers.example,
            "letters": answers.length,
        },
        causes=(
            "a reward that one answer earns whatever was asked: a form, a refusal",
            "a collapsed policy",
            "prompts cut off, so that the policy never sees the question",
        ),
        confirm=(
            f"read trajectory {answers.example}, and ten others of its step: is the question in the prompt, and does "
            "the reward tell the answers apart?",
        ),
        next=(
            "check that prompts reach the policy whole",
            "find what in the reward the common answer earns, and take it out",
            "resume from before the onset with a higher KL coefficient, nothing else changed",
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
)
