"""The table of contents of all formats: the first parser that recognises a file reads it."""

from ptt.diagnostics.parsers import (
    metrics_csv,
    metrics_jsonl,
    microsoft_metrics,
    open_instruct,
    openai_logprobs,
    recorder,
    recorder_jsonl,
    rllm_episodes,
    rllm_gateway,
    tensorboard,
    tinker_capture,
    tinker_rollouts,
    trl_completions,
    trl_state,
)
from ptt.diagnostics.parsers.discover import run_files
from ptt.diagnostics.parsers.interface import Context, InPlace, Lost, Parser, Piece, Rows, RunFile

PARSERS: tuple[Parser, ...] = (
    recorder.PARSER,
    recorder_jsonl.PARSER,
    trl_state.PARSER,
    trl_completions.PARSER,
    tensorboard.PARSER,
    open_instruct.PARSER,
    tinker_capture.PARSER,
    tinker_rollouts.PARSER,
    rllm_gateway.PARSER,
    rllm_episodes.PARSER,
    openai_logprobs.PARSER,
    microsoft_metrics.PARSER,
    metrics_jsonl.PARSER,
    metrics_csv.PARSER,
)

__all__ = ["PARSERS", "Context", "InPlace", "Lost", "Parser", "Piece", "Rows", "RunFile", "run_files"]
