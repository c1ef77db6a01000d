"""What was judged of a run, and how small a fault it could have seen: nobody is called healthy for want of data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.algorithm import Family
from ptt.diagnostics.evidence.baseline_shift import (
    MAX_LOG,
    MIN_VALUES,
    Z_POWER,
    detectable_fall,
    detectable_shift,
    window_mean_noise,
)
from ptt.diagnostics.evidence.series import MIN_LOGGED, Series
from ptt.diagnostics.model import (
    CUSTOM,
    Answer,
    Broken,
    CoreQuestion,
    Coverage,
    Healthy,
    NotJudged,
    RuleVerdict,
    SeriesOutcome,
    Signature,
)
from ptt.diagnostics.rules import LIMITS, tool_tail_growth
from ptt.diagnostics.rules.critic import MIN_LOSS
from ptt.diagnostics.rules.numerics.loss_divergence import MARGIN, is_fitted
from ptt.diagnostics.rules.policy_update.kl_over_target import CRITICAL_FACTOR, limit_in_force, tokens_per_value
from ptt.diagnostics.rules.post_training import BLOCKS, late_half, level_of, pair_series, start_of
from ptt.diagnostics.rules.post_training import MIN_VALUES as MIN_PAIR_VALUES
from ptt.diagnostics.rules.post_training.at_chance import CHANCE
from ptt.diagnostics.rules.post_training.likelihood_falls import MIN_FALL
from ptt.diagnostics.rules.post_training.overfitting import MIN_EVALUATIONS, MIN_RISE, loss_path
from ptt.diagnostics.rules.post_training.overfitting import Z_LIMIT as EVALUATION_Z
from ptt.diagnostics.rules.single_series import derived, logarithms, more_rows
from ptt.diagnostics.verdict.green_light import BY_HEART, LEARNT, WORSE, blocked_by, left_level, memorised, not_learnt
from ptt.diagnostics.wording import joined, sig

MAX_HIDDEN_FACTOR: Final = 4.0
"""Times its level: noise that hides a rise of a loss so large hides all that matters of it."""
Size = Callable[[Series, Evidence, Mapping[str, float]], float | None]
"""The smallest change of a series that its rule would report, with the rule's limits; None where none would be."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to answer a core question: what is looked at, the rule that looks, and what it would have reported."""

    subject: str  # as a sentence calls it
    metric: str
    rule: str
    change: str  # up to its size
    size: Size
    unit: str = ""
    to_reference: bool = False  # whether only tails against the reference answer it


@dataclass(frozen=True, kw_only=True)
class Core:
    """A core question, and the ways to answer it, the best first; one of them is enough."""

    question: str
    ways: tuple[Way, ...]


def _reward_fall(series: Series, _: Evidence, limits: Mapping[str, float]) -> float | None:
    """Measure the fall from the best window: past a share of its level, and past the noise of a window."""
    noise = _within_range(detectable_fall(series), series)
    if noise is None:
        return None
    best, share = float(np.nanmax(series.rolling()[1])), limits["fell"]
    return max(share * best if best > 0 else -share / (1 - share) * best, noise)


def _within_range(noise: float | None, series: Series) -> float | None:
    """Return a change that noise does not hide; None where that is more than all that the series ever did."""
    return noise if noise is not None and noise <= np.ptp(series.finite()[1]) else None


def _kl_level(series: Series, evidence: Evidence, limits: Mapping[str, float]) -> float | None:
    tokens = tokens_per_value(evidence, series)
    values = series.finite()[1]
    if not isinstance(tokens, float) or len(values) < MIN_LOGGED:
        return None
    limit = limit_in_force(evidence, limits)[0] * tokens
    noise = window_mean_noise(values, series.width)
    level = limit + (Z_POWER * noise if math.isfinite(noise) else 0.0)
    return level if level <= CRITICAL_FACTOR * limit else None


def _loss_rise(series: Series, evidence: Evidence, limits: Mapping[str, float]) -> float | None:
    values = series.finite()[1]
    if len(values) < MIN_VALUES:
        return None
    if is_fitted(evidence, series):
        best = float(np.nanmin(series.rolling()[1]))
        return _rise(series, best, max((limits["times_best"] - 1) * best, MARGIN), hidden=MAX_HIDDEN_FACTOR)
    sizes = derived(series, series.finite()[0], np.abs(values))
    early = float(np.median(sizes.values[: series.width]))
    least = max((limits["times_online"] - 1) * early, limits["least_online"] - early)
    return _rise(sizes, early, least, hidden=limits["times_online"])


