"""Turn a run's tables into the evidence that rules look at and the small tables that reports show."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import polars as pl

from ptt.diagnostics.config import Settings
from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.errors import is_caught
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.advantages import audit_advantages
from ptt.diagnostics.evidence.algorithm import KIND, Algorithm, detect_algorithm
from ptt.diagnostics.evidence.answers import gather_answers, gather_lengths
from ptt.diagnostics.evidence.column_faults import gather_column_faults
from ptt.diagnostics.evidence.completions import (
    Completions,
    recorded_calls,
    recorded_rewards,
    with_recorded,
    with_recorded_rewards,
)
from ptt.diagnostics.evidence.contradictions import find_contradictions
from ptt.diagnostics.evidence.data_position import gather_position
from ptt.diagnostics.evidence.environment import gather_environment, tool_table
from ptt.diagnostics.evidence.evaluation import gather_evaluation
from ptt.diagnostics.evidence.excursions import find_long_dip, gather_excursions, happened_at
from ptt.diagnostics.evidence.machines import Event, gather_machines, ranks_table
from ptt.diagnostics.evidence.mask import gather_mask
from ptt.diagnostics.evidence.mismatch import (
    difference_of_means,
    gather_freshness,
    gather_mismatch,
    gather_rank_mismatch,
)
from ptt.diagnostics.evidence.mismatch_course import metric_signs
from ptt.diagnostics.evidence.mismatch_tokens import gather_pattern
from ptt.diagnostics.evidence.outcome_series import describe_run_series, logged_clock, logged_seconds
from ptt.diagnostics.evidence.placed_rows import Placement, facts_of_placed, place_events, place_rows
from ptt.diagnostics.evidence.policy_objective import engine_cap
from ptt.diagnostics.evidence.prompt_groups import gather_groups
from ptt.diagnostics.evidence.recomputed_scalars import audit_scalars
from ptt.diagnostics.evidence.recorded_batches import find_copies, gather_batches
from ptt.diagnostics.evidence.reference import gather_kl_witness, gather_reference
from ptt.diagnostics.evidence.rewards import gather_rewards
from ptt.diagnostics.evidence.sample_counters import gather_counters, implied_samples
from ptt.diagnostics.evidence.sample_faults import gather_faults
from ptt.diagnostics.evidence.segments import gather_segments
from ptt.diagnostics.evidence.separate_starts import Starts, facts_of_starts, separate_starts
from ptt.diagnostics.evidence.series import (
    Series,
    aggregate_table,
    further_losses,
    logged_steps,
    read_evaluations,
    read_other,
    read_series,
    series_parts,
    series_table,
    training_metric_names,
)
from ptt.diagnostics.evidence.sources import files_by_step
from ptt.diagnostics.evidence.support import gather_support
from ptt.diagnostics.evidence.tail_details import gather_details
from ptt.diagnostics.evidence.tail_holders import Holders, gather_holders
from ptt.diagnostics.evidence.tails import Tails, gather_tails, tool_use_by_step
from ptt.diagnostics.evidence.tokens_by_step import Signal, gather_pairs, gather_signal
from ptt.diagnostics.evidence.training_setup import setup_of
from ptt.diagnostics.evidence.validity import REQUIRED_COLUMNS, gather_validity, missing_pair
from ptt.diagnostics.model import STEP, JsonScalar, Run, Support
from ptt.diagnostics.statistics.arrays import IntArray
from ptt.diagnostics.statistics.slices import MIN_OBSERVATION
from ptt.diagnostics.store.diagnosis import Tables
from ptt.diagnostics.store.ingest import UNREADABLE, UNRECOGNISED
from ptt.diagnostics.store.manifest import Manifest
from ptt.diagnostics.store.scan import read_table, read_trajectories
from ptt.diagnostics.store.wide_metrics import WideMetrics, distinct, read_wide

CONSOLE = "console_log"  # the parser of consoles
NAMED_FACTS = ("framework", "algorithm")
ROW_FACTS = ("row_unit", "rows_placed_by", KIND)  # about how the log was read; not settings of the run
ROW_UNITS = ("row", "episode", "epoch")
MAX_CELLS_ASIDE: Final = 1 << 20  # with more, tails and their details at once would set a long run's peak memory


def describe_run(
    name: str,
    facts: Mapping[str, JsonScalar],
    series: Mapping[str, Series],
    tokens: Tokens | None,
    logged: IntArray | None = None,
) -> Run:
    """Describe the run by what its files record; its steps are those of sequences and of metrics.

    `logged`: the steps of metrics; without it, the steps that series keep, which long series thin out.
    """
    step_sets = [*(metric.steps for metric in series.values())] if logged is None else [logged]
    sequences = model_tokens = 0
    if tokens is not None:
        rows = tokens.sound_rows
        step_sets.append(rows["step"].unique().to_numpy())
        sequences = rows.height
        model_tokens = int(rows["n_model"].cast(pl.Int64).sum())
    steps = distinct(step_sets)
    framework, algorithm = (None if facts.get(key) is None else str(facts[key]) for key in NAMED_FACTS)
    return Run(
        name=name,
        framework=framework,
        algorithm=algorithm,
        first_step=int(steps[0]) if len(steps) else None,
        last_step=int(steps[-1]) if len(steps) else None,
        step_count=len(steps),
        sequences=sequences,
        model_tokens=model_tokens,
        context={key: facts[key] for key in sorted(facts) if key not in NAMED_FACTS + ROW_FACTS},
        step_unit=str(facts["row_unit"]) if facts.get("row_unit") in ROW_UNITS else STEP,
        placed_by=None if facts.get("rows_placed_by") is None else str(facts["rows_placed_by"]),
    )


SAMPLES_PER_KIND: Final = 8  # samples of a kind: a few minutes' reading
MAX_LATEST: Final = 512  # samples that count as the latest; all of the last step where it has more
SEED: Final = 20_260_128
SCHEMA: Final[dict[str, pl.DataType]] = {
    "kind": pl.String(),  # highest | lowest | random
    "step": pl.Int64(),
    "trajectory_id": pl.String(),
    "reward": pl.Float64(),
    "length": pl.Int64(),
    "length_unit": pl.String(),  # tokens | characters
    "calls": pl.Int64(),
    "source": pl.String(),
}


def audit_table(trajectories: pl.DataFrame, turns: pl.DataFrame) -> pl.DataFrame:
    """Pick samples of the latest steps to read: highest, lowest and random rewards, the latest first.

    No sample appears twice: the random ones are drawn, with a fixed seed, from those that are left.
    """
    scored = trajectories.filter(pl.col("reward").is_finite() & (pl.col("split") != "eval"))
    trained = scored.filter(pl.col("split") == "train")
    scored = (trained if trained.height else scored).unique("trajectory_id", keep="first", maintain_order=True)
    scored = scored.sort("step", "source", "trajectory_id", descending=[True, False, False], nulls_last=True)
    if scored.is_empty():
        return pl.DataFrame(schema=SCHEMA)
    of_last = (pl.col("step") == pl.col("step").first()).fill_null(value=False)
    latest = scored.filter((pl.int_range(pl.len()) < MAX_LATEST) | of_last)
    picked = _pick_samples(latest)
    lengths = _answer_lengths(turns.join(picked.select("trajectory_id"), on="trajectory_id", how="semi"))
    rows = picked.join(lengths, on="trajectory_id", how="left", maintain_order="left")
    return rows.with_columns(pl.col("n_tool_calls").alias("calls")).select(
        pl.col(name).cast(kind) for name, kind in SCHEMA.items()
    )


def _pick_samples(latest: pl.DataFrame) -> pl.DataFrame:
    ranked = latest.sort("reward", "step", "trajectory_id", descending=[True, True, False])
    count = min(SAMPLES_PER_KIND, ranked.height // 3) or 1
    highest = ranked.head(count)
    lowest = ranked.slice(max(count, ranked.height - count)).reverse()
    left = ranked.slice(count, max(0, ranked.height - 2 * count)).sort("trajectory_id")
    drawn = left.sample(min(count, left.height), seed=SEED, shuffle=True)
    named = (("highest", highest), ("lowest", lowest), ("random", drawn))
    return pl.concat([part.with_columns(pl.lit(kind).alias("kind")) for kind, part in named])


def _answer_lengths(turns: pl.DataFrame) -> pl.DataFrame:
    """Return how much the policy wrote: in tokens if each of its turns has a count, else in characters."""
    own = turns.filter(pl.col("role") == "assistant")
    counted = own.group_by("trajectory_id").agg(
        pl.col("n_tokens").sum().cast(pl.Int64).alias("tokens"),
        pl.col("n_tokens").is_not_null().all().alias("whole"),
        pl.col("text_len").sum().cast(pl.Int64).alias("characters"),
    )
    return counted.select(
        "trajectory_id",
        pl.when("whole").then("tokens").otherwise("characters").alias("length"),
        pl.when("whole").then(pl.lit("tokens")).otherwise(pl.lit("characters")).alias("length_unit"),
    )


Made = TypeVar("Made")
Raised = tuple[str, BaseException]
"""A topic that could not be gathered, and what was raised."""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """What judging and telling start from."""

    evidence: Evidence
    tables: Mapping[str, pl.DataFrame]
    starts: tuple[Starts, ...]  # files that hold several runs
    wide: WideMetrics  # the metrics that `tables` leaves out: too many for rows
    placements: tuple[Placement, ...] = ()  # of rows without a step that repeat rows with one
    completions: Completions | None = None  # the logged samples; None: there are no tokens
    shortest: int = MIN_OBSERVATION  # tokens of an observation, by the settings
    post_name: str = "post_observation"  # the name of the slice after an observation
    raised: tuple[Raised, ...] = ()  # exceptions, with the topics that are missing because of them
    support: Callable[[], Supported | None] = lambda: None  # looked at only where a finding is about a tail after tools


Supported = tuple[Support, dict[str, pl.DataFrame]]
NO_SEQUENCES = "this run has no per-token logprobs"


def gather(
    *,
    name: str,
    folder: Path,
    manifest: Manifest,
    tokens: Tokens | None,
    settings: Settings,
    drawn_limits: Mapping[str, float],
) -> Gathered:
    """Read the store's tables and the token tables into evidence; `drawn_limits` are lines in figures, by metric."""
    raised: list[Raised] = []
    topic = partial(_topic, raised)
    every, wide = read_metrics(folder), read_wide(folder, manifest)
    logged, starts = topic("separate starts", lambda: separate_starts(every)) or (every, ())
    metrics, placements = topic("placed rows", lambda: place_rows(logged, wide)) or (logged, ())
    placed = topic("facts", lambda: facts_of_placed(manifest.facts, metrics, placements))
    facts = {**(manifest.facts if placed is None else placed), **facts_of_starts(starts)}
    series = topic("series", lambda: read_series(metrics, wide)) or {}
    other = topic("other series", lambda: read_other(metrics, wide)) or {}
    series |= topic("difference of both sides", lambda: difference_of_means(series, other)) or {}
    trajectories = read_trajectories(folder, wide, logged)
    calls, turns, sources = (read_table(folder, table) for table in ("tool_calls", "turns", "sources"))
    answers, evals, rewards = (read_table(folder, table) for table in ("answers", "evals", "rewards"))
    ranks, events = read_table(folder, "ranks"), read_table(folder, "events")
    recorded = topic("recorded calls", lambda: recorded_calls(tokens)) or recorded_calls(None)
    called = (trajectories, calls) if calls["ok"].is_not_null().any() else recorded
    kept = topic("recorded rewards", lambda: recorded_rewards(tokens)) or recorded_rewards(None)
    earned, parts = with_recorded_rewards(trajectories, rewards, kept)
    makers: dict[str, Callable[[], pl.DataFrame]] = {
        "aggregates": lambda: aggregate_table(series, drawn_limits),
        "series": lambda: series_table(series),
        "metrics": lambda: metrics,
        "trajectories": lambda: trajectories,
        "tool_calls": lambda: calls,
        "audit": lambda: audit_table(trajectories, turns),
        "tools": lambda: tool_table(*called),
        "files": lambda: files_by_step(tokens, trajectories),
    }
    made = {name: topic(f"table {name}", make) for name, make in makers.items()}
    tables = {name: table for name, table in made.items() if table is not None}
    post_name = (tokens and topic("tool slices", lambda: _post_name(calls, series, tokens))) or Gathered.post_name
    pairs = topic("pairs", lambda: gather_pairs(tokens)) or {}
    reference = topic("reference", lambda: gather_reference(series, pairs, facts))
    tails: tuple[Tails, dict[str, pl.DataFrame]] | None = None
    holders: Holders | None = None
    paired = tokens if tokens is not None and tokens.pairs else None
    completions = None if tokens is None else Completions(trajectories, calls, turns)
    support: Callable[[], Supported | None] = lambda: None  # noqa: E731
    if paired is not None and completions is not None:
        with ThreadPoolExecutor(1) as aside:
            details = partial(gather_details, paired, completions, post_name=post_name)
            few = paired.tables.cells.height <= MAX_CELLS_ASIDE
            made_details = aside.submit(details).result if few else details
            tails = topic("tails", lambda: gather_tails(paired, post_name=post_name, reference=reference))
            holders = topic("tail holders", lambda: gather_holders(paired, completions, tails[0])) if tails else None
        tables |= tails[1] | (topic("tail details", made_details) or {}) if tails else {}
        support = partial(gather_support, paired, completions, tails[0]) if tails else support
    unpaired, missing = missing_pair(manifest)
    unpaired = unpaired if paired is None else ""
    local = [source for source, named in manifest.offsets.items() if None in named]
    machines = topic("machines", lambda: gather_machines(metrics, ranks, wide, manifest.offsets))
    tables["ranks"] = ranks_table(machines)
    algorithm = (
        topic(
            "algorithm",
            lambda: detect_algorithm(
                facts,
                series,
                logged=training_metric_names(metrics, wide, ranks=True),
                sampled="rollout_logp" in tokens.scan.columns if tokens else False,
                texts=tokens is not None or trajectories.height > 0,
                places=(name, *sources["path"]),
                series=series.get,
            ),
        )
        or Algorithm()
    )
    logged_at = topic("logged steps", lambda: logged_steps(metrics, wide))
    if logged_at is None or not len(logged_at):  # even if no name is known, the steps are
        logged_at = distinct([metric.steps for metric in other.values()])
    run = describe_run(name, facts, series, tokens, logged_at)
    eval_losses = topic("evaluation losses", lambda: read_series(metrics, WideMetrics(folder), split="eval")) or {}
    eval_loss = eval_losses.get("eval/loss")
    validity = topic("validity", lambda: gather_validity(paired)) if paired is not None else None
    evidence = Evidence(
        run=replace(
            run,
            algorithm=algorithm.name or run.algorithm,
            kind=algorithm.family and str(algorithm.family),
            kind_reason=algorithm.reason,
        ),
        algorithm=algorithm,
        metrics=series,
        other=other,
        eval_loss=eval_loss,
        eval_losses=topic("losses of further data sets", lambda: further_losses(metrics, eval_loss)) or (),
        environment=topic(
            "environment",
            lambda: with_recorded(
                gather_environment(trajectories, calls, turns), gather_environment(*recorded, turns.clear())
            ),
        ),
        answers=topic("answers", lambda: gather_answers(trajectories, answers)),
        lengths=topic("lengths", lambda: gather_lengths(trajectories, turns)),
        evaluation=topic("evaluation", lambda: gather_evaluation(metrics, evals, trajectories, wide)),
        rewards=topic("rewards", lambda: gather_rewards(metrics, earned, parts, wide)),
        counters=topic(
            "sample counters",
            lambda: gather_counters(
                metrics,
                wide,
                trajectories,
                facts,
                _logged(series),
                implied_samples(series, other),
                setup_of(manifest).settings,
            ),
        ),
        faults=topic("faults of samples", lambda: gather_faults(trajectories, calls, answers)),
        groups=topic("prompt groups", lambda: gather_groups(series, earned, parts)),
        freshness=topic("freshness", lambda: gather_freshness(tokens)),
        mismatch=topic("mismatch", lambda: gather_mismatch(tokens, post_name=post_name)),
        rank_mismatch=topic("mismatch by rank", lambda: gather_rank_mismatch(tokens)),
        mismatch_pattern=topic("pattern of the mismatch", lambda: gather_pattern(tokens, cap=engine_cap(run.context))),
        pairs=pairs,
        reference=reference,
        kl_witness=topic("witness of the KL", lambda: gather_kl_witness(tokens, series)),
        signal=topic("signal", lambda: gather_signal(tokens, earned)) or Signal(),
        machines=machines,
        events=topic(
            "events", lambda: _events(place_events(events, metrics, placements, wide), consoles_aside(sources, metrics))
        )
        or (),
        tails=tails[0] if tails else None,
        holders=holders,
        recorded_logps=tuple(name for name, rows in tokens.scan.logp_rows().items() if rows) if tokens else (),
        tails_missing=() if tails else missing if unpaired else REQUIRED_COLUMNS,
        tails_reason="" if tails else unpaired or _why_no_tails(sources, tokens),
        tool_use=topic("tool use", lambda: tool_use_by_step(tokens)) if tokens is not None else None,
        copies=topic("repeated content", lambda: find_copies(paired)) if paired is not None else None,
        batches=topic("batches", lambda: gather_batches(tokens, series)) if tokens is not None else None,
        validity=validity,
        column_faults=(
            topic("column faults", lambda: gather_column_faults(paired, paired.sound_rows, validity.fills)) or ()
            if paired is not None and validity is not None
            else ()
        ),
        mask=topic("masks", lambda: gather_mask(tokens, facts, series.get("tools/call_frequency")))
        if tokens is not None
        else None,
        segments=topic("segments", lambda: gather_segments(wide.rows(metrics), tokens, local)),
        advantages=topic("advantages", lambda: audit_advantages(tokens, earned, facts)),
        scalars=topic("recomputed scalars", lambda: audit_scalars(tokens, series, other, facts)),
        contradictions=topic(
            "contradictions", lambda: find_contradictions(series, other, facts, read_evaluations(metrics))
        )
        or (),
        required_tools=settings.required_tools,
        limits=settings.limits,
        better=settings.better,
    )
    excursions = topic(
        "excursions",
        lambda: gather_excursions(
            series,
            run=run,
            other=other,
            evaluation=evidence.evaluation,
            events=evidence.events,
            segments=evidence.segments,
        ),
    )
    pattern = evidence.mismatch_pattern
    setup = setup_of(manifest)
    if not setup.settings:  # told by logs alone
        setup = replace(setup, settings=run.context)
    setup = replace(setup, framework=run.framework or setup.framework)
    happened = happened_at(series, other, run, evidence.evaluation, evidence.events, evidence.segments)
    signs = topic(
        "course of the mismatch",
        lambda: metric_signs(
            series,
            other=other,
            pairs=pairs,
            setup=setup,
            excursions=excursions or (),
            happened=happened,
            events=evidence.events,
            by_tokens=pattern is not None,
        ),
    )
    described = topic(
        "outcome",
        lambda: describe_run_series(
            metrics=metrics,
            training=series,
            other=other,
            evaluation=evidence.evaluation,
            rewards=evidence.rewards,
            algorithm=algorithm,
            better=settings.better,
        ),
    )
    seconds = topic("time", lambda: logged_seconds(metrics, wide))
    clock = topic("clock", lambda: logged_clock(metrics, wide, series))
    tables |= {"courses": described.courses} if described else {}
    return Gathered(
        evidence=replace(
            evidence,
            excursions=excursions,
            long_dip=topic("long dip of the reward", lambda: find_long_dip(series, other)),
            settings=setup.settings,
            position=topic("place in the data", lambda: gather_position(trajectories, run, happened, setup.settings)),
            mismatch_signs=(*((pattern.sign,) if pattern else ()), *(signs or ())),
            described=described.outcomes if described else (),
            seconds=seconds,
            clock=clock,
        ),
        # the rows leave these out, and there may be thousands
        tables=Tables(tables, {"other_series": partial(series_parts, other)}) if wide.parts else tables,
        wide=wide,
        placements=placements,
        starts=starts,
        completions=completions,
        shortest=settings.min_observation,
        post_name=post_name,
        raised=tuple(raised),
        support=support,
    )


