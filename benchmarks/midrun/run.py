"""A run of this bench: what is drawn of it, what is made of that, and what is true of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Single = npt.NDArray[np.float32]
Generator = np.random.Generator
Sort = Literal["faulty", "sound", "growth"]

LN2: Final = 0.6931471805599453
TOLERANCE_STEPS: Final = 2  # recorded steps, or
TOLERANCE_SHARE: Final = 0.06  # of the run: a stated step so near the true one is right
HEADER: Final = (151_644, 77_091, 198)  # the template's tokens between an observation and the next turn
OPENING: Final = 151_665  # the first token of an observation
END: Final = 151_645
PAD: Final = 151_643


def log_uniform(generator: Generator, low: float, high: float) -> float:
    """Draw a value whose logarithm is uniform."""
    return float(np.exp(generator.uniform(np.log(low), np.log(high))))


@dataclass(kw_only=True)
class Plan:
    """What is drawn of a run before its tokens are made; a kind changes it. Arrays hold a value by recorded step."""

    seed: tuple[int, ...]
    steps: IntArray
    groups: IntArray  # prompt groups in a step
    group_size: int
    length: float  # model tokens of a sequence
    tool_share: FloatArray
    tools_by_group: bool
    observations: int  # at most, in a sequence
    text_p99: FloatArray  # of |policy - reference|, in nats
    post_p99: FloatArray
    family: str  # of the token tails
    sure: float  # share of tokens that are as good as certain
    step_sd: float
    sequence_sd: float
    group_sd: float
    columns: set[str]
    ranks: int
    rank_factor: FloatArray  # on |r|, by rank
    envs: IntArray  # which environments exist, as a count by recorded step
    env_factor: FloatArray  # on |r|, by environment
    env_open: FloatArray  # added to the doubt of the tokens, by environment
    tool_names: tuple[str, ...]
    moved: str = "all"  # which post-tool tokens have the level of post_p99: all, a tool's name, "third", "failed"
    temperature: FloatArray  # of the sampler, by recorded step
    top_p: float = 1.0
    scored_at: FloatArray | None = None  # the temperature of the logprobs; None: 1
    told_temperature: float | None = None  # in the files
    logp_kind: str | None = None
    observation_nats: float  # mean surprisal of a tool's answer
    rate: FloatArray | None = None  # learning rate
    log_form: str  # trainer_state or metrics
    kl_logged: bool = True


@dataclass(kw_only=True)
class Run:
    """A made run: token arrays in the order of its sequences, what is recorded of a sequence, and what is logged."""

    plan: Plan
    place: IntArray  # of each sequence: the number of its recorded step
    row: IntArray  # of each token: its sequence
    mask: BoolArray
    sampled: BoolArray  # the true mask
    turn: IntArray  # observations before the token, or up to it
    tokens: dict[str, Single]  # columns by name: NaN is null
    ids: IntArray
    rows: dict[str, list[Any]]  # columns of sequences
    rank: IntArray
    env: IntArray
    reward: FloatArray
    logits: Single  # of the sampled tokens: policy
    reference: Single
    choice: IntArray
    logged: dict[str, FloatArray] = field(default_factory=dict)  # by recorded step
    share_log: bool = False  # the trainer's own figures hold the fault too

    @property
    def count(self) -> int:
        """Give the number of recorded steps."""
        return len(self.plan.steps)

    @property
    def token_place(self) -> IntArray:
        """Give the number of the recorded step of each token."""
        return self.place[self.row]

    @property
    def position(self) -> IntArray:
        """Give the place of each token in its sequence."""
        starts = np.searchsorted(self.row, np.arange(len(self.place)))
        return np.arange(len(self.row)) - starts[self.row]

    def keep_rows(self, kept: BoolArray) -> None:
        """Drop the other sequences."""
        tokens = kept[self.row]
        inner = tokens[self.sampled]
        self.logits, self.reference, self.choice = self.logits[inner], self.reference[inner], self.choice[inner]
        number = np.cumsum(kept) - 1
        self.row = number[self.row[tokens]]
        for name in ("mask", "sampled", "turn", "ids"):
            setattr(self, name, getattr(self, name)[tokens])
        self.tokens = {name: column[tokens] for name, column in self.tokens.items()}
        self.rows = {
            name: [value for value, stays in zip(values, kept, strict=True) if stays]
            for name, values in self.rows.items()
        }
        for name in ("place", "rank", "env", "reward"):
            setattr(self, name, getattr(self, name)[kept])

    def insert(self, after: IntArray, added: dict[str, Single], ids: IntArray, *, marked: bool) -> None:
        """Put tokens that nobody sampled behind the tokens of the given numbers."""
        self.tokens = {name: np.insert(column, after + 1, added[name]) for name, column in self.tokens.items()}
        self.ids = np.insert(self.ids, after + 1, ids)
        for name in ("row", "turn"):
            column = getattr(self, name)
            setattr(self, name, np.insert(column, after + 1, column[after]))
        self.mask = np.insert(self.mask, after + 1, marked)
        self.sampled = np.insert(self.sampled, after + 1, False)


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What is true of a run, and which answers are right."""

    kind: str
    sort: Sort
    found_allowed: bool
    found_wanted: bool = False
    concerns: str = ""  # the column, mask or rank
    step: int | None = None  # at which the fault or the growth begins; None: all along, or nowhere
    held: bool = False  # a finding may also say that it holds from the first step
    links: tuple[str, ...] = ("data_validity", "data_freshness")
    severity: str = "medium"  # at least, of the finding that names it
    nameable: bool = True  # what tells it is recorded
    allowed: tuple[str, ...] = ()  # findings of medium or above that are right in a sound run
    ratio: tuple[float, float] | None = None  # true growth of p99, text and post
