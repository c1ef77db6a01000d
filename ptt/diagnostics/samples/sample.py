"""One sample as a value: what is recorded of it, its prompt group, its transcript and its tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl


@dataclass(frozen=True, kw_only=True)
class Sibling:
    """A sample of the same prompt at the same step."""

    key: str  # STEP:ROW, or the trajectory's id where no tokens are recorded
    sample_id: str | None
    reward: float | None
    advantage: tuple[float, float] | None  # least and greatest over its sampled tokens
    tokens: int | None
    shown: bool  # the sample itself


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One message of the transcript; `text` is null unless texts were asked for."""

    number: int
    role: str | None
    letters: int | None
    tokens: int | None
    text: str | None


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """One call of a tool and how it ended; `arguments` is null unless texts were asked for."""

    turn: int | None
    name: str | None
    ok: bool | None
    error: str | None
    result_letters: int | None
    seconds: float | None
    arguments: str | None


@dataclass(frozen=True, kw_only=True)
class Missing:
    """What the run does not hold of this sample, and the line that records it."""

    what: str
    why: str
    enable: str | None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Everything that a run recorded of one sample, and nothing else.

    `tokens` has one row a token: position, token_id and token where known, the logprobs and other values as the run
    holds them, `r` of `pair` (sampled tokens only) and `slice`.
    """

    run: str
    key: str
    step: int | None
    row: int | None  # among the sequences of the step, from 0; null of a sample without tokens
    file: str | None
    file_row: int | None
    values: Mapping[str, Any]  # what is recorded of it as single values, by column
    rewards: Mapping[str, float | None]  # the parts of its reward
    group: tuple[Sibling, ...]
    turns: tuple[Turn, ...]
    calls: tuple[ToolCall, ...]
    texts: bool  # whether texts were asked for
    tokens: pl.DataFrame
    pair: str | None
    pairs: tuple[str, ...]  # that it holds
    tokenizer: str | None  # the file of the run that tokens were decoded with
    missing: tuple[Missing, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ListedSample:
    """A sample that a finding rests on, and its value of the finding's measure."""

    chosen: str  # highest, lowest or random
    key: str
    step: int | None
    sample_id: str | None
    value: float | None


@dataclass(frozen=True, kw_only=True)
class FindingSamples:
    """The samples of one finding: those with the highest and lowest values, and some at random."""

    finding: str
    severity: str
    claim: str
    measure: str
    samples: tuple[ListedSample, ...]
