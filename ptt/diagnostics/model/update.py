"""What a run's update rests on: the ledger of its gradient, the price of guards, and what its tail follows."""

from __future__ import annotations

from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model.outcome import Interval


@dataclass(frozen=True, kw_only=True)
class LedgerShare:
    """What tokens of one kind hold of the update."""

    by: str  # slice, tail, tool name, tool result, distance, turn, outcome, group, rank or env
    value: str
    share: float  # of the absolute contributions
    token_share: float
    signed: float  # sum of the signed contributions over that of all absolute ones
    kl: float  # of its contributions, the KL penalty's
    masked: float  # taken by masks, of what there would be without masks, caps and clips
    truncated: float
    clipped: float


@dataclass(frozen=True, kw_only=True)
class GuardPrice:
    """What a guard would have taken from the update in the late window, replayed on the recorded tokens."""

    guard: str
    pair: str | None  # whose ratio it is on
    tail: Interval | None  # part of the tail's contributions that it takes, at the bounds of the scores' norms
    cost: Interval | None  # of all other contributions
    second_moment: float | None  # late, over the early one without the guard; None: it cannot be replayed
    holds: bool  # that ratio is within its early level
    reason: str = ""  # what its numbers are a bound of, where they are no replay

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"{self.guard} {self.pair}" if self.pair else self.guard


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What the update rests on, and what guards would cost."""

    finding: str  # id of the finding that it explains
    objective: str  # the loss whose weights these are, and what says so
    reason: str = ""  # why it is not judged; empty where it is
    said: str = ""  # in a sentence
    place: str = ""  # where most of the tokens that hold half of it stand; empty where no place holds most of them
    approximated: str = ""  # what is not recorded, and how far off that makes the numbers
    since: int | None = None  # first step that `said` and the shares are of
    steps: int = 0  # that were read
    tokens: int = 0
    half_tokens: float | None = None  # least share of the tokens since then that holds half of the update
    early_half_tokens: float | None = None  # the same, of the early third
    effective_sequences: float | None = None  # effective number of sequences, over their number
    tail_share: float | None = None  # of the contributions, those of tokens with |r| above 2 nats
    tail_tokens: float | None = None  # of the tokens
    second_moment: float | None = None  # sum of the squared contributions of a step: late over early
    shares: tuple[LedgerShare, ...] = ()
    guards: tuple[GuardPrice, ...] = ()
    cheapest: str | None = (
        None  # name of the guard that costs least of those that hold it; None: none does, or none need
    )


CAUSES: Final = {
    "errors": "failed calls",
    "novelty": "unfamiliar tool output",
    "length": "long contexts",
    "exposure": "a larger share of tokens after tools",
}
"""What a tail after tools may follow, as prose calls it."""


@dataclass(frozen=True, kw_only=True)
class SupportShare:
    """How much of the late tail after tools goes with one cause: with `exposure`, of the tail's growth a token."""

    cause: str  # novelty | errors | length | exposure
    share: float | None  # None: cannot be told, for `reason`
    interval: Interval | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class SupportMass:
    """How probable what the policy says is under the reference, in one part of a window's tokens."""

    window: str  # early | late
    by: str  # slice, novelty, tool result, distance, confidence: all but `slice` of tokens after tools
    value: str
    tokens: int
    groups: int  # prompt groups, or sequences, with a token of it
    policy: float  # mean probability under the policy
    reference: float  # under the other side of the pair
    reference_interval: Interval
    unsupported: float  # share of tokens that the other side gives less than 1%
    unsupported_interval: Interval
    tail_share: float | None  # of the tail of the slices, or of all of the tail after tools


@dataclass(frozen=True, kw_only=True)
class OutputDiversity:
    """How new the tools' outputs of a window were beside those of all earlier steps that were read."""

    window: str  # early | mid | late
    outputs: int
    distinct: int
    exact: float  # shares: seen before as a whole, in at least half of its n-grams, or in less
    near: float
    unseen: float
    familiarity: float  # mean share of earlier outputs that hold an n-gram of an output


@dataclass(frozen=True, kw_only=True)
class Support:
    """What the tail follows, and the mass that the reference has where the policy goes, from steps read again."""

    follows: str  # a cause; "none": none of them dominates; "cannot_tell"
    reason: str  # why it cannot be told
    pair: str
    steps: int  # read again
    tokens: int  # of the policy in them
    groups: int  # prompt groups, or sequences, with tokens after tools in the late window
    shares: tuple[SupportShare, ...]
    masses: tuple[SupportMass, ...]
    outputs: tuple[OutputDiversity, ...]
    alpha: Interval | None  # share of the policy's tokens that come after tools, early and late
    changes: str  # of the policy after tools, from the middle to the late third: moves | frozen | cannot_tell
    change: float | None = None  # late mean |r| there over the one before
    change_interval: Interval | None = None
