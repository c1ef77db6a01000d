"""What an export can be asked for."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from ptt.diagnostics.definitions import dataclass

MAX_PAIRS_PER_PROMPT: Final = 4  # a group of 16 attempts has up to 64: a few easy prompts would fill the set


class ExportKind(StrEnum):
    """What is written: one file each, named after it."""

    PAIRS = "pairs"
    KTO = "kto"
    SFT = "sft"
    GRPO = "grpo"
    STEPS = "steps"


class FileFormat(StrEnum):
    """How it is written."""

    PARQUET = "parquet"
    JSONL = "jsonl"


class Dedupe(StrEnum):
    """Which repeated completions of a prompt are left out."""

    NONE = "none"
    EXACT = "exact"
    NEAR = "near"


class StepExtent(StrEnum):
    """How far the two sides of a step-level pair go: the turn alone, or the rest of the episode."""

    TURN = "turn"
    END = "end"


class ToolOutput(StrEnum):
    """What becomes of results of tools, and of users' messages, between the turns of an episode.

    Most losses are over all of a completion. Split: a row ends with one turn, and all before it is the prompt. Whole:
    a row keeps the episode, for trainers that mask what the policy did not write.
    """

    SPLIT = "split"
    WHOLE = "whole"


MASKED_BY_TRAINER: Final = frozenset({ExportKind.SFT})
"""Kinds whose trainers can mask what the policy did not write (TRL: `assistant_only_loss`): whole by default."""


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What to export, and by which rules.

    `min_margin`: the least difference in reward between chosen and rejected; any difference above zero by default.
    `min_reward`: SFT also takes episodes of at least this reward where success is not labelled, and
    `include_unlabelled` those with neither, as collections of demonstrations have them.
    `tool_output`: as ToolOutput says; by default whole where trainers mask it, else split.
    `min_attempts`: the least attempts that either side of a pair rests on.
    `keep_masked`: rows in which a key or token is masked are written too.
    `eval_set`: files or folders whose texts the exported rows are compared with.
    `from_tail`: pairs only of prompts with one of the episodes that hold most tail tokens.
    """

    kinds: tuple[ExportKind, ...]
    format: FileFormat = FileFormat.PARQUET
    min_margin: float = 0.0
    max_pairs_per_prompt: int = MAX_PAIRS_PER_PROMPT
    match_length: bool = False
    dedupe: Dedupe = Dedupe.EXACT
    steps_to: StepExtent = StepExtent.TURN
    tool_output: ToolOutput | None = None
    min_attempts: int = 1
    min_reward: float | None = None
    include_unlabelled: bool = False
    keep_masked: bool = False
    eval_set: tuple[Path, ...] = ()
    from_tail: bool = False

    def splits(self, kind: ExportKind) -> bool:
        """Return whether episodes with results of tools become rows of single turns."""
        usual = ToolOutput.WHOLE if kind in MASKED_BY_TRAINER else ToolOutput.SPLIT
        return (self.tool_output or usual) is ToolOutput.SPLIT
