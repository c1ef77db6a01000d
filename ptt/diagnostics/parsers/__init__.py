"""The table of contents of all formats: the first parser that recognises a file reads it."""

from ptt.diagnostics.parsers import (
    areal_perf,
    console_log,
    metrics_csv,
    metrics_jsonl,
    metrics_parquet,
    microsoft_metrics,
    mlflow_files,
    mlflow_sqlite,
    open_instruct,
    openai_logprobs,
    recorder,
    recorder_jsonl,
    rllm_episodes,
    rllm_gateway,
    tensorboard,
    tinker_capture,
    tinker_rollouts,
    trackio_sqlite,
    trl_completions,
    trl_state,
    wandb,
)
from ptt.diagnostics.parsers.discover import run_files
from ptt.diagnostics.parsers.interface import Context, InPlace, Lost, Parser, Piece, Rows, RunFile

PARSERS: tuple[Parser, ...] = (
    recorder.PARSER,
    recorder_jsonl.PARSER,
    trl_state.PARSER,
    areal_perf.PARSER,
    trl_completions.PARSER,
    tensorboard.PARSER,
    wandb.PARSER,
    mlflow_sqlite.PARSER,
    mlflow_files.PARSER,
    trackio_sqlite.PARSER,
    open_instruct.PARSER,
    tinker_capture.PARSER,
    tinker_rollouts.PARSER,
    rllm_gateway.PARSER,
    rllm_episodes.PARSER,
    openai_logprobs.PARSER,
    microsoft_metrics.PARSER,
    metrics_jsonl.PARSER,
    metrics_csv.PARSER,
    metrics_parquet.PARSER,
    console_log.PARSER,
)

__all__ = ["PARSERS", "Context", "InPlace", "Lost", "Parser", "Piece", "Rows", "RunFile", "run_files"]