def _logged(series: Mapping[str, Series]) -> IntArray:
    """Return the steps at which the trainer logged the first of the metrics that each step of training has."""
    every = next((series[name] for name in ("reward/mean", "grad_norm", "loss/total") if name in series), None)
    return np.zeros(0, np.int64) if every is None else every.steps


def _topic(raised: list[Raised], name: str, make: Callable[[], Made]) -> Made | None:
    """Return what a topic gathers; where it raises, None, as if nothing of it were recorded, and the error is kept."""
    try:
        return make()
    except BaseException as error:  # a topic costs itself alone; a panic of Polars is no Exception
        if not is_caught(error):
            raise
        raised.append((name, error))
        return None


def read_metrics(folder: Path) -> pl.DataFrame:
    """Read the metrics with the priority of their sources, which an empty table lacks."""
    metrics = read_table(folder, "metrics")
    return metrics if "priority" in metrics.columns else metrics.with_columns(pl.lit(0, pl.Int32).alias("priority"))


def _events(table: pl.DataFrame, aside: Collection[str]) -> tuple[Event, ...]:
    texts = pl.col("kind", "text", "source").fill_null("")
    rows = table.select("step", texts).iter_rows(named=True)
    return tuple(Event(**row, aside=row["source"] in aside) for row in rows)


