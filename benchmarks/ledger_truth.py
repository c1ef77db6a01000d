"""How well the gradient ledger knows the gradient: its estimates beside gradients by autograd.

`python -m benchmarks.ledger_truth FOLDER [--record]`; FOLDER/ARM holds a run and its gradients as
`examples.reproduction.gradient_truth` writes them. The way a token's score is approximated was chosen on half of the
steps; the figures are of the other half, which only --record looks at.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from ptt import Diagnosis, diagnose
from ptt.diagnostics import pipeline
from ptt.diagnostics.config import Settings
from ptt.diagnostics.evidence.gradient_ledger import assumed_norms, score_norms
from ptt.diagnostics.evidence.guard_prices import SPREAD, guarded_weights
from ptt.diagnostics.evidence.policy_objective import objective_of
from ptt.diagnostics.evidence.sampled_tokens import AuditedTokens, audited_tokens
from ptt.diagnostics.statistics.arrays import FloatArray
from ptt.diagnostics.statistics.gradient_shares import part_taken
from ptt.diagnostics.statistics.token_weights import (
    CONSTANT,
    SEQUENCE,
    SEQUENCES,
    TRUNCATED,
    Objective,
    PolicyTokens,
    token_weights,
)

RESULTS: Final = Path(__file__).with_name("ledger.json")
LOSSES: Final = {
    "dapo": Objective(),
    "grpo": Objective(reduction=SEQUENCES),
    "dr_grpo": Objective(reduction=CONSTANT, length=160.0),
    "gspo": Objective(level=SEQUENCE, low=3e-4, high=4e-4, reduction=SEQUENCES),
    "cispo": Objective(surrogate=TRUNCATED, low=1.0, high=4.0),
}
WITH_KL: Final = "dapo+kl"
BETAS: Final = {"kl-penalty": 0.05}  # of the arms; the others have the baseline's
BETA: Final = 0.001
CENTRED: Final = "dr_grpo"  # whose advantages are rewards less their group's mean
HALVES: Final[Halves] = {
    "tuning": (0, 1),
    "test": (2, 3),
}  # of (step // 5) % 4: each has first and second passes over a batch
Halves = Mapping[str, tuple[int, ...]]
FITTED, ASSUMED, NONE = "fitted to logged gradient norms", "1 - p", "none"
WAYS: Final = {
    "ledger": (FITTED, 1),
    "sum of squares, fitted": (FITTED, 2),
    "without logged norms": (ASSUMED, 1),
    "weights alone": (NONE, 1),
}
"""How the norms of scores are approximated, and the power at which tokens add up: 1, or 2 as orthogonal scores do."""
TRAINED_GUARDS: Final = {
    "clip-tighter": "clip-x0.1", "mask-sequences": "opsm-0.005", "drop-errored": "drop-errored", "kl-x50": "kl-x50",
}  # fmt: skip
"""Guards as the reproduction calls them, by what the ledger calls them."""
EVERY: Final = 5  # steps between those whose gradient is known
NOTHING: Final = 1e-6  # a guard that takes nothing proves no bound
MIN_TELLING: Final = 4  # sequences of a step with a gradient: fewer have no ranks


@dataclass(frozen=True, kw_only=True)
class WeighedRun:
    """The tokens of a run, and the norms of their scores by each way."""

    audited: AuditedTokens
    norms: Mapping[str, FloatArray]
    objective: Objective  # that it was trained on


def weighed_run(run: Path, scratch: Path) -> WeighedRun:
    """Read a run as a diagnosis does; the norms are fitted under the loss that it was trained on."""
    settings = Settings()
    location = pipeline.RunLocation(run=run, store=scratch, name=run.name, keep=False)
    manifest = pipeline.ingest(location, copy=False)
    tokens, gathered, _ = pipeline._evidence(location, run.name, manifest, settings, None, None, None)
    evidence = gathered.evidence
    assert tokens is not None
    assert gathered.completions is not None
    facts = {**evidence.run.context, "framework": evidence.run.framework, "algorithm": evidence.run.algorithm}
    found = objective_of(facts, evidence.algorithm, evidence.scalars.loss if evidence.scalars else None)
    audited = audited_tokens(
        tokens, gathered.completions, found.objective, shortest=settings.min_observation, formula="grpo"
    )
    if isinstance(audited, str):
        raise SystemExit(f"{run}: {audited}")
    print(run, found.said)
    fitted = score_norms(audited, token_weights(audited.policy, found.objective), evidence.metrics.get("grad_norm"))
    assert fitted is not None
    norms = {FITTED: fitted, ASSUMED: assumed_norms(audited), NONE: np.ones(len(audited.turn))}
    return WeighedRun(audited=audited, norms=norms, objective=found.objective)


def objectives(arm: str, run: WeighedRun) -> Iterator[tuple[str, Objective, PolicyTokens]]:
    """Yield each loss with the tokens that it sees."""
    policy, frame = run.audited.policy, run.audited.frame
    centred = frame.select(pl.col("reward") - pl.col("reward").mean().over("step", "group_id"))["reward"].to_numpy()
    for name, objective in LOSSES.items():
        seen = replace(policy, advantage=centred[policy.row]) if name == CENTRED else policy
        yield name, objective, replace(seen, ref=None)
    yield WITH_KL, Objective(kl=BETAS.get(arm, BETA)), policy


def estimates(run: WeighedRun, policy: PolicyTokens, objective: Objective, way: str) -> pl.DataFrame:
    """Return step, sample_id and the estimate of each sequence, whole and by slice."""
    norm, power = WAYS[way]
    size = np.abs(token_weights(policy, objective).total) * run.norms[norm]
    rows, post = len(policy.step), run.audited.turn > 0
    parts = {
        name: np.bincount(policy.row, (size * chosen) ** power, rows).astype(np.float64) ** (1 / power)
        for name, chosen in (("whole", np.ones(len(size))), ("text_only", ~post), ("post_tool", post))
    }
    return run.audited.frame.select("step", "sample_id", **{name: pl.Series(part) for name, part in parts.items()})


def rank_correlation(one: FloatArray, two: FloatArray) -> float:
    """Return Spearman's rank correlation, ties at their mean rank."""
    first, second = (pl.Series(values).rank().to_numpy() for values in (one, two))
    return float(np.corrcoef(first, second)[0, 1])


