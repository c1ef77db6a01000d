"""What the rules on evaluation share: the figures that have points enough, and why there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import EvalMetric
from ptt.diagnostics.rules.interface import NotJudged, by_kind
from ptt.diagnostics.statistics.small_sample import MIN_POINTS
from ptt.diagnostics.wording import counted

MAX_NAMED: Final = 2  # of the metrics logged instead
NO_EVALUATION: Final = "no evaluation is logged"
ENABLE: Final = (
    "evaluate at fixed steps under one protocol, at least {times} times a run: TRL eval_strategy=steps "
    "with eval_steps; veRL trainer.test_freq; NeMo-RL grpo.val_period; slime --eval-interval"
)
GIVEN_ENABLE: Final = (
    "evaluate at fixed steps under one protocol, at least {times} times a run: in TRL "
    'eval_strategy="steps" with eval_steps'
)


def _without_score(evidence: Evidence) -> str:
    """Say that no figure tells how good the policy is, and what is logged of evaluations instead."""
    logged = evidence.evaluation.logged if evidence.evaluation is not None else ()
    if not logged:
        return NO_EVALUATION
    loss = [] if evidence.eval_loss is None else [evidence.eval_loss.raw_name]
    first = [*loss, *(name for name in logged if name not in loss)][:MAX_NAMED]
    more = f" and {len(logged) - len(first)} more" if len(logged) > len(first) else ""
    return f"no score or reward of an evaluation is logged, only {', '.join(first)}{more}"


def figures_with(minimum: int = MIN_POINTS) -> Callable[[Evidence], Sequence[EvalMetric] | NotJudged]:
    """Read the figures that have `minimum` points."""

    def read(evidence: Evidence) -> Sequence[EvalMetric] | NotJudged:
        figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
        points = [len(metric.series.finite()[0]) for metric in figures]
        judged = [metric for metric, count in zip(figures, points, strict=True) if count >= minimum]
        return judged or NotJudged(
            reason=f"evaluations have {counted(max(points), 'point(s)')}; {minimum} are needed"
            if figures
            else _without_score(evidence),
            missing=("eval/reward",),
            enable=by_kind(evidence, sampled=ENABLE, given=GIVEN_ENABLE).format(times=minimum),
            absent=not figures,
        )

    return read
