"""Seeded runs with a known answer, taken through the same code as a run on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
from hypothesis import settings

from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.completions import Completions
from ptt.diagnostics.evidence.excursions import gather_excursions
from ptt.diagnostics.evidence.gather import describe_run
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tail_holders import gather_holders
from ptt.diagnostics.evidence.tails import Tails, gather_tails, tool_use_by_step
from ptt.diagnostics.model import (
    Aggregates,
    Answer,
    Diagnosis,
    Finding,
    Link,
    Run,
    RunVerdict,
    Severity,
    Signature,
    Source,
    Status,
)
from ptt.diagnostics.schema import TABLES, Flag
from ptt.diagnostics.statistics.logprob_pairs import PAIRS, Pair, available_pairs
from ptt.diagnostics.statistics.partial_tables import TokenTables
from ptt.diagnostics.statistics.token_pass import token_pass
from ptt.diagnostics.store.scan import SequenceScan

Array = npt.NDArray[np.float64]
Scale = Callable[[float], float]
"""From how far the run is (0 to 1) to a standard deviation of r, in nats."""

repeatable = settings(derandomize=True, deadline=None, max_examples=30, database=None)
POLICY_REF: Pair = PAIRS[0]
SCHEMA: dict[str, Any] = {
    "seq": pl.UInt32,
    "step": pl.Int64,
    "model_mask": pl.List(pl.Boolean),
    "policy_logp": pl.List(pl.Float32),
    "ref_logp": pl.List(pl.Float32),
}


def steady(level: float) -> Scale:
    """The same all along."""
    return lambda _: level


def stepped(early: float, late: float) -> Scale:
    """One level in the first half and one in the second: late over early is then known."""
    return lambda done: early if done < 0.5 else late


def rising(early: float, late: float) -> Scale:
    """From one level to another, by the same factor every step."""
    return lambda done: early * (late / early) ** done


def hump(low: float, high: float) -> Scale:
    """Up in the middle third only."""
    return lambda done: high if 1 / 3 <= done < 2 / 3 else low


NO_SAMPLES = Completions(*(pl.DataFrame(schema=TABLES[name]) for name in ("trajectories", "tool_calls", "turns")))
QUIET = steady(0.03)
MOST = steady(0.75)
NONE = steady(0.0)


@dataclass(frozen=True, kw_only=True)
class Story:
    """What a made run is like; by default nothing happens in it."""

    steps: int = 60
    sequences: int = 16  # a step
    text: Scale = QUIET
    post: Scale = QUIET
    post_rare: Scale = NONE  # share of post-tool tokens that lie ten times as far out
    tool_share: Scale = MOST
    head: int = 40  # model tokens before the observation
    observation: int = 8
    tail: int = 40  # model tokens after it
    likeness: float = 0.3  # log-SD of a sequence's own scale: its tokens are alike
    step_noise: float = 0.0  # log-SD of an AR(1) 0.8 that all sequences of a step share
    post_noise: float = 0.0  # the same for post-tool tokens alone
    nan_share: float = 0.0  # of model tokens
    seed: int = 0


def sequences_of(story: Story) -> pl.DataFrame:
    """Make the sequences of a story: seq, step (from 1), model_mask, policy_logp, ref_logp."""
    generator = np.random.default_rng(story.seed)
    shared = np.zeros(2)
    counts: list[int] = []
    tokens: list[tuple[npt.NDArray[np.bool_], Array, Array]] = []
    for step in range(story.steps):
        done = step / max(1, story.steps - 1)
        shared = 0.8 * shared + 0.6 * generator.normal(size=2)  # variance 1 in the long run
        tools = round(story.tool_share(done) * story.sequences)
        for number in range(story.sequences):
            gap, tail = (story.observation, story.tail) if number < tools else (0, 0)
            scale = np.repeat([story.text(done), 0.0, story.post(done)], [story.head, gap, tail])
            scale *= np.exp(story.likeness * generator.normal() + story.step_noise * shared[0])
            scale[story.head :] *= np.exp(story.post_noise * shared[1])
            if rare := story.post_rare(done):
                scale[story.head :] *= np.where(generator.random(len(scale) - story.head) < rare, 10.0, 1.0)
            r = scale * generator.normal(size=len(scale))
            likelier = -generator.exponential(size=len(scale))  # of the two: neither may pass 0
            policy, ref = likelier + np.minimum(r, 0), likelier - np.maximum(r, 0)
            policy[generator.random(len(scale)) < story.nan_share] = np.nan
            counts.append(len(scale))
            tokens.append((np.repeat([True, False, True], [story.head, gap, tail]), policy, ref))
    steps = np.arange(len(counts)) // story.sequences + 1
    columns = {"seq": pl.Series(range(len(counts))), "step": pl.Series(steps)}
    ends = np.concatenate([[0], np.cumsum(counts)])
    for name, parts in zip(("model_mask", "policy_logp", "ref_logp"), zip(*tokens, strict=True), strict=True):
        columns[name] = pl.Series(pa.LargeListArray.from_arrays(ends, np.concatenate(parts)))
    return pl.DataFrame(columns).cast(pl.Schema(SCHEMA))


def growing(**changes: Any) -> pl.DataFrame:
    """Give a run whose post-tool tail grows from harmless to harmful while text stays."""
    return sequences_of(Story(**({"post": rising(0.05, 1.5)} | changes)))


def logps_of(r: Sequence[float] | Array) -> tuple[list[float], list[float]]:
    """Give policy and reference logprobs that differ by exactly r and look like logprobs.

    No value lies above 0, none stands for a missing one, and no side is constant.
    """
    wanted = np.asarray(r, dtype=np.float64)
    top = np.where(np.arange(len(wanted)) % 2 == 0, -1e-300, -2e-300)  # too small to change a difference
    top = np.where(np.abs(wanted) == 1.0, -0.5, top)  # -1 exactly is what some writers pad with
    low = top - np.abs(wanted)
    return np.where(wanted > 0, top, low).tolist(), np.where(wanted > 0, low, top).tolist()


def sampled_logps_of(r: Array, generator: np.random.Generator) -> tuple[list[float], list[float]]:
    """Give policy and reference logprobs that differ by r, the higher of the two drawn as tokens' logprobs are."""
    top = -0.01 - generator.exponential(0.8, len(r))
    return np.minimum(top, top + r).tolist(), np.minimum(top, top - r).tolist()