def compare(
    truth: pl.DataFrame, slices: pl.DataFrame, found: pl.DataFrame, loss: str, halves: Halves
) -> dict[str, dict[str, float]]:
    """Return for each half of the steps the rank correlation over sequences and the error of the slices' shares."""
    both = truth.filter(loss=loss).join(found, on=["step", "sample_id"])
    results = {}
    for half, kept in halves.items():
        of_half = both.filter((pl.col("step") // 5 % 4).is_in(kept))
        correlations: list[float] = []
        telling_alone: list[float] = []
        errors, norm_errors = [], []
        for (step,), part in of_half.group_by("step", maintain_order=True):
            telling = part.filter(pl.col("grad_norm") > 0)
            if telling.height >= MIN_TELLING and telling["whole"].n_unique() > 1:
                for rows, found_there in ((part, correlations), (telling, telling_alone)):
                    found_there.append(rank_correlation(rows["grad_norm"].to_numpy(), rows["whole"].to_numpy()))
            of_slices = slices.filter(loss=loss, step=step)
            if of_slices["whole_norm"].max() and part["whole"].sum() > 0:
                held = {name: float(part[name].to_numpy().sum()) for name in ("text_only", "post_tool")}
                share = held["post_tool"] / sum(held.values())
                by_sum, by_norm = (
                    {row["slice"]: row[column] for row in of_slices.iter_rows(named=True)}
                    for column in ("sum_of_norms", "norm")
                )
                errors.append(share - by_sum["post_tool"] / sum(by_sum.values()))
                norm_errors.append(share - by_norm["post_tool"] / sum(by_norm.values()))
        results[half] = {
            "steps": len(correlations),
            "rank_correlation": round(float(np.mean(correlations)), 4),
            "with_gradient": round(float(np.nanmean(telling_alone)), 4),
            "share_error": round(float(np.mean(np.abs(errors))), 4),
            "share_bias": round(float(np.mean(errors)), 4),
            "norm_share_error": round(float(np.mean(np.abs(norm_errors))), 4),
        }
    return results


def guards_against(arm: Path, run: WeighedRun, objective: Objective, kept: tuple[int, ...]) -> Iterator[bool]:
    """Yield whether each guard, tail and rest, by thirds of the steps, takes what true norms of the scores say."""
    audited, fitted = run.audited, run.norms[FITTED]
    frame, row = audited.frame, audited.policy.row
    place = np.concatenate([np.flatnonzero(mask) for mask in frame["model_mask"].to_list()])
    tokens = pl.DataFrame(
        {"step": frame["step"].gather(row), "sample_id": frame["sample_id"].gather(row), "place": place}
    )
    truth = pl.read_parquet(arm / "tokens.parquet").with_columns(pl.col("place").cast(pl.Int64))
    known = tokens.join(truth, on=["step", "sample_id", "place"], how="left", maintain_order="left")
    norm, step = known["score_norm"].fill_null(math.nan).to_numpy(), audited.steps[audited.step]
    measured = np.isfinite(norm) & np.isin(step // EVERY % 4, kept)
    before = np.abs(token_weights(audited.policy, objective).total)
    for third in np.array_split(audited.steps, 3):
        window = measured & np.isin(step, third)
        for _, _, left in guarded_weights(audited, objective):
            for part in (window & audited.tail, window & ~audited.tail):
                bounds = part_taken((before * fitted)[part], (np.abs(left) * fitted)[part], SPREAD)
                whole = float((before * norm)[part].sum())
                taken = 1 - float((np.abs(left) * norm)[part].sum()) / whole if whole > 0 else 0.0
                if abs(taken) > NOTHING and not math.isnan(bounds.low):
                    yield bool(bounds.low <= taken <= bounds.high)


def late_tail(run: Path) -> tuple[Diagnosis, dict[str, float]]:
    """Return the diagnosis of a run, and p95 and p99 of its late post-tool tail."""
    diagnosis = diagnose(run)
    late = diagnosis.tables["growth"].filter(slice="post_tool", parts=3, part=2)
    return diagnosis, {name: float(late[name][0]) for name in ("p95", "p99")}


def guards_in_training(guarded: Path, without: Path) -> Iterator[dict[str, object]]:
    """Yield what the ledger predicts of each guard that a run was trained with, and how far its tail came down."""
    for run in sorted(guarded.glob("*-*")):
        trained, seed = run.name.rsplit("-", 1)
        if trained not in TRAINED_GUARDS or not (without / seed).exists():
            continue
        (bare, before), (_, after) = late_tail(without / seed), late_tail(run)
        prices = bare.ledger.guards if bare.ledger is not None else ()
        price = next((one for one in prices if one.guard == TRAINED_GUARDS[trained]), None)
        yield {
            "guard": trained, "seed": int(seed),
            **{name: None if price is None else getattr(price, name) for name in ("tail", "cost", "second_moment")},
            **{name: round(1 - after[name] / before[name], 4) for name in before},
        }  # fmt: skip


def main() -> None:
    """Print, and with --record keep, the figures of every arm and guard."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--guards", type=Path, help="runs GUARD-SEED that were trained with a guard")
    parser.add_argument("--without", type=Path, help="runs SEED without it")
    parser.add_argument("--record", action="store_true")
    given = parser.parse_args()
    halves = HALVES if given.record else {"tuning": HALVES["tuning"]}
    guards = [] if given.guards is None else list(guards_in_training(given.guards, given.without))
    for row in guards:
        print(json.dumps(row))
    held: dict[str, list[bool]] = {}
    results: dict[str, dict[str, dict[str, dict[str, dict[str, float]]]]] = {}
    for arm in sorted(path.parent for path in given.folder.glob("*/truth.parquet")):
        truth, slices = (pl.read_parquet(arm / f"{name}.parquet") for name in ("truth", "slices"))
        with tempfile.TemporaryDirectory() as scratch:
            run = weighed_run(arm / "run", Path(scratch) / "store")
        for half, kept in halves.items():
            held.setdefault(half, []).extend(guards_against(arm, run, run.objective, kept))
        for loss, objective, policy in objectives(arm.name, run):
            for way in WAYS:
                figures = compare(truth, slices, estimates(run, policy, objective, way), loss, halves)
                results.setdefault(loss, {}).setdefault(way, {})[arm.name] = figures
                print(arm.name, loss, way, json.dumps(figures))
    bounds = {half: {"share": round(float(np.mean(of)), 4), "cases": len(of)} for half, of in held.items()}
    print("bounds of guards hold", json.dumps(bounds))
    if given.record:
        RESULTS.write_text(
            json.dumps({"losses": results, "bounds": bounds, "guards": guards}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
