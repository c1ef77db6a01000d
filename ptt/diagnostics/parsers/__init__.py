"""The table of contents of all formats: the first parser that recognises a file reads it."""

from ptt.diagnostics.parsers import (
    metrics_csv,
    metrics_jsonl,
    microsoft_metrics,
    recorder,
    recorder_jsonl,
    skyrl_batches,
    slime_dumps,
    tensorboard,
    token_tensors,
    trl_completions,
    trl_state,
    verl_batches,
)
from ptt.diagnostics.parsers.discover import run_files
from ptt.diagnostics.parsers.interface import Context, InPlace, Lost, Parser, Piece, Rows, RunFile

PARSERS: tuple[Parser, ...] = (
    recorder.PARSER,
    recorder_jsonl.PARSER,
    slime_dumps.PARSER,
    skyrl_batches.PARSER,
    verl_batches.PARSER,
    token_tensors.PARSER,
    trl_state.PARSER,
    trl_completions.PARSER,
    tensorboard.PARSER,
    microsoft_metrics.PARSER,
    metrics_jsonl.PARSER,
    metrics_csv.PARSER,
)

__all__ = ["PARSERS", "Context", "InPlace", "Lost", "Parser", "Piece", "Rows", "RunFile", "run_files"]
