"""Where a run stands in its data: prompts that come again after a new start, and prompts that nobody was trained on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.excursions import EPOCH, RESTART
from ptt.diagnostics.model import JsonScalar, Run
from ptt.diagnostics.statistics.arrays import IntArray

REPEATED: Final = 0.8  # of a step's recorded prompts, trained on as many steps before: another order or draw shares few
MIN_STEPS: Final = 3  # recorded steps in a row that repeat: one may be drawn twice
MIN_PROMPTS: Final = 2  # different prompts of a step
EDGE: Final = 2  # steps around the end of an epoch, after which prompts come again anyway
SKIPPED: Final = 0.1  # of the data, never trained on: the rest of a batch is less
PROMPTS_A_STEP: Final = ("num_prompts_per_step", "rollout_batch_size", "train_batch_size")


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Prompts of earlier steps that come again, in their order, from a new start on."""

    restart: int  # the last step before it
    last: int  # the last recorded step whose prompts come again
    earlier: int  # the step whose prompts come first
    share: float  # of the recorded prompts of these steps


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A pass through the data that ended before its prompts were trained on."""

    prompts: int  # of the data
    trained: int  # at most
    restarts: tuple[int, ...]  # the last step before each


@dataclass(frozen=True, kw_only=True)
class DataPosition:
    """None where there is none; `recorded`: whether enough is known to tell."""

    replay: Replay | None = None
    skipped: Skipped | None = None
    recorded: bool = False


def gather_position(
    trajectories: pl.DataFrame, run: Run, happened: Mapping[str, IntArray], settings: Mapping[str, JsonScalar]
) -> DataPosition | None:
    """Look for both; None where the run was never started again."""
    restarts = happened.get(RESTART)
    if restarts is None or not len(restarts):
        return None
    prompts = _prompts(trajectories)
    replay = None
    for restart in restarts.tolist():
        near = any(abs(int(step) - restart) <= EDGE for step in happened.get(EPOCH, ()))
        replay = replay or (None if near else _replayed(prompts, int(restart)))
    return DataPosition(
        replay=replay,
        skipped=_skipped(run, settings, prompts, tuple(restarts.tolist())),
        recorded=len(prompts) >= 2 * MIN_STEPS or "data_prompts" in run.context,
    )


def _prompts(trajectories: pl.DataFrame) -> dict[int, frozenset[str]]:
    """Return the prompts of each recorded step of training, by the hash of their text or the name of their task."""
    placed = trajectories.filter(pl.col("step").is_not_null() & (pl.col("split") != "eval"))
    group = pl.col("group_id")
    of_step = group.str.starts_with(pl.concat_str(pl.col("step").cast(pl.String), pl.lit("/")))  # numbered anew at each
    named = pl.coalesce(pl.col("prompt_hash").cast(pl.String), "task", pl.when(~of_step).then(group))
    rows = placed.select("step", prompt=named).drop_nulls().unique().sort("step")
    found = rows.group_by("step", maintain_order=True).agg("prompt")
    return {step: frozenset(prompts) for step, prompts in found.iter_rows() if len(prompts) >= MIN_PROMPTS}


def _replayed(prompts: Mapping[int, frozenset[str]], restart: int) -> Replay | None:
    """Return what comes again from a new start on, a constant number of steps later; None where nothing does so.

    That the data come again with this distance before the new start, too, is an epoch.
    """
    seen = {prompt: step for step, held in prompts.items() if step <= restart for prompt in held}
    after = [step for step in prompts if step > restart]
    lags = Counter(step - seen[prompt] for step in after[:MIN_STEPS] for prompt in prompts[step] if prompt in seen)
    if not lags:
        return None
    lag = lags.most_common(1)[0][0]
    run = 0
    while run < len(after) and _common(prompts, after[run], lag) >= REPEATED:
        run += 1
    before = [step for step in prompts if step <= restart and step - lag in prompts]
    if run < MIN_STEPS or (before and _mean(_common(prompts, step, lag) for step in before) >= REPEATED):
        return None
    share = _mean(_common(prompts, step, lag) for step in after[:run])
    return Replay(restart=restart, last=after[run - 1], earlier=after[0] - lag, share=share)


def _common(prompts: Mapping[int, frozenset[str]], step: int, lag: int) -> float:
    """Return the share of a step's prompts that were those of the step so many before, or of its neighbours."""
    earlier = frozenset[str]().union(*(prompts.get(step - lag + beside, frozenset()) for beside in (-1, 0, 1)))
    return len(prompts[step] & earlier) / len(prompts[step])


def _mean(shares: Iterable[float]) -> float:
    held = list(shares)
    return sum(held) / len(held) if held else 0.0


def _skipped(
    run: Run, settings: Mapping[str, JsonScalar], prompts: Mapping[int, frozenset[str]], restarts: tuple[int, ...]
) -> Skipped | None:
    """Return a single pass through the data that ended early, where each step trains on as many prompts as are asked.

    Prompts that are filtered before training leave no such count.
    """
    held, steps = run.context.get("data_prompts"), run.context.get("data_exhausted_after_steps")
    if not isinstance(held, int) or not isinstance(steps, int) or run.context.get("data_exhausted") != 1:
        return None
    written = (
        value
        for name in PROMPTS_A_STEP
        for key, value in settings.items()
        if key.split(".")[-1] == name or key.replace(".", "_") == name
    )
    asked = next((value for value in written if isinstance(value, int) and not isinstance(value, bool)), None)
    sizes = {len(step) for step in prompts.values()}
    asked = sizes.pop() if asked is None and len(sizes) == 1 else asked
    if asked is None or not 0 < asked * steps <= (1 - SKIPPED) * held:
        return None
    return Skipped(prompts=held, trained=asked * steps, restarts=restarts)