def frame_of(rows: Sequence[Mapping[str, Any]], *, logps: Sequence[str] = ()) -> pl.DataFrame:
    """Lay hand-written rows out as sequences; `seq` counts, `step` is 1; `r` stands for both logprobs."""
    names = [*dict.fromkeys(["policy_logp", "ref_logp", *logps])]
    filled = []
    for number, given in enumerate(rows):
        row = dict(given)
        if "r" in row:
            row["policy_logp"], row["ref_logp"] = logps_of(row.pop("r"))
        count = len(row.get("policy_logp") or [])
        usual = {"seq": number, "step": 1, "model_mask": [True] * count, "ref_logp": [-0.75] * count}
        filled.append(usual | row)
    extra = {"tool_count": pl.Int64} if any("tool_count" in row for row in rows) else {}
    schema: dict[str, Any] = {
        "seq": pl.UInt32,
        "step": pl.Int64,
        "model_mask": pl.List(pl.Boolean),
        **dict.fromkeys(names, pl.List(pl.Float64)),
        **extra,
    }
    return pl.DataFrame(filled, schema=schema)


def frame_of_r(r: Sequence[float] | Array, *, step: int = 1) -> pl.DataFrame:
    """Give one sequence of model tokens with these log-ratios."""
    return frame_of([{"r": r, "step": step}])


def tables_of(
    frame: pl.DataFrame | pl.LazyFrame,
    *,
    pairs: tuple[Pair, ...] = (POLICY_REF,),
    min_observation: int = 4,
    steps: int | None = None,
) -> TokenTables:
    """Run the token pass."""
    return token_pass(frame.lazy(), pairs=pairs, min_observation=min_observation, steps=steps)


def tokens_of(frame: pl.DataFrame, *, min_observation: int = 4) -> Tokens:
    """Give what the engine would of a run with these sequences."""
    pairs = available_pairs(set(frame.columns))
    scan = SequenceScan(frame=frame.lazy(), files=(), columns=frozenset(frame.columns), tokens_per_row=64.0)
    tables = tables_of(frame, pairs=pairs, min_observation=min_observation)
    return Tokens(tables=tables, pairs=pairs, scan=scan)


