"""What the rules on evaluation share: the figures that have points enough, and why there are none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import Figure
from ptt.diagnostics.rules.interface import NotJudged, by_kind
from ptt.diagnostics.statistics.small_sample import MIN_POINTS
from ptt.diagnostics.wording import counted

ENABLE: Final = (
    "evaluate at fixed steps under one protocol, at least {times} times a run: TRL eval_strategy=steps "
    "with eval_steps; veRL trainer.test_freq; NeMo-RL grpo.val_period; slime --eval-interval"
)
GIVEN_ENABLE: Final = (
    "evaluate at fixed steps under one protocol, at least {times} times a run: in TRL "
    'eval_strategy="steps" with eval_steps'
)


def figures_with(minimum: int = MIN_POINTS) -> Callable[[Evidence], Sequence[Figure] | NotJudged]:
    """Read the figures that have `minimum` points."""

    def read(evidence: Evidence) -> Sequence[Figure] | NotJudged:
        figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
        points = [len(figure.series.finite()[0]) for figure in figures]
        judged = [figure for figure, count in zip(figures, points, strict=True) if count >= minimum]
        return judged or NotJudged(
            reason=f"evaluations have {counted(max(points), 'point(s)')}; {minimum} are needed"
            if figures
            else "no evaluation is logged",
            missing=("eval/reward",),
            enable=by_kind(evidence, sampled=ENABLE, given=GIVEN_ENABLE).format(times=minimum),
        )

    return read