def _rise(series: Series, level: float, least: float, *, hidden: float) -> float | None:
    """Measure the rise above a level that a rule which asks for `least` would report, of logarithms where it can be.

    None where noise hides a rise to `hidden` times the level: then nothing that matters could have been seen.
    """
    values = series.finite()[1]
    if values.min() <= 0 or level <= 0:
        return detectable_shift(series, least=least) if _within_range(detectable_shift(series), series) else None
    logs = logarithms(series)
    noise, factor = detectable_shift(logs), detectable_shift(logs, least=math.log1p(least / level))
    if noise is None or factor is None or noise > math.log(hidden):
        return None
    return level * math.expm1(min(factor, MAX_LOG))


def _value_loss_rise(series: Series, _: Evidence, limits: Mapping[str, float]) -> float | None:
    values = series.finite()[1]
    if len(values) < MIN_VALUES:
        return None
    early = float(np.median(values[: series.width]))
    least = max((limits["times_early"] - 1) * early, MIN_LOSS - early)
    return _rise(series, early, least, hidden=MAX_HIDDEN_FACTOR)


def _entropy_floor(series: Series, _: Evidence, limits: Mapping[str, float]) -> float | None:
    values = series.finite()[1]
    if len(values) < MIN_LOGGED:
        return None
    return min(limits["floor"], limits["left_of_early"] * float(values[: series.width].mean()))


def _spike(_: Series, __: Evidence, limits: Mapping[str, float]) -> float | None:
    return limits["times_median"]


def _vanishing(_: Series, __: Evidence, limits: Mapping[str, float]) -> float | None:
    return limits["left"]


def _ranking(series: Series, _: Evidence, __: Mapping[str, float]) -> float | None:
    values = late_half(series)
    if len(values) < BLOCKS:
        return None
    level = level_of(values)
    return CHANCE + level.mean - level.low


def _margin_fall(series: Series, _: Evidence, limits: Mapping[str, float]) -> float | None:
    values = series.finite()[1]
    best = float(np.nanmax(series.rolling()[1])) if len(values) >= MIN_PAIR_VALUES else 0.0
    return (1 - limits["left"]) * best if best > 0 else None


def _logp_fall(series: Series, _: Evidence, limits: Mapping[str, float]) -> float | None:
    if len(series.finite()[1]) < MIN_PAIR_VALUES:
        return None
    return max(MIN_FALL, (limits["times"] - 1) * abs(start_of(series)))


def _evaluation_rise(series: Series, _: Evidence, limits: Mapping[str, float]) -> float | None:
    if len(series.finite()[1]) < MIN_EVALUATIONS:
        return None
    path = loss_path(series, limits["rise"])
    return max(limits["rise"] * abs(path.best), EVALUATION_Z * path.noise, MIN_RISE)


def _tail(_: Series, __: Evidence, limits: Mapping[str, float]) -> float | None:
    return limits["material_p99"]


MAY_STAND: Final = frozenset({"dpo/accuracy"})  # all pairs may be ranked rightly from the first step on
TAILS: Final = "tails"
"""Stands for a metric where recorded tokens are what is looked at."""
REWARD: Final = Way(
    subject="reward", metric="reward/mean", rule="reward-fell", change="a fall of the reward by", size=_reward_fall
)
KL: Final = Way(
    subject="KL to the reference", metric="kl/ref", rule="kl-over-target", change="a mean KL above", unit="nats",
    size=_kl_level,
)  # fmt: skip
TOKEN_TAILS: Final = Way(
    subject="token tails", metric=TAILS, rule=tool_tail_growth.ID, change="a growing post-tool p99 of |r| above",
    unit="nats", size=_tail,
)  # fmt: skip
REFERENCE_TAILS: Final = replace(TOKEN_TAILS, to_reference=True)
LOSS: Final = Way(
    subject="loss", metric="loss/total", rule="loss-divergence", change="a rise of the loss by", size=_loss_rise
)
POLICY_LOSS: Final = Way(
    subject="loss", metric="loss/policy", rule="loss-divergence", change="a rise of the policy loss by", size=_loss_rise
)
GRADIENTS: Final = Way(
    subject="gradients", metric="grad_norm", rule="gradient-spikes", change="jumps of the gradient norm to",
    unit="times its usual level", size=_spike,
)  # fmt: skip
FEW_GRADIENTS: Final = Way(
    subject="gradients", metric="grad_norm", rule="gradient-vanished", change="a fall of the gradient norm to",
    unit="times its first level", size=_vanishing,
)  # fmt: skip
ENTROPY: Final = Way(
    subject="entropy", metric="entropy", rule="entropy-collapse", change="an entropy below", unit="nats",
    size=_entropy_floor,
)  # fmt: skip
VALUE_LOSS: Final = Way(
    subject="value loss", metric="critic/value_loss", rule="value-loss-rising", change="a rise of the value loss by",
    size=_value_loss_rise,
)  # fmt: skip
ACCURACY: Final = Way(
    subject="accuracy", metric="dpo/accuracy", rule="at-chance", change="a share of correctly ranked pairs below",
    size=_ranking,
)  # fmt: skip
MARGINS: Final = Way(
    subject="margins", metric="dpo/margin", rule="margin-collapse", change="a fall of the margin by", size=_margin_fall
)
LOGPS: Final = Way(
    subject="log-probabilities", metric="dpo/logp_chosen", rule="likelihood-falls",
    change="a fall of the chosen answers' log-probability by", unit="nats", size=_logp_fall,
)  # fmt: skip
EVALUATION: Final = Way(
    subject="evaluation", metric="eval/loss", rule="overfitting", change="a rise of the evaluation loss by",
    size=_evaluation_rise,
)  # fmt: skip