def tails_of(frame: pl.DataFrame, *, post_name: str = "post_tool") -> Tails:
    """Give the tails of a run with these sequences."""
    found = gather_tails(tokens_of(frame), post_name=post_name)
    assert found is not None, "the run has tokens"
    return found[0]


def evidence_of(
    frame: pl.DataFrame | None = None,
    *,
    metrics: Mapping[str, Series | Sequence[float] | Array] | None = None,
    limits: Mapping[str, Mapping[str, float]] | None = None,
) -> Evidence:
    """Gather evidence from sequences, from metrics, from both or from neither."""
    series = {
        name: values if isinstance(values, Series) else series_of(name, values)
        for name, values in (metrics or {}).items()
    }
    tokens = tokens_of(frame) if frame is not None else None
    found = gather_tails(tokens, post_name="post_tool") if tokens is not None else None
    run = describe_run("made", {}, series, tokens)
    return Evidence(
        run=run,
        metrics=series,
        excursions=gather_excursions(series, run=run),
        tails=found[0] if found else None,
        holders=gather_holders(tokens, NO_SAMPLES, found[0]) if found and tokens is not None else None,
        tool_use=tool_use_by_step(tokens) if tokens is not None else None,
        limits=limits or {},
    )


def series_of(name: str, values: Sequence[float] | Array, *, steps: Sequence[int] | None = None) -> Series:
    """Give a metric logged at `steps` (1, 2, ...), flagged where it is not finite."""
    held = np.array(values, dtype=np.float64)
    finite = np.isfinite(held)
    return Series(
        name=name,
        raw_name=f"logged/{name}",
        steps=np.arange(1, len(held) + 1) if steps is None else np.array(steps, dtype=np.int64),
        values=np.where(finite, held, np.nan),
        flags=np.select(
            [finite, held == np.inf, held == -np.inf], [Flag.FINITE, Flag.POS_INF, Flag.NEG_INF], Flag.NAN
        ).astype(np.uint8),
    )


def run_of(*, last_step: int | None = 60) -> Run:
    """Give the facts of some run."""
    return Run(
        name="made",
        framework=None,
        algorithm=None,
        first_step=1,
        last_step=last_step,
        step_count=last_step or 0,
        sequences=0,
        model_tokens=0,
    )


def aggregates(status: str = "quiet", **alarms: int) -> Aggregates:
    """Give aggregates with these alarms (`kl_ref=40` stands for kl/ref)."""
    return Aggregates(
        status="alarming" if alarms else status,
        metrics={},
        alarms={name.replace("_", "/", 1): step for name, step in alarms.items()},
    )


def finding_of(name: str, **changes: Any) -> Finding:
    """Give a finding of high severity of this rule."""
    base = Finding(
        id=name,
        severity=Severity.HIGH,
        link=Link.POLICY_UPDATE,
        claim=f"{name} happened",
        observed=1.0,
        limit=0.5,
        unit="x",
    )
    return replace(base, **changes)


def healthy_diagnosis(run: Run) -> Diagnosis:
    """Give the diagnosis of a run of which no rule says anything and no token is recorded."""
    return Diagnosis(
        run=run,
        verdict=RunVerdict(status=Status.HEALTHY, headline="", first_broken_link=None, next=()),
        signature=Signature(status=Answer.CANNOT_SAY, reason="", pair=None, aggregates=aggregates()),
        findings=(),
        healthy=(),
        not_judged=(),
        crashes=(),
        sources=(),
        tables={},
    )


def write_recorder_run(
    folder: Path, frame: pl.DataFrame, *, metrics: Mapping[str, Sequence[float]] | None = None
) -> Path:
    """Write sequences as a trainer would, a file a step, and metrics (by logged name) as JSON lines."""
    tokens = folder / "tokens"
    tokens.mkdir(parents=True)
    for part in frame.partition_by("step", maintain_order=True):
        part.drop("seq").write_parquet(tokens / f"step_{part['step'][0]:06d}.parquet")
    if metrics:
        rows = zip(*metrics.values(), strict=True)
        lines = [
            json.dumps({"step": step, **dict(zip(metrics, row, strict=True))}) for step, row in enumerate(rows, start=1)
        ]
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def source(diagnosis: Diagnosis, path: str) -> Source:
    """Give what is told of one file of a run."""
    (found,) = [source for source in diagnosis.sources if source.path == path]
    return found
