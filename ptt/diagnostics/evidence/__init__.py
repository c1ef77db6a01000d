"""What the rules look at: a run's tables, reduced to series and tails, with the limits in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.evidence.advantages import AdvantageAudit
from ptt.diagnostics.evidence.algorithm import Algorithm
from ptt.diagnostics.evidence.answers import Answers, Lengths
from ptt.diagnostics.evidence.column_faults import ColumnFault
from ptt.diagnostics.evidence.contradictions import Contradiction
from ptt.diagnostics.evidence.data_position import DataPosition
from ptt.diagnostics.evidence.environment import Environment
from ptt.diagnostics.evidence.evaluation import Evaluation
from ptt.diagnostics.evidence.excursions import LongDip, Recurrence
from ptt.diagnostics.evidence.machines import Event, Machines
from ptt.diagnostics.evidence.mask import MaskEvidence
from ptt.diagnostics.evidence.mismatch import Freshness, RankMismatch
from ptt.diagnostics.evidence.mismatch_causes import Sign
from ptt.diagnostics.evidence.mismatch_tokens import MismatchPattern
from ptt.diagnostics.evidence.prompt_groups import PromptGroups
from ptt.diagnostics.evidence.recomputed_scalars import ScalarAudit
from ptt.diagnostics.evidence.recorded_batches import Copies, RecordedBatches
from ptt.diagnostics.evidence.reference import KlWitness, Reference
from ptt.diagnostics.evidence.rewards import Rewards
from ptt.diagnostics.evidence.sample_counters import SampleCounters
from ptt.diagnostics.evidence.sample_faults import SampleFaults
from ptt.diagnostics.evidence.segments import Segments
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.evidence.tail_holders import Holders
from ptt.diagnostics.evidence.tails import Tails, ToolUse
from ptt.diagnostics.evidence.tokens_by_step import PairSteps, Signal
from ptt.diagnostics.evidence.validity import Validity
from ptt.diagnostics.model import JsonScalar, Run, SeriesOutcome
from ptt.diagnostics.statistics.arrays import FloatArray, IntArray
from ptt.diagnostics.statistics.mismatch_shape import MismatchShape


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that a rule may look at. None, or an absent key, means that it was not recorded."""

    run: Run
    algorithm: Algorithm = field(default_factory=Algorithm)
    metrics: Mapping[str, Series] = field(default_factory=dict)  # of training, by canonical name
    other: Mapping[str, Series] = field(default_factory=dict)  # of training, without a canonical name, as logged
    described: tuple[SeriesOutcome, ...] = ()  # what every recorded series did, known or not, most informative first
    eval_loss: Series | None = None  # of the evaluations during training
    clock: tuple[IntArray, FloatArray] | None = None  # steps, and seconds of training until the end of each
    seconds: tuple[float, float] | None = None  # that training was logged for, and paused; None: nothing records time
    eval_losses: tuple[Series, ...] = ()  # of further evaluation data sets, each under its own name
    environment: Environment | None = None  # None: no sampled trajectory is recorded
    answers: Answers | None = None  # None: no text of a sampled answer was read
    lengths: Lengths | None = None  # None: no text of a sampled answer was read
    evaluation: Evaluation | None = None  # None: no metric of any evaluation
    excursions: tuple[Recurrence, ...] | None = None  # dips and spikes that recover; None: not looked for
    long_dip: LongDip | None = (
        None  # a long stretch in which the reward lies below both its sides, and something beside
    )
    rewards: Rewards | None = None  # None: neither components nor single rewards
    counters: SampleCounters | None = None  # None: no sample is counted as lost, and no episode tells how it ended
    faults: SampleFaults | None = None  # None: no sample of a step of training is recorded
    position: DataPosition | None = None  # None: the run was not started again
    settings: Mapping[str, JsonScalar] = field(default_factory=dict)  # all of them, by their dotted names
    groups: PromptGroups | None = None  # None: neither rewards by prompt group nor shares of them are recorded
    freshness: Freshness | None = None  # None: no policy version is recorded
    mismatch: MismatchShape | None = None  # None: no engine's logprobs, or too few tokens before or after tool output
    mismatch_pattern: MismatchPattern | None = None  # None: the recorded tokens follow none, or are not recorded
    mismatch_signs: tuple[Sign, ...] = ()  # what recorded tokens tell of the causes of a mismatch
    rank_mismatch: RankMismatch | None = None  # None: no engine's logprobs, or fewer than two ranks are known
    pairs: Mapping[str, PairSteps] = field(default_factory=dict)  # by name of the pair, for pairs that have tokens
    reference: Reference | None = None  # None: not looked for
    kl_witness: KlWitness | None = None  # None: no KL is logged, or no logprobs of policy and reference are recorded
    signal: Signal = field(default_factory=Signal)
    machines: Machines | None = None  # None: nothing is recorded by rank
    events: tuple[Event, ...] = ()
    tails: Tails | None = None
    holders: Holders | None = None  # None: no recorded attribute distinguishes sequences
    recorded_logps: tuple[str, ...] = ()  # which logprobs are, of any sequence
    tails_missing: tuple[str, ...] = ()  # which logprobs would have to be recorded
    tails_reason: str = ""
    tool_use: ToolUse | None = None
    validity: Validity | None = None
    copies: Copies | None = None  # None: no sequence repeats another
    batches: RecordedBatches | None = None  # None: no sequence is recorded
    column_faults: tuple[ColumnFault, ...] = ()  # faults of logprob columns, over a stretch of steps or throughout
    mask: MaskEvidence | None = None
    segments: Segments | None = None  # None: no step is recorded at all
    advantages: AdvantageAudit | None = None  # None: no sample has both a reward and an advantage
    scalars: ScalarAudit | None = None  # None: no token rows, or nothing logged that they could give
    contradictions: tuple[Contradiction, ...] = ()  # identities that logged metrics were held against, broken or not
    required_tools: tuple[str, ...] = ()  # from the settings
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    better: Mapping[str, str] = field(default_factory=dict)  # from the settings: name as logged -> "higher" or "lower"
