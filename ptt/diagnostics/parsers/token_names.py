"""Batches of named arrays, one row a sequence, by the names that TRL, veRL and recorders give them."""

from __future__ import annotations

from typing import Final

import numpy as np

from ptt.diagnostics.inert import Plain
from ptt.diagnostics.parsers.token_rows import Array, Sample, identifier, integer, number

# Ours, and what others call it; the first that is there counts.
LISTS: Final = {
    "token_ids": ("token_ids", "completion_ids", "responses"),
    "policy_logp": ("policy_logp", "per_token_logps", "log_probs"),
    "old_logp": ("old_logp", "old_per_token_logps", "old_log_probs"),
    "rollout_logp": ("rollout_logp", "sampling_per_token_logps", "rollout_log_probs"),
    "ref_logp": ("ref_logp", "ref_per_token_logps", "ref_log_prob", "ref_log_probs"),
    "entropy": ("entropy", "entropies", "entropys"),
    "advantage": ("advantage", "advantages"),
    "train_mask": ("train_mask",),
}
REWARDS: Final = ("reward", "rewards")
TOKEN_REWARDS: Final = ("rm_scores", "token_level_scores", "token_level_rewards")  # sums: the score is on one token
GROUPS: Final = ("group_id", "prompt_id")
MASKS: Final = ("model_mask", "completion_mask", "response_mask")
LOGPS: Final = tuple(name for ours in ("policy_logp", "old_logp", "rollout_logp", "ref_logp") for name in LISTS[ours])
Batch = dict[str, Plain]
"""A two-dimensional array or a list of arrays for what is told token by token, else one entry a sequence."""


def samples_of(batch: Batch, step: int | None) -> list[Sample] | None:
    """Return one sample a row; None if no mask tells how many there are."""
    masks = _masks(batch)
    if masks is None:
        return None
    keep, model = masks
    singles = _singles(batch, len(keep))
    lists = {ours: _rows(_first(batch, theirs), keep) for ours, theirs in LISTS.items()}
    scores = _rows(_first(batch, TOKEN_REWARDS), keep)
    samples: list[Sample] = []
    for at in range(len(keep)):
        row: Sample = {"step": step, **{name: values[at] for name, values in singles.items()}}
        row |= {name: rows[at] for name, rows in lists.items() if rows is not None}
        row["model_mask"] = model[at]
        score = scores[at] if scores is not None else None
        if row.get("reward") is None and isinstance(score, np.ndarray):
            row["reward"] = float(score.sum())
        samples.append(row)
    return samples


def _masks(batch: Batch) -> tuple[list[Array], list[Array]] | None:
    """Return, a row, which positions hold the response, and which tokens of it the policy sampled."""
    mask = _split(_first(batch, MASKS))
    if mask is None:
        return None
    tools = _split(batch.get("tool_mask"))  # TRL: filled up with 1, so it counts only where there is a completion
    inside = _split(batch.get("attention_mask"))  # veRL: of prompt and response; the mask is 0 on tools and padding
    keep: list[Array] = []
    model: list[Array] = []
    for at, row in enumerate(mask):
        sampled = row != 0
        whole = inside[at] if inside is not None and at < len(inside) and len(inside[at]) >= len(row) else None
        present = sampled if whole is None else whole[len(whole) - len(row) :] != 0
        positions = np.arange(len(row)) <= np.flatnonzero(present)[-1] if present.any() else present
        if tools is not None and at < len(tools) and len(tools[at]) == len(row):
            sampled = sampled & (tools[at] != 0)
        keep.append(positions)
        model.append(sampled[positions])
    return keep, model


def _first(batch: Batch, names: tuple[str, ...]) -> Plain:
    return next((batch[name] for name in names if batch.get(name) is not None), None)


def _split(found: Plain) -> list[Array] | None:
    """Return the rows of what is told token by token."""
    if isinstance(found, np.ndarray):
        return list(found) if found.ndim == 2 else None
    if isinstance(found, list) and all(isinstance(row, np.ndarray) and row.ndim == 1 for row in found):
        return [row for row in found if isinstance(row, np.ndarray)]
    return None


def _rows(found: Plain, keep: list[Array]) -> list[Array | float | None] | None:
    """Cut each row to its response; one number a sequence stays one."""
    if isinstance(found, np.ndarray) and found.ndim == 1 and len(found) == len(keep):
        return [float(value) for value in found]
    rows = _split(found)
    if rows is None or len(rows) != len(keep):
        return None
    return [row[here] if len(row) == len(here) else row for row, here in zip(rows, keep, strict=True)]


def _singles(batch: Batch, count: int) -> dict[str, list[object]]:
    """What is told once a sequence."""
    made: dict[str, list[object]] = {
        "reward": [number(value) for value in _entries(_first(batch, REWARDS), count)],
        "policy_version": [integer(value) for value in _entries(batch.get("policy_version"), count)],
        "sample_id": [identifier(value) for value in _entries(batch.get("sample_id"), count)],
        "group_id": [identifier(value) for value in _entries(_first(batch, GROUPS), count)],
        "trajectory_id": [identifier(value) for value in _entries(batch.get("trajectory_id"), count)],
        "env": [value if isinstance(value, str) else None for value in _entries(batch.get("env"), count)],
    }
    uids = [identifier(value) for value in _entries(batch.get("uid"), count)]
    if any(uids):  # veRL: one a prompt; where no two are alike they name the sample
        made["group_id" if len(set(uids)) < len(uids) else "sample_id"] = [*uids]
    return {name: values for name, values in made.items() if any(value is not None for value in values)}


def _entries(found: Plain, count: int) -> list[Plain]:
    if isinstance(found, np.ndarray) and found.ndim == 1 and len(found) == count:
        return list(found.tolist())
    return found if isinstance(found, list) and len(found) == count else []