LOSS_CORE: Final = Core(question="loss", ways=(LOSS,))
GRADIENT_CORE: Final = Core(question="gradient norm", ways=(GRADIENTS, FEW_GRADIENTS))
CRITIC_CORE: Final = Core(question="value loss", ways=(VALUE_LOSS,))
SAMPLED_CORE: Final = (
    Core(question="reward", ways=(REWARD,)),
    Core(question="distance from the reference", ways=(KL, REFERENCE_TAILS)),
    Core(question="loss or gradient norm", ways=(GRADIENTS, LOSS, POLICY_LOSS, FEW_GRADIENTS)),
    Core(question="entropy or token tails", ways=(ENTROPY, TOKEN_TAILS)),
)
GIVEN_CORE: Final = (
    LOSS_CORE,
    Core(question="gradient norm or evaluation", ways=(GRADIENTS, FEW_GRADIENTS, EVALUATION)),
)
CORE: Final[Mapping[Family | None, tuple[Core, ...]]] = {
    Family.ONLINE: SAMPLED_CORE,
    Family.SUPERVISED: GIVEN_CORE,
    Family.PREFERENCE: (
        LOSS_CORE,
        Core(question="accuracy, margins or log-probabilities of the pairs", ways=(ACCURACY, MARGINS, LOGPS)),
        GRADIENT_CORE,
    ),
    Family.DISTILLATION: SAMPLED_CORE[2:],  # no reward, and the teacher is what the policy is held to
    Family.CLASSIC_RL: (SAMPLED_CORE[0], SAMPLED_CORE[2]),
    Family.REWARD_MODEL: (LOSS_CORE, Core(question="accuracy of the ranking", ways=(ACCURACY, MARGINS))),
    None: GIVEN_CORE,
}
"""What must have been judged of each kind of training before it is called healthy."""
UNRECORDED: Final = "not recorded"
UNRECOGNISED: Final = "not found under a known name"  # of a run that logs names which no rule reads
MAP_NAME: Final = "if it is logged under another name, map it in [metrics]: `ptt sources RUN` lists the names"
CONSTANT: Final = "it never moved"
HIDDEN: Final = "too noisy to show a change that matters"
KIND: Final = "kind of training"
UNKNOWN_KIND: Final = CoreQuestion(
    question=KIND, judged=False, rows=0, why="no file says what kind of training this is"
)


