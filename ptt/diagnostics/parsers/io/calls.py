"""Join the calls of a session into sequences: what a prompt gained since the last call came from outside.

A call continues the one before if its prompt begins with that call's whole prompt and is longer. The sequence's
response is then the first completion, what the next prompt adds after the part both share (tool output, user turns,
templates), the next completion, and so on. A prompt that does not grow like this (another sample of the same prompt, a
sub-agent, a compacted history) begins a new sequence."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.flat_lists import as_lists
from ptt.diagnostics.parsers.io.interface import Piece, Rows
from ptt.diagnostics.parsers.io.values import INT32, as_number
from ptt.diagnostics.schema import SEQUENCES

Array: TypeAlias = np.ndarray[Any, Any]

FRAME_TOKENS: Final = 2_000_000  # in one frame
MISSING_LOGP: Final = -9999.0  # what engines with OpenAI's interface write for a missing value
_LISTS: Final = {"token_ids": np.int32, "model_mask": np.bool_, "rollout_logp": np.float32, "advantage": np.float32}
_STEP: Final = re.compile(r"(?:^|[^a-z])(?:global_?)?(?:step|iteration|iter)[_-]?(\d{1,12})(?!\d)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class TokenRow:
    """One sequence: arrays of one length, and scalars by their column."""

    model_mask: Array
    token_ids: Array | None = None
    rollout_logp: Array | None = None
    advantage: Array | None = None
    told: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class SequenceRows:
    """Gathers sequences and gives them out as frames of bounded size."""

    _rows: list[TokenRow] = field(default_factory=list)
    _tokens: int = 0

    def add(self, row: TokenRow) -> Iterator[Piece]:
        """Add one; yields a frame when enough are gathered."""
        self._rows.append(row)
        self._tokens += len(row.model_mask)
        if self._tokens >= FRAME_TOKENS:
            yield from self.take()

    def take(self) -> Iterator[Piece]:
        """Yield what is gathered."""
        if self._rows:
            yield Rows(table="sequences", frame=sequence_frame(self._rows))
        self._rows, self._tokens = [], 0


def sequence_frame(rows: Sequence[TokenRow]) -> pl.DataFrame:
    """Make a frame of the columns that some row holds; log-probabilities outside the model mask become null."""
    masks = [row.model_mask for row in rows]
    outside = ~np.concatenate(masks)
    scalars = {name for row in rows for name, value in row.told.items() if value is not None}
    columns = []
    for name, kind in SEQUENCES.items():
        if name in _LISTS:
            lists = [getattr(row, name) for row in rows]
            if any(values is not None for values in lists):
                hidden = outside if name == "rollout_logp" else None
                columns.append(_list_column(name, lists, masks, hidden))
        elif name in scalars:
            columns.append(pl.Series(name, [row.told.get(name) for row in rows], dtype=kind))
    return pl.DataFrame(columns)


def _list_column(name: str, lists: Sequence[Array | None], masks: Sequence[Array], hidden: Array | None) -> pl.Series:
    """Lay the lists end to end and let Arrow cut them: no token becomes a Python object."""
    dtype = _LISTS[name]
    absent = np.array([entry is None for entry in lists])
    filled = [np.zeros(len(mask), dtype) if entry is None else entry for entry, mask in zip(lists, masks, strict=True)]
    with np.errstate(over="ignore"):  # a double beyond float32 is an infinity, and counted as one
        values: Array = np.concatenate(filled).astype(dtype, copy=False)
    offsets = np.cumsum([0, *map(len, filled)])
    return as_lists(values, offsets, hidden=hidden, absent=absent).alias(name)


def token_array(found: Any) -> Array | None:
    """Read token ids, (T,) int32; None if the value is something else."""
    if not isinstance(found, list) or not set(map(type, found)) <= {int}:
        return None
    try:
        ids = np.array(found, np.int64)
    except OverflowError:  # JSON integers have no limit
        return None
    fits = not len(ids) or (int(ids.min()) >= -INT32 and int(ids.max()) < INT32)
    return ids.astype(np.int32) if fits else None


def logp_array(found: Any, size: int) -> Array | None:
    """Read `size` log-probabilities, float32, with NaN for null and placeholders. None if they do not fit."""
    if not isinstance(found, list) or len(found) != size:
        return None
    kinds = set(map(type, found))
    if not kinds <= {float, int, type(None), str}:
        return None
    if str in kinds or int in kinds:
        found = [as_number(value) for value in found]
    with np.errstate(over="ignore"):
        logps = np.array(found, np.float64).astype(np.float32)  # None becomes NaN
    logps[logps == np.float32(MISSING_LOGP)] = np.nan
    return logps


def messages_in(found: Any) -> list[dict[str, Any]]:
    """Keep the chat messages of a list, without tool requests that are not lists."""
    messages = [message for message in found if isinstance(message, dict)] if isinstance(found, list) else []
    return [
        {key: value for key, value in message.items() if key != "tool_calls" or isinstance(value, list)}
        for message in messages
    ]


def step_in(path: str) -> int | None:
    """Find a training step in a path: `step_12`, `iteration_000012`, `global_step-12`; the last one counts."""
    steps = _STEP.findall(path)
    return int(steps[-1]) if steps else None


CHAINS: Final = 64  # sequences of a session that a call is compared with, the latest first
HELD_TOKENS: Final = 32_000_000  # over all sessions, about 400 MB; above it, the longest idle ones are handed out


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the engine: ids of prompt and completion, and a log-probability for each sampled token.

    `logps` is None where none fit the completion. `told`: what the reader wants to hear back with the sequence.
    """

    prompt: Array  # (P,) int32; empty if not recorded
    completion: Array  # (C,) int32, C > 0
    logps: Array | None  # (C,) float32
    told: Any = None


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A sequence on its response axis of length T, and the calls it was put together from."""

    key: Hashable
    token_ids: Array  # (T,) int32
    model_mask: Array  # (T,) bool: sampled in one of the calls
    rollout_logp: Array | None  # (T,) float32, NaN where not recorded; None if no call has any
    told: tuple[Any, ...]
    grown: tuple[int, ...]  # tokens from outside before each call but the first
    retokenised: int  # calls whose prompt spells the completion before it in other tokens


@dataclass(eq=False)
class _Chain:
    """A sequence that may still go on."""

    calls: list[Call] = field(default_factory=list)
    outside: list[Array] = field(default_factory=list)
    context: Array = field(default_factory=lambda: np.zeros(0, np.int32))
    retokenised: int = 0

    def reach(self, prompt: Array) -> int:
        """Return the length of the common beginning with `prompt` if that continues this chain, else -1."""
        before = len(self.calls[-1].prompt)
        if not 0 < before < len(prompt) or prompt[before - 1] != self.context[before - 1]:
            return -1
        reach = common_prefix(self.context, prompt)
        return reach if reach >= before else -1

    def extend(self, call: Call, reach: int) -> None:
        if self.calls:
            self.outside.append(call.prompt[reach:])
            # An end token that the template leaves out is no other spelling.
            self.retokenised += reach < len(self.context) - 1
        self.calls.append(call)
        self.context = np.concatenate([call.prompt, call.completion])

    def joined(self, key: Hashable) -> Joined:
        first, *later = self.calls
        parts, masks, logps = [first.completion], [np.full(len(first.completion), True)], [_logps(first)]
        for outside, call in zip(self.outside, later, strict=True):
            parts += [outside, call.completion]
            masks += [np.full(len(outside), False), np.full(len(call.completion), True)]
            logps += [np.full(len(outside), np.nan, np.float32), _logps(call)]
        known = any(call.logps is not None for call in self.calls)
        return Joined(
            key=key,
            token_ids=np.concatenate(parts),
            model_mask=np.concatenate(masks),
            rollout_logp=np.concatenate(logps) if known else None,
            told=tuple(call.told for call in self.calls),
            grown=tuple(len(outside) for outside in self.outside),
            retokenised=self.retokenised,
        )


class Sessions:
    """Takes calls as they come, each behind those it continues, and gives out the sequences of their sessions."""

    def __init__(self) -> None:
        self._open: dict[Hashable, list[_Chain]] = {}
        self._held = 0

    def add(self, key: Hashable, call: Call) -> Iterator[Joined]:
        """Add one call; yields sessions that had to be given out to bound memory, rarely any."""
        chains = self._open.pop(key, [])
        self._open[key] = chains  # the latest at the end
        reaches = [chain.reach(call.prompt) for chain in reversed(chains[-CHAINS:])]
        best = int(np.argmax(reaches)) if reaches else -1
        if best >= 0 and reaches[best] >= 0:
            chain = chains.pop(len(chains) - 1 - best)
            self._held -= len(chain.context)
            chain.extend(call, reaches[best])
        else:
            chain = _Chain()
            chain.extend(call, 0)
        chains.append(chain)
        self._held += len(chain.context) + len(call.completion)
        while self._held > HELD_TOKENS and len(self._open) > 1:
            yield from self._give(next(iter(self._open)))

    def close(self) -> Iterator[Joined]:
        """Yield all that is still open."""
        while self._open:
            yield from self._give(next(iter(self._open)))

    def _give(self, key: Hashable) -> Iterator[Joined]:
        for chain in self._open.pop(key):
            self._held -= len(chain.context) + sum(len(call.completion) for call in chain.calls)
            yield chain.joined(key)


def common_prefix(left: Array, right: Array) -> int:
    """Return how many tokens two lists of ids have in common from their beginning."""
    shared = min(len(left), len(right))
    differing = left[:shared] != right[:shared]
    first = int(np.argmax(differing)) if shared else 0
    return first if shared and differing[first] else shared


def _logps(call: Call) -> Array:
    return np.full(len(call.completion), np.nan, np.float32) if call.logps is None else call.logps


UNFIT: Final = "call(s) skipped: not one log-probability for each token."
RESPELT: Final = "call(s) in which the earlier answer has other token ids than were sampled."


def engine_call(prompt: Array | None, completion: Array, logps: Any, told: Any) -> Call:
    """Make a call of an unread list of log-probabilities and, where it is recorded, its prompt."""
    known = completion[:0] if prompt is None else prompt
    return Call(prompt=known, completion=completion, logps=logp_array(logps, len(completion)), told=told)


def joined_row(joined: Joined, columns: Mapping[str, Any], advantage: Array | None = None) -> TokenRow:
    """Make a row of a sequence that was put together from calls."""
    return TokenRow(
        token_ids=joined.token_ids,
        model_mask=joined.model_mask,
        rollout_logp=joined.rollout_logp,
        advantage=advantage,
        told=columns,
    )
