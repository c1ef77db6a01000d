"""The table of contents of all formats: the first parser that recognises a file reads it."""

from ptt.diagnostics.parsers import (
    areal_rollouts,
    art_trajectories,
    inspect_log,
    metrics_csv,
    metrics_jsonl,
    microsoft_agents,
    microsoft_metrics,
    otel_spans,
    recorder,
    recorder_jsonl,
    roll_rollouts,
    skyrl_evals,
    swe_agent,
    swift_completions,
    tau_bench,
    tensorboard,
    trl_completions,
    trl_state,
    verl_rollouts,
)
from ptt.diagnostics.parsers.discover import run_files
from ptt.diagnostics.parsers.interface import Context, InPlace, Lost, Parser, Piece, Rows, RunFile

PARSERS: tuple[Parser, ...] = (
    recorder.PARSER,
    recorder_jsonl.PARSER,
    trl_state.PARSER,
    trl_completions.PARSER,
    verl_rollouts.PARSER,
    skyrl_evals.PARSER,
    areal_rollouts.PARSER,
    roll_rollouts.PARSER,
    swift_completions.PARSER,
    art_trajectories.PARSER,
    inspect_log.PARSER,
    swe_agent.PARSER,
    tau_bench.PARSER,
    otel_spans.PARSER,
    tensorboard.PARSER,
    microsoft_metrics.PARSER,
    microsoft_agents.PARSER,
    metrics_jsonl.PARSER,
    metrics_csv.PARSER,
)

__all__ = ["PARSERS", "Context", "InPlace", "Lost", "Parser", "Piece", "Rows", "RunFile", "run_files"]