FEW: Final = 2 * MIN_VALUES  # values: of fewer, most rules would not see a change in the middle of the run
MAX_SHOWN: Final = 2  # of what would have shown: the rest stands beside the verdict
NAME_KIND: Final = "log the algorithm with the settings of the run: algorithm = sft, dpo, grpo, ..."


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the headline needs to know of what was judged."""

    coverage: Coverage
    subjects: tuple[str, ...]  # of the core questions that were judged, as a sentence names them
    enable: tuple[str, ...]  # what would have the others judged
    family: Family | None
    tails: str  # judged | not recorded | no tools | undecided | not asked
    contradicted: frozenset[str] = frozenset()  # core questions whose single values moved by more than would have shown


def what_was_seen(evidence: Evidence, verdicts: Sequence[RuleVerdict], signature: Signature) -> Seen:
    """Return how much of a run was judged, and how small a fault its core questions could have seen."""
    answered = {verdict.id for verdict in verdicts if isinstance(verdict, Healthy)}
    answered |= {finding.id for verdict in verdicts if isinstance(verdict, Broken) for finding in verdict.findings}
    unanswered = {verdict.id: verdict for verdict in verdicts if isinstance(verdict, NotJudged)}
    built_in = [name for name in answered if not name.startswith(CUSTOM)]
    asked = [verdict for verdict in unanswered.values() if verdict.applies and not verdict.id.startswith(CUSTOM)]
    of_signature = unanswered.get(tool_tail_growth.ID)
    looks = _Looks(evidence, signature, frozenset(answered), unanswered)
    family = evidence.algorithm.family
    core = (*CORE[family], CRITIC_CORE) if evidence.algorithm.critic else CORE[family]
    questions = [looks.question(entry) for entry in core]
    if not (evidence.metrics or evidence.pairs or evidence.eval_loss):
        questions = []  # of what holds no training at all, no question is open
    elif family is None:
        questions.append(UNKNOWN_KIND)
    told = {str(found.evidence.get("metric")) for one in verdicts if isinstance(one, Broken) for found in one.findings}
    described = evidence.described
    dipped = left_level(evidence.long_dip, evidence.metrics.get("reward/mean"))
    open_ = (blocked_by(described, told), dipped, not_learnt(described, family), memorised(described, family))
    questions += [question for question in open_ if question is not None and questions]
    enable = [
        line
        for entry, question in zip(core, questions, strict=False)
        if not question.judged and (line := looks.enable(entry))
    ]
    return Seen(
        coverage=Coverage(judged=len(built_in), asked=len(built_in) + len(asked), core=tuple(questions)),
        subjects=tuple(
            dict.fromkeys(way.subject for entry in core for way in entry.ways if looks.size(way) is not None)
        ),
        family=family,
        enable=(*enable, *((NAME_KIND,) if family is None else ())),
        tails=_tails(evidence, signature, applies=of_signature is None or of_signature.applies),
        contradicted=frozenset(one.question for one in questions if _lies_below_best(one, described)),
    )


def _lies_below_best(question: CoreQuestion, described: Sequence[SeriesOutcome]) -> bool:
    """Return whether single values fell by more than would have shown of their means: that reads as a contradiction."""
    series = next((one for one in described if one.logged_as == question.metric), None)
    if series is None or series.best is None or series.last is None or question.detectable is None:
        return False
    return abs(series.best - series.last) >= question.detectable


def _tails(evidence: Evidence, signature: Signature, *, applies: bool) -> str:
    if not applies:
        return "not asked"
    if signature.status is not Answer.CANNOT_SAY:
        return "judged"
    if evidence.tails is None:
        return "not recorded"
    return "undecided" if evidence.tails.post.window_tokens.sum() else "no tools"


@dataclass(frozen=True)
class _Looks:
    """Looks up how a run answers each way."""

    evidence: Evidence
    signature: Signature
    answered: frozenset[str]
    unanswered: Mapping[str, NotJudged]

    def series(self, way: Way) -> Series | None:
        """Return what a way looks at, or None where it was not logged."""
        if way.metric == "eval/loss":
            return self.evidence.eval_loss
        if way.metric == TAILS:
            name = self.signature.pair or ""
            pair = self.evidence.pairs.get(name) if name.endswith("/ref") or not way.to_reference else None
            return pair.p99 if pair is not None else None
        if way.metric.startswith("dpo/"):
            found = pair_series(self.evidence, way.metric, what=way.subject, minimum=1)
            return found if isinstance(found, Series) else None
        return self.evidence.metrics.get(way.metric)

    def size(self, way: Way) -> float | None:
        """Return the smallest change that would have been reported; None where the way was not judged."""
        series = self.series(way)
        if way.rule not in self.answered or series is None:
            return None
        if way.metric not in MAY_STAND and not _moves(series):
            return None
        size = way.size(series, self.evidence, {**LIMITS[way.rule], **self.evidence.limits.get(way.rule, {})})
        return size if size is not None and math.isfinite(size) else None

    def question(self, core: Core) -> CoreQuestion:
        """Return the answer to a core question by its best way, or why there is none."""
        for way in core.ways:
            if (size := self.size(way)) is not None:
                series = self.series(way)
                return CoreQuestion(
                    question=core.question,
                    judged=True,
                    rows=_rows(series),
                    metric=None if series is None else series.raw_name,
                    change=way.change,
                    detectable=size,
                    unit=way.unit,
                )
        logged = [(way, series) for way in core.ways if (series := self.series(way)) is not None and _rows(series)]
        if not logged:
            why = UNRECOGNISED if self.evidence.other else UNRECORDED
            return CoreQuestion(question=core.question, judged=False, rows=0, why=why)
        way, series = max(logged, key=lambda entry: _rows(entry[1]))
        verdict = self.unanswered.get(way.rule)
        why = HIDDEN if _moves(series) else CONSTANT
        why = verdict.reason if verdict is not None and verdict.applies else why
        return CoreQuestion(question=core.question, judged=False, rows=_rows(series), metric=series.raw_name, why=why)

    def enable(self, core: Core) -> str:
        """Return the line that would have a core question judged."""
        logged = [series for way in core.ways if (series := self.series(way)) is not None and _rows(series)]
        if logged:
            return more_rows(self.evidence, max(logged, key=_rows))
        lines = (self.unanswered[way.rule].enable for way in core.ways if way.rule in self.unanswered)
        line = next((line for line in lines if line), "")
        return "; ".join(filter(None, (line, MAP_NAME))) if self.evidence.other else line


def _moves(series: Series) -> bool:
    """Return whether a series has two values that differ: what never moved is a constant, and nobody watched it."""
    values = series.finite()[1]
    return bool(len(values)) and float(np.ptp(values)) > 0.0


def _rows(series: Series | None) -> int:
    return 0 if series is None else series.count - int(np.count_nonzero(~np.isfinite(series.values)))


def healthy_headline(seen: Seen, checks: int, reason: str) -> str:
    """Say that nothing was found, in what, and what of token tails could not be looked at; `reason` says why not."""
    tails = {"not recorded": "; tails after tool calls were not recorded", "no tools": f"; {reason}"}.get(
        seen.tails, ""
    )
    return f"No fault seen in {_checks(checks)} of {joined(seen.subjects)}{tails}."


OF_GOAL: Final = (LEARNT, BY_HEART)
MAX_GAPS: Final = 2  # named in a headline: the rest stands below it, with every change that would have shown


def partly_headline(seen: Seen, checks: int) -> str:
    """Say that nothing was found, in what, and what could not be judged; a series that got worse comes first."""
    if worse := next((question for question in seen.coverage.core if question.question == WORSE), None):
        return f"{worse.why[:1].upper()}{worse.why[1:]}, and no rule judges that; no other fault seen."
    open_ = [question for question in seen.coverage.core if not question.judged and question.question not in OF_GOAL]
    learnt = [f"{one.question} ({one.why})" for one in seen.coverage.core if one.question in OF_GOAL]
    parts = learnt if seen.coverage.core else ["no training metric was read"]
    for why in (UNRECORDED, UNRECOGNISED):
        gaps = [question.question for question in open_ if question.why == why]
        parts += [f"{joined(gaps)} {why}"] if gaps else []
    parts += _few([question for question in open_ if 0 < question.rows < FEW])
    parts += [f"{question.question}: {question.why}" for question in open_ if question.rows >= FEW]
    parts += [question.why for question in open_ if question.question == KIND]
    more = len(parts) - MAX_GAPS
    parts = [*parts[:MAX_GAPS], *([f"{more} more gaps" if more > 1 else parts[MAX_GAPS]] if more > 0 else [])]
    shown = [would_show(one) for one in seen.coverage.core if one.judged and one.question not in seen.contradicted]
    power = f" ({shown[0]} would have shown)" if shown else ""
    of = f" of {joined(seen.subjects)}" if seen.subjects else ""
    return f"No fault seen in {_checks(checks)}{of}{power}; not judged: {'; '.join(parts)}."


def _few(short: Sequence[CoreQuestion]) -> list[str]:
    """Say of how few values: once where several questions have as many."""
    by_rows: dict[int, list[str]] = {}
    for question in short:
        by_rows.setdefault(question.rows, []).append(question.question)
    return [
        f"only {rows} {'row' if rows == 1 else 'rows'}"
        if len(names) > 1
        else f"only {rows} {'value' if rows == 1 else 'values'} of {names[0]}"
        for rows, names in sorted(by_rows.items())
    ]


def would_show(question: CoreQuestion) -> str:
    """Name the smallest change that would have shown."""
    if question.detectable is None:
        return ""
    return " ".join(filter(None, (question.change, sig(question.detectable), question.unit)))


def _checks(count: int) -> str:
    return f"{count} check" if count == 1 else f"{count} checks"