STREAM_WORDS = re.compile(
    r"(?:[._-]|^)(?:out|err|stdout|stderr|output|error|log|txt|gz|zst)s?(?=[._-]|$)|rank[_-]?\d+|node[_-]?\d+"
)


# W&B's own debug logs, those of Ray's daemons, and of engines that serve: they raise and go on.
OTHER_PROGRAMS = re.compile(
    r"^debug(?:-[\w-]+)?\.log$|^(?:raylet|gcs_server|dashboard|log_monitor|monitor|runtime_env)|"
    r"(?:^|[._-])(?:server|serve|vllm|sglang|sandbox)(?:[._-]|$)"
)


def consoles_aside(sources: pl.DataFrame, metrics: pl.DataFrame) -> frozenset[str]:
    """Return the consoles that log nothing, if others log the training; a job's two streams belong together.

    Consoles of other programs are set aside as soon as anything else is recorded.
    """
    consoles = set(sources.filter(pl.col("kind") == CONSOLE)["path"])
    logging = consoles & set(metrics["source"])
    jobs = {_job(path) for path in logging}
    silent = consoles - logging
    other = {path for path in silent if OTHER_PROGRAMS.search(path.rpartition("/")[2].lower())}
    strangers = {path for path in silent if logging and _job(path) not in jobs}
    return frozenset(strangers | (other if sources.filter(pl.col("rows_ok") > 0).height > len(other) else set()))


