"""What the program's own identifiers are called in prose."""

from __future__ import annotations

import re
from typing import Final

from ptt.diagnostics.metrics.catalogue import labels
from ptt.diagnostics.model import Answer, Link, RunVerdict, Severity, Status
from ptt.diagnostics.wording import joined as joined
from ptt.reports.text.sanitize import safe

SLICES = {
    "text_only": "text-only",
    "post_tool": "post-tool",
    "post_observation": "post-observation",
    "post_tool_head": "first tokens after a tool",
    "all": "all tokens",
}
METRICS = labels()
STATUSES = {
    Status.UNSTABLE: "Unstable",
    Status.SUSPECT: "Suspect",
    Status.HEALTHY: "Healthy",
    Status.CANNOT_SAY: "Cannot say",
}
PARTLY = "Partly judged"
ANSWERS = {
    Answer.FOUND: "found",
    Answer.NOT_FOUND: "not found",
    Answer.CANNOT_SAY: "cannot say",
}
SEVERITIES = {severity: severity.value.capitalize() for severity in Severity}
LINKS = {
    Link.DATA_VALIDITY: "Data validity",
    Link.ENVIRONMENT: "Environment and tools",
    Link.EVALUATION: "Evaluation",
    Link.REWARD: "Reward",
    Link.TRAINING_SIGNAL: "Training signal",
    Link.POLICY_UPDATE: "Policy update",
    Link.CRITIC: "Critic",
    Link.EXPLORATION: "Exploration",
    Link.DATA_FRESHNESS: "Data freshness",
    Link.NUMERICS: "Numerics",
    Link.SYSTEMS: "Systems",
}
KINDS = {
    "online": "RL on sampled texts",
    "preference": "preference optimisation",
    "supervised": "supervised fine-tuning",
    "reward_model": "reward model",
    "distillation": "distillation on sampled texts",
    "classic_rl": "RL in an environment",
}
CONDITIONS = {
    "growth": ("Growth", "did post-tool tails grow beyond the noise of the run?"),
    "localised": ("Localised", "did they grow more than text-only tails?"),
    "lasting": ("Lasting", "are they still high in the late window?"),
    "material": ("Material", "is the tail large enough to matter for this pair?"),
}
PAIRS = {
    "policy/ref": "drift from the reference",
    "old/ref": "drift from the reference",
    "policy/rollout": "total off-policy ratio",
    "old/rollout": "mismatch of trainer and engine",
    "policy/old": "size of the update",
    "prox/ref": "drift from the reference",
    "policy/prox": "distance from the proximal policy",
    "prox/rollout": "lag of the proximal policy, and mismatch",
}
SIDES = {
    "policy": "the policy",
    "old": "the policy at the step's start",
    "rollout": "the inference engine",
    "ref": "the reference",
    "prox": "the proximal policy",
}
GUARDS = {
    "none": "none",
    "tis-2": "TIS, cap 2",
    "tis-5": "TIS, cap 5",
    "tis-10": "TIS, cap 10",
    "icepop-0.5-5": "IcePop, 0.5 to 5",
    "icepop-0.5-2": "IcePop, 0.5 to 2",
    "mis-2": "MIS, mask above 2",
    "mis-10": "MIS, mask above 10",
    "veto-1e-4": "veto, a token below 10⁻⁴",
    "sequence-0.5-2": "sequence mean, 0.5 to 2",
    "clip-x0.1": "clip range times 0.1",
    "clip-x0.5": "clip range times 0.5",
    "clip-x1.4": "clip range times 1.4",
    "opsm-0.005": "off-policy sequences with a negative advantage left out",
    "kl-x10": "KL weight times 10",
    "kl-x50": "KL weight times 50",
    "drop-errored": "episodes with failed calls left out",
    "one-schema": "one schema of tool output",
}
_SPELT: Final = frozenset({"acc", "clipfrac", "kl", "lr", "ppl", "tis"})  # names as logged that are no words
_NAMES: Final = re.compile(r"`([^`]+)`")
_LONG: Final = re.compile(r"\S{12,}")  # a word that a column on a phone may not hold
_JOINT: Final = re.compile(r"(?<=[/_])(?=\w)|(?<=[.=,(])(?=[^\W\d])")  # of a name of several parts
BREAK: Final = "\u200b"
BY = {
    "slice": "slice",
    "observations": "observations in the sequence",
    "tools": "tool use",
    "group": "prompt group",
    "rank": "rank",
    "env": "environment",
    "lag": "versions behind",
    "distance": "tokens since the observation",
    "turn": "observations before the token",
    "tool name": "tool of the last observation",
    "tool result": "result of the last tool",
    "top sequences": "sequences with most tail",
    "tail": "size of |r|",
    "outcome": "outcome of the episode",
}


def kind_name(kind: str) -> str:
    """Return what prose calls a kind of training."""
    return KINDS.get(kind, kind)


def status_word(verdict: RunVerdict) -> str:
    """Name the status; a run that some checks could judge is "partly judged", not "cannot say"."""
    covered = verdict.coverage
    if verdict.status is Status.CANNOT_SAY and covered is not None and covered.core and covered.judged:
        return PARTLY
    return STATUSES[verdict.status]


def slice_name(name: str) -> str:
    """Name a slice in prose; one we do not know keeps its own name."""
    return SLICES.get(name) or safe(name)


def metric_name(name: str) -> str:
    """Name a metric in prose."""
    return METRICS.get(name) or safe(name).replace("_", " ")


def pair_name(pair: str) -> str:
    """Name a pair of log-probabilities with the question that it answers."""
    return f"{safe(pair)} ({PAIRS[pair]})" if pair in PAIRS else safe(pair)


def sentence(text: str) -> str:
    """Write a clause as a sentence, with capital and full stop; identifiers at its head stay as they are."""
    text = safe(text).strip()
    head = text.split(" ", 1)[0].rstrip(",;:")
    if head.replace("-", "").isalpha() and head.islower() and head not in _SPELT:
        text = text[:1].upper() + text[1:]
    return text if not text or text[-1] in ".!?…" else text + "."


def runs(text: str) -> list[list[str]]:
    """Split text into prose and, every second one, names as logged; each in pieces that a line may end after."""
    return [_LONG.sub(lambda word: _JOINT.sub(BREAK, word[0]), part).split(BREAK) for part in _NAMES.split(text)]
