"""Gives what a run's trainer logs, and writes both as recorders and TRL do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.midrun.run import BoolArray, FloatArray, IntArray, Run, Single

TOKEN_COLUMNS: Final = ("policy_logp", "old_logp", "rollout_logp", "ref_logp", "entropy")
INNER_NOISE: Final = 0.01  # of a logged KL: micro-batches of unequal length
SPREAD: Final = 0.12  # of a KL at steps that were not recorded


def k3(policy: Single, reference: Single) -> FloatArray:
    """Give the estimator of KL(policy, reference) that trainers log, by token."""
    r = policy.astype(np.float64) - reference
    return np.asarray(np.exp(np.clip(-r, None, 60)) - 1 + r)


def by_place(values: FloatArray, place: IntArray, count: int) -> FloatArray:
    """Give the mean of finite values by recorded step."""
    known = np.isfinite(values)
    total = np.bincount(place[known], values[known], minlength=count)
    return np.asarray(total / np.maximum(1, np.bincount(place[known], minlength=count)))


def figures(run: Run, mask: BoolArray) -> dict[str, FloatArray]:
    """Give what the trainer computes from the tokens that it takes for sampled, by recorded step."""
    place = run.token_place[mask]
    columns = {name: run.tokens[name][mask] for name in ("policy_logp", "ref_logp", "entropy")}
    return {
        "kl": by_place(k3(columns["policy_logp"], columns["ref_logp"]), place, run.count),
        "entropy": by_place(columns["entropy"].astype(np.float64), place, run.count),
    }


def whole(run: Run) -> dict[str, FloatArray]:
    """Give all that is logged of a run as it is, by recorded step."""
    rewards, count = run.reward, run.count
    group = run.place * 10_000 + np.arange(len(run.place)) // run.plan.group_size
    spread = np.array([rewards[group == one].std() for one in np.unique(group)])
    places = np.unique(group) // 10_000
    calls = np.array([len(names) for names in run.rows["tool_names"]], float)
    failed = np.array([sum(own) for own in run.rows["tool_failed"]], float)
    length = np.bincount(run.row[run.sampled], minlength=len(run.place)).astype(float)
    called = by_place(calls, run.place, count)
    return figures(run, run.sampled) | {
        "reward": by_place(rewards, run.place, count),
        "reward_std": by_place(spread, places, count),
        "frac_reward_zero_std": by_place((spread < 1e-6).astype(float), places, count),
        "rewards/correct/mean": by_place((rewards >= 1).astype(float), run.place, count),
        "tools/call_frequency": called,
        "tools/failure_frequency": by_place(failed, run.place, count) / np.maximum(called, 1e-9),
        "completions/mean_length": by_place(length, run.place, count),
    }


def log_of(run: Run) -> list[dict[str, Any]]:
    """Give a log of every step: exact where it was recorded, near its neighbours elsewhere."""
    g = np.random.default_rng([*run.plan.seed, 5])
    steps = np.arange(run.plan.steps[0], run.plan.steps[-1] + 1)
    kept, u = np.isin(steps, run.plan.steps), np.linspace(0, 1, len(steps))
    series = {name: np.interp(steps, run.plan.steps, values) for name, values in run.logged.items()}
    spread = np.where(kept, INNER_NOISE, SPREAD)
    series["kl"] = series["kl"] * np.exp(spread * g.normal(size=len(steps)))
    series["loss"] = 0.02 * g.normal(size=len(steps)) + 0.04 * series["kl"]
    series["grad_norm"] = g.uniform(0.1, 0.8) * np.exp(0.25 * g.normal(size=len(steps)) - 0.3 * u)
    rate = run.plan.rate
    if rate is None:
        rate = g.choice([1e-6, 5e-6, 2e-5]) * (1 - g.choice([0.0, 0.9]) * np.linspace(0, 1, run.count))
    series["learning_rate"] = np.interp(steps, run.plan.steps, rate)
    series["num_tokens"] = np.cumsum(series["completions/mean_length"] * 16 + 900).round()
    if not run.plan.kl_logged:
        del series["kl"]
    return [
        {"step": int(step)} | {name: float(own[at]) for name, own in series.items()} for at, step in enumerate(steps)
    ]


def write(run: Run, folder: Path) -> Path:
    """Write a run: one file of tokens a recorded step, and the trainer's log."""
    (folder / "tokens").mkdir(parents=True)
    table, ends = _table(run), np.searchsorted(run.place, np.arange(run.count + 1))
    for at, step in enumerate(run.plan.steps):
        part = table.slice(ends[at], ends[at + 1] - ends[at])
        if len(part):
            pq.write_table(part, folder / "tokens" / f"step_{step:06d}.parquet", compression="zstd")
    log = log_of(run)
    if run.plan.log_form == "metrics":
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    else:
        state = {"global_step": log[-1]["step"], "max_steps": log[-1]["step"], "log_history": log}
        (folder / "trainer_state.json").write_text(json.dumps(state))
    return folder


def _table(run: Run) -> pa.Table:
    offsets = pa.array(np.append(np.searchsorted(run.row, np.arange(len(run.place))), len(run.row)), pa.int32())

    def lists(values: pa.Array) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, values)

    wanted, told = run.plan.columns, {"temperature", "top_p", "logp_kind"}
    table = {"step": pa.array(run.plan.steps[run.place], pa.int64()), "model_mask": lists(pa.array(run.mask))}
    for name, values in run.rows.items():
        if name in wanted | told | {"sample_id"}:
            table[name] = pa.array(values)
    if "token_ids" in wanted:
        table["token_ids"] = lists(pa.array(run.ids, pa.int32()))
    for name in TOKEN_COLUMNS:
        if name in wanted:
            column = run.tokens[name]
            table[name] = lists(pa.array(column, pa.float32(), mask=np.isnan(column)))
    return pa.table(table)