def _job(path: str) -> str:
    """Return what a console's file is called without the words for its stream and its rank."""
    return STREAM_WORDS.sub("", path.rpartition("/")[2].lower())


def _why_no_tails(sources: pl.DataFrame, tokens: Tokens | None) -> str:
    if tokens is None:
        foreign = sources.filter(pl.col("kind") == UNRECOGNISED).height
        if not sources.height:
            return "the run contains no file"
        closed = sources.filter(pl.col("kind") == UNREADABLE).height
        unread = f"; {foreign} of {sources.height} files are in unknown formats" if foreign else ""
        unread += f"; {closed} of {sources.height} files cannot be read" if closed else ""
        return NO_SEQUENCES + unread
    rows = tokens.tables.rows
    if not rows["ok"].any():
        return f"all {rows.height} recorded sequences were rejected: no step, no mask, or lists of different length"
    return "no model token has a finite log-ratio"


def _post_name(calls: pl.DataFrame, series: Mapping[str, Series], tokens: Tokens) -> str:
    """Call the slice post_tool only where something proves that the gaps between model tokens are tool output."""
    named = "tool_names" in tokens.scan.columns and bool((tokens.scalars["tool_names"].list.len() > 0).any())
    frequency = series.get("tools/call_frequency")
    called = frequency is not None and bool((frequency.finite()[1] > 0).any())
    return "post_tool" if named or called or not calls.is_empty() else "post_observation"
