"""The table of contents of all formats: the first parser that recognises a file reads it."""

from ptt.diagnostics.parsers import (
    metrics_csv,
    metrics_jsonl,
    microsoft_metrics,
    nemo_tokens,
    prime_tokens,
    recorder,
    recorder_jsonl,
    tensorboard,
    trl_completions,
    trl_state,
)
from ptt.diagnostics.parsers.discover import run_files
from ptt.diagnostics.parsers.interface import Context, InPlace, Lost, Parser, Piece, Rows, RunFile

PARSERS: tuple[Parser, ...] = (
    recorder.PARSER,
    nemo_tokens.PARSER,
    prime_tokens.PARSER,
    recorder_jsonl.PARSER,
    trl_state.PARSER,
    trl_completions.PARSER,
    tensorboard.PARSER,
    microsoft_metrics.PARSER,
    metrics_jsonl.PARSER,
    metrics_csv.PARSER,
)

__all__ = ["PARSERS", "Context", "InPlace", "Lost", "Parser", "Piece", "Rows", "RunFile", "run_files"]
