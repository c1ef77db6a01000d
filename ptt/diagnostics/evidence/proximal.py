"""The proximal policy that updates are held near to, told as what it is: an average that lags, or a recomputed one.

In decoupled PPO the ratio that is clipped is policy/prox, while prox/rollout weights the tokens for what the sampler
was behind. Under PPO-EWMA the proximal policy is a moving average of the policy's weights, so it lags on purpose.
Source: Hilton, Cobbe and Schulman, Batch size-invariance for policy optimization (arXiv 2110.00641).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tokens_by_step import PairSteps
from ptt.diagnostics.model import Agreement, AuditRow, JsonScalar
from ptt.diagnostics.wording import sig

QUANTITY: Final = "proximal policy"
DECAY: Final = "ewma_decay"
LATE: Final = 3  # the last third of the steps counts
COLUMN: Final = "prox_logp"


def ewma_lag(decay: float) -> float:
    """Return how many updates old the weights of a moving average are on average, after many updates.

    The policy of k updates ago has the weight (1 - decay) decay^k.
    """
    return decay / (1 - decay)


def proximal_row(
    pairs: Mapping[str, PairSteps], metrics: Mapping[str, Series], facts: Mapping[str, JsonScalar]
) -> AuditRow | None:
    """Say what the proximal policy is and how far it lags; None where nothing is recorded of one."""
    decay, logged = facts.get(DECAY), metrics.get("kl/prox")
    averaged = isinstance(decay, int | float) and not isinstance(decay, bool) and 0 < decay < 1
    said = []
    if averaged:
        lag = sig(ewma_lag(float(decay or 0.0)))
        said.append(f"a moving average of the policy with decay {decay:g}, {lag} updates behind on average")
    measured = [(name, _late(pairs[name].mean_abs)) for name in ("policy/prox", "prox/rollout") if name in pairs]
    for name, value in measured:
        beside = _late(pairs["policy/old"].mean_abs) if name == "policy/prox" and "policy/old" in pairs else 0.0
        times = f", {sig(value / beside)} times |policy/old|" if beside > 0 else ""
        said.append(f"mean |{name}| is {sig(value)} nats late{times}")
    level = None if logged is None else _late(logged)
    if level is not None:
        said.append(f"its logged KL is {sig(level)} late")
    if not said:
        return None
    return AuditRow(
        quantity=QUANTITY,
        agreement=Agreement.FACT,
        said="; ".join(said),
        logged_as=None if logged is None else logged.raw_name,
        formula="ewma" if averaged else None,
        logged=level,
        recomputed=measured[0][1] if measured else None,
        missing=() if measured else (COLUMN,),
    )


def _late(series: Series) -> float:
    values = series.finite()[1]
    return float(np.mean(values[-max(1, len(values) // LATE) :])) if len(values) else float("nan")
