"""Calls of one session into one sequence: what the prompt grew by between two calls is what came from outside.

A call continues the one before when its prompt begins with the whole prompt of that call and goes on. The response of
the sequence is then: first completion, what the next prompt holds behind its common beginning with the call before
(tool output, user turns, templates), next completion, and so on. A prompt that does not grow so (another sample of the
same prompt, a sub-agent, a compacted history) begins a sequence of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]

CHAINS: Final = 64  # sequences of a session that a call is compared with, the latest first
HELD_TOKENS: Final = 32_000_000  # of all sessions together, about 400 MB; beyond it the longest idle are given out


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of the engine: ids of prompt and completion, and a log-probability for each sampled token.

    `logps` is None where none fit the completion. `told`: what the reader wants to hear back with the sequence.
    """

    prompt: Array  # (P,) int32; empty where it is not recorded
    completion: Array  # (C,) int32, C > 0
    logps: Array | None  # (C,) float32
    told: Any = None


@dataclass(frozen=True, kw_only=True)
class Joined:
    """A sequence on its response axis of length T, and the calls it was put together from."""

    key: Hashable
    token_ids: Array  # (T,) int32
    model_mask: Array  # (T,) bool: sampled in one of the calls
    rollout_logp: Array | None  # (T,) float32, NaN where none is recorded; None if no call has any
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
        """Give the length of the common beginning with `prompt` where that continues this chain, else -1."""
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
        parts, masks, logps = [first.completion], [_marks(first.completion, sampled=True)], [_logps(first)]
        for outside, call in zip(self.outside, later, strict=True):
            parts += [outside, call.completion]
            masks += [_marks(outside, sampled=False), _marks(call.completion, sampled=True)]
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
    """Give how many tokens two lists of ids have in common from their beginning."""
    shared = min(len(left), len(right))
    differing = left[:shared] != right[:shared]
    first = int(np.argmax(differing)) if shared else 0
    return first if shared and differing[first] else shared


def _marks(tokens: Array, *, sampled: bool) -> Array:
    return np.full(len(tokens), sampled)


def _logps(call: Call) -> Array:
    return np.full(len(call.completion), np.nan, np.float32) if call.logps is None else call.logps
