"""The table of contents of all formats: the first parser that recognises a file reads it."""

from ptt.diagnostics.parsers import (
    metrics_csv,
    metrics_jsonl,
    microsoft_metrics,
    nemo_tokens,
    nemo_validation,
    prime_tokens,
    recorder,
    recorder_jsonl,
    tensorboard,
    trl_completions,
    trl_state,
    verifiers_metadata,
    verifiers_results,
    verifiers_traces,
)
from ptt.diagnostics.parsers.discover import run_files
from ptt.diagnostics.parsers.interface import Context, InPlace, Lost, Parser, Piece, Rows, RunFile

PARSERS: tuple[Parser, ...] = (
    recorder.PARSER,
    nemo_tokens.PARSER,
    nemo_validation.PARSER,
    prime_tokens.PARSER,
    verifiers_traces.PARSER,
    verifiers_results.PARSER,
    verifiers_metadata.PARSER,
    recorder_jsonl.PARSER,
    trl_state.PARSER,
    trl_completions.PARSER,
    tensorboard.PARSER,
    microsoft_metrics.PARSER,
    metrics_jsonl.PARSER,
    metrics_csv.PARSER,
)

__all__ = ["PARSERS", "Context", "InPlace", "Lost", "Parser", "Piece", "Rows", "RunFile", "run_files"]
