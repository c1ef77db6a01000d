"""What the rules on evaluation share: the figures that have points enough, and why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import Figure
from ptt.diagnostics.rules.interface import NotJudged
from ptt.diagnostics.statistics.small_sample import MIN_POINTS

ENABLE: Final = (
    "evaluate at fixed steps under one protocol, six times a run at least: TRL eval_strategy=steps with eval_steps;"
    " veRL trainer.test_freq; NeMo-RL grpo.val_period; slime --eval-interval"
)


def figures_of(evidence: Evidence, least: int = MIN_POINTS) -> Sequence[Figure] | NotJudged:
    """Give the figures with `least` points, or why there are none."""
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    enough = [one for one in figures if len(one.series.finite()[0]) >= least]
    if enough:
        return enough
    most = max((len(one.series.finite()[0]) for one in figures), default=0)
    reason = f"evaluations have {most} point(s); {least} are needed" if figures else "no evaluation is logged"
    return NotJudged(reason=reason, missing=("eval/reward",), enable=ENABLE)
