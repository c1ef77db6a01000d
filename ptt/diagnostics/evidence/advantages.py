"""Which estimator gives the recorded advantages from the recorded rewards, and for which rows it does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.engines.local import Tokens
from ptt.diagnostics.evidence.advantage_rows import AdvantageRows, advantage_rows
from ptt.diagnostics.evidence.critic_advantages import audit_critic
from ptt.diagnostics.model import Agreement, AuditRow, JsonScalar
from ptt.diagnostics.schema import COMPONENT, FIGURE
from ptt.diagnostics.statistics.advantage_estimators import RewardedBatch, size_by
from ptt.diagnostics.statistics.advantage_faults import codes_of, places
from ptt.diagnostics.statistics.advantage_fit import FITS, MIN_EXPLAINED, Explanation, Fit, Sampled, fit_advantages
from ptt.diagnostics.statistics.arrays import BoolArray, IntArray
from ptt.diagnostics.wording import counted, pct, sig

QUANTITY: Final = "advantage"
AGAINST = "advantages-against-rewards"
OTHERS = "advantages-of-other-samples"
GROUPS = "groups-of-other-prompts"
SINGLE = "groups-of-one"
BATCH = "batch-wide-advantages"
CENTRE = "advantages-off-centre"
NO_BASELINE: Final = "advantages-without-baseline"  # which judges rewards taken for advantages throughout
KINDS: Final[Mapping[str, str]] = {
    "sign": AGAINST,
    "order": AGAINST,
    "shuffle": OTHERS,
    "stale": OTHERS,
    "stride": GROUPS,
    "interleaved": GROUPS,
    "shifted": GROUPS,
    "batch": BATCH,
    "rank": BATCH,
    "centre": CENTRE,
    "reward": CENTRE,
}
"""Of an explanation's name, the rule that judges it; what is not here does no harm, or is not known to."""
MAX_SIZE: Final = 1 << 20  # samples of a prompt
SIZES: Final = ("num_generations", "rollout_n", "n_samples_per_prompt", "num_samples_per_prompt",
                "num_generations_per_prompt", "group_size")  # fmt: skip
GUESSED_SIZES: Final = (8, 16, 4, 32, 64, 2)  # tried where no group is recorded: what trainers sample a prompt
BY_TOKEN: Final = 0.1  # of the sequences: a critic or a penalty by token gives each token its own advantage
LEFT_OVER: Final = frozenset({"reward", "zero", "centre"})  # samples that another way of grouping left without a group
RISING: Final = 0.95  # of the telling samples: their groups are parts of groups that are sound
FEW: Final = 5  # samples and groups that a finding names
MAX_SINGLE: Final = 0.9  # of a step's rows are alone in their group
MIN_SINGLE_STEPS: Final = 5
ZERO: Final = 1e-6  # an advantage that is a sample's reward less itself


@dataclass(frozen=True, kw_only=True)
class AdvantageFault:
    """Samples whose advantage is wrong in one way, exactly those."""

    rule: str  # id of the rule that judges it
    name: str  # of statistics.advantage_fit.Explanation
    said: str
    samples: int
    share: float  # of the telling samples since the first step
    steps: int  # that hold any
    of_steps: int  # recorded since the first
    since: int
    after: int | None  # the last step before it whose advantages were right; None where it holds from the start
    groups: int
    rows: pl.DataFrame  # step, sample, group_id, rank of the samples, in their order
    throughout: bool = False  # the estimator itself, not an exception from another

    @property
    def first_samples(self) -> str:
        """The first few samples, by name."""
        return ", ".join(self.rows["sample"].head(FEW))

    @property
    def first_groups(self) -> str:
        """The first few groups, by name."""
        return ", ".join(self.rows["group_id"].drop_nulls().unique(maintain_order=True).head(FEW))

    @property
    def ranks(self) -> str:
        """The ranks that they lie on; empty where none is recorded."""
        return ", ".join(map(str, self.rows["rank"].drop_nulls().unique().sort().to_list()))


@dataclass(frozen=True, kw_only=True)
class AdvantageAudit:
    """What the advantages turned out to be."""

    rows: tuple[AuditRow, ...]
    faults: tuple[AdvantageFault, ...] = ()
    formula: str | None = None  # of the estimator; None where none is known
    said: str = ""

    def of(self, rule: str) -> AdvantageFault | None:
        """Return the fault that a rule judges, or None."""
        return next((fault for fault in self.faults if fault.rule == rule), None)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what overflows agrees with nothing
def audit_advantages(
    tokens: Tokens | None, trajectories: pl.DataFrame, facts: Mapping[str, JsonScalar]
) -> AdvantageAudit | None:
    """Fit estimators to rewards and advantages by group; None where no sample has both."""
    rows = advantage_rows(tokens, trajectories)
    if rows is None:
        return None
    if rows.by_token > BY_TOKEN:
        return _of_tokens(audit_critic(tokens, rows.by_token))
    chosen = None
    for reading in _readings(rows, facts):
        fit = fit_advantages(reading.sampled)
        fits = fit.known and _agreeing_share(fit) >= FITS
        if chosen is None or fits:
            chosen = reading, fit
        if fits:
            break
    assert chosen is not None, "the recorded groups are the first reading"
    return _audit(rows, *chosen)


def _of_tokens(row: AuditRow) -> AdvantageAudit:
    return AdvantageAudit(rows=(row,), formula=row.formula, said=row.said)


def _agreeing_share(fit: Fit) -> float:
    return float(fit.agreeing[fit.telling].mean()) if fit.telling.any() else 1.0


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """Rows as they are fitted, with what is assumed of them."""

    frame: pl.DataFrame
    sampled: Sampled
    assumed: str = ""  # completes "GRPO, ..."; empty: the recorded groups and rewards
    positional: bool = False  # groups are cut by position, since none are recorded


def _readings(rows: AdvantageRows, facts: Mapping[str, JsonScalar]) -> Iterator[_Reading]:
    """Yield the rows as recorded, then with groups over several steps, by position, and with other rewards."""
    named = next((int(size) for name in SIZES if (size := _group_size(facts.get(name)))), 0)
    if not rows.grouped:
        yield from _by_position(rows.frame, named)
        return
    frame = rows.frame.filter(pl.col("group_id").is_not_null())
    yield _Reading(frame=frame, sampled=_sampled(frame, named))
    yield from _other_groups(frame, named)
    if len(rows.components) > 1:
        whole = frame.with_columns(reward=pl.sum_horizontal(rows.components))
        yield _Reading(frame=whole, sampled=_sampled(whole, named), assumed="of the sum of the reward's components")
    for name in rows.components:
        part = frame.with_columns(reward=pl.col(name)).filter(pl.col("reward").is_finite())
        if part.height:
            title = COMPONENT.removeprefix(FIGURE) + name.removeprefix(COMPONENT)
            yield _Reading(frame=part, sampled=_sampled(part, named), assumed=f"of {title}, not of the whole reward")


def _group_size(value: JsonScalar) -> float:
    """Return a setting as a group size; 0 where it can be none."""
    number = float(value) if isinstance(value, int | float) and abs(value) <= MAX_SIZE else 0.0
    return number if number >= 1 and not isinstance(value, bool) else 0.0


def _other_groups(frame: pl.DataFrame, named: int) -> Iterator[_Reading]:
    """Yield what a recorded group may be but the samples of one step with one id.

    The rows of a trajectory may count once; an id may be that of a prompt, which a batch holds twice; and the samples
    of a group may be spread over several steps that train on one generation.
    """
    each = frame.unique(["step", "group_id", "trajectory_id", "reward", "advantage"], keep="first", maintain_order=True)
    if frame["trajectory_id"].is_not_null().all() and each.height < frame.height:
        yield _Reading(frame=each, sampled=_sampled(each, named), assumed="of every trajectory once")
    sizes = frame.group_by("step", "group_id").len("size")["size"].to_numpy().astype(np.int64)
    size = named if named > 1 and not np.any(sizes % named) else int(np.gcd.reduce(sizes))
    if size > 1 and sizes.max() > size:
        nth = pl.int_range(pl.len()).over("step", "group_id") // size
        cut = frame.with_columns(group_id=pl.format("{}#{}", "group_id", nth))
        yield _Reading(frame=cut, sampled=_sampled(cut, size), assumed=f"of every {size} samples of a prompt")
    across = frame.unique(["group_id", "sample", "reward", "advantage"], keep="first", maintain_order=True)
    if across.group_by("group_id").len("size")["size"].to_numpy().max() > sizes.max():
        generation = across.with_columns(step=pl.col("step").min().over("group_id")).sort("step", maintain_order=True)
        whole = _sampled(generation, named)
        yield _Reading(frame=generation, sampled=whole, assumed="over all steps that train on a group")


def _by_position(frame: pl.DataFrame, named: int) -> Iterator[_Reading]:
    """Yield rows without group ids cut into blocks of samples in their order."""
    for size in dict.fromkeys((named,) if named > 1 else GUESSED_SIZES):
        number = _numbers(frame)
        place = places(codes_of(frame["step"].to_numpy()), number)
        cut = frame.with_columns(group_id=pl.format("{}-{}", "step", pl.Series(place // size)))
        yield _Reading(
            frame=cut, sampled=_sampled(cut, named), assumed=f"of every {size} samples in their order", positional=True
        )


def _numbers(frame: pl.DataFrame) -> IntArray:
    """Return by which the samples of a step are ordered: the last number in their ids where these differ."""
    number = frame["sample"].str.extract_all(r"\d+").list.last().cast(pl.Int64, strict=False)
    apart = frame.with_columns(number=number).select(pl.struct("step", "number").n_unique()).item()
    usable = not number.null_count() and apart == frame.select(pl.struct("step", "sample").n_unique()).item()
    found: IntArray = (number if usable else frame["place"]).to_numpy().astype(np.int64)
    return found


def _sampled(frame: pl.DataFrame, named: int) -> Sampled:
    step = codes_of(frame["step"].to_numpy())
    group = codes_of(step, _codes(frame["group_id"]))
    rank = frame["rank"]
    sizes = np.bincount(np.bincount(group))
    length = frame["length"].cast(pl.Float64)
    batch = RewardedBatch(
        reward=frame["reward"].to_numpy(),
        group=group,
        batch=step,
        rank=None if rank.null_count() else codes_of(step, rank.cast(pl.Int64).to_numpy()),
        length=None if length.null_count() else length.to_numpy(),
    )
    usual = int(len(sizes) - 1 - np.argmax(sizes[::-1]))
    size = named if named in np.flatnonzero(sizes) else usual
    return Sampled(batch=batch, advantage=frame["advantage"].cast(pl.Float64).to_numpy(), number=_numbers(frame),
                   size=size)  # fmt: skip


def _codes(names: pl.Series) -> IntArray:
    codes: IntArray = names.rank("dense").to_numpy().astype(np.int64)
    return codes


def _audit(rows: AdvantageRows, reading: _Reading, fit: Fit) -> AdvantageAudit:
    if not fit.known:
        return AdvantageAudit(rows=(_unknown(rows, reading, fit),))
    faults = _merged(_faults(reading, fit))
    assumed = reading.assumed if fit.estimator.grouped or not reading.positional else ""
    said = f"{fit.estimator.said}, {assumed}" if assumed else fit.estimator.said
    share = _agreeing_share(fit)
    steps = reading.frame["step"].n_unique()
    wrong = ~fit.agreeing & fit.telling
    bad = reading.frame.filter(pl.Series(wrong))["step"].unique()
    worst = max(faults, key=lambda fault: fault.samples, default=None)
    small = size_by(reading.sampled.batch.group) < reading.sampled.size
    missing = float((fit.parts & small)[wrong].mean()) if wrong.any() else 1.0
    agrees = worst is None and (share >= FITS or missing >= FITS)
    row = AuditRow(
        quantity=QUANTITY,
        agreement=Agreement.AGREES if agrees else Agreement.DIFFERS,
        said=said,
        logged_as=QUANTITY,
        formula=fit.estimator.formula,
        error=fit.error,
        steps=steps,
        agreeing=steps - len(bad),
        since=None if not len(bad) else int(bad.min()),  # type: ignore[arg-type]
        reason=_exceptions(fit, wrong),
        finding=_judged_by(fit, worst),
    )
    return AdvantageAudit(rows=(row,), faults=faults, formula=fit.estimator.formula, said=said)


def _judged_by(fit: Fit, worst: AdvantageFault | None) -> str | None:
    if worst is None:
        return NO_BASELINE if fit.estimator.formula == "reward" else None
    return worst.rule


def _exceptions(fit: Fit, wrong: BoolArray) -> str:
    """Say what the samples are that the estimator does not give."""
    if not wrong.any():
        return ""
    parts = [f"{int(one.rows.sum())}: {one.said}" for one in fit.explanations]
    told = sum(int(one.rows.sum()) for one in fit.explanations)
    left = int(wrong.sum()) - told
    parts += [f"{left}: in groups that the records hold only in part"] if left > 0 else []
    return f"but for {counted(max(told, int(wrong.sum())), 'sample(s)')} ({'; '.join(parts)})"


def _unknown(rows: AdvantageRows, reading: _Reading, fit: Fit) -> AuditRow:
    steps = reading.frame["step"].n_unique()
    if not rows.grouped:
        return AuditRow(
            quantity=QUANTITY, agreement=Agreement.NOT_CHECKABLE, said="no estimator gives the recorded advantages",
            logged_as=QUANTITY, error=fit.error, steps=steps, missing=("group_id",),
            reason="no prompt group is recorded, and none of the samples' order gives the advantages",
        )  # fmt: skip
    telling = int(fit.telling.sum())
    if telling < MIN_EXPLAINED:
        return AuditRow(
            quantity=QUANTITY, agreement=Agreement.NOT_CHECKABLE, logged_as=QUANTITY, steps=steps,
            said=f"only {counted(telling, 'sample(s)')} of groups with different rewards",
            reason="too few to tell one estimator from another",
        )  # fmt: skip
    if float((~fit.lines.broken)[fit.telling].mean()) >= RISING:
        return AuditRow(
            quantity=QUANTITY, agreement=Agreement.NOT_CHECKABLE,
            said="advantages rise with the reward on a line in every group, as those of parts of groups do",
            logged_as=QUANTITY, error=fit.error, steps=steps, missing=("all samples of each group",),
            reason="the records hold only a part of each group, or of each batch",
        )  # fmt: skip
    rising = float(fit.lines.rising[fit.telling].mean())
    return AuditRow(
        quantity=QUANTITY, agreement=Agreement.DIFFERS, said=f"none fits; the nearest is {fit.estimator.said}",
        logged_as=QUANTITY, error=fit.error, steps=steps,
        reason=f"{pct(rising)} rise with the recorded reward on a line within their group; they may follow another "
        f"reward, a penalty or a critic; typically off by {sig(100 * fit.error)}%",
    )  # fmt: skip


def _faults(reading: _Reading, fit: Fit) -> Iterator[AdvantageFault]:
    mixed = any(KINDS.get(one.name) == GROUPS for one in fit.explanations)
    for one in fit.explanations:
        rule = GROUPS if mixed and one.name in LEFT_OVER else KINDS.get(one.name)
        if rule is not None and (mixed or one.rows.sum() >= MIN_EXPLAINED):
            alone = rule == BATCH and _agreeing_share(fit) <= 1 - FITS
            yield replace(_fault(reading.frame, fit, one, rule), throughout=alone)
    whole = fit.estimator
    if reading.sampled.size > 1 and (whole.whole_batch or (not whole.centred and whole.grouped)):
        rule = BATCH if whole.whole_batch else CENTRE
        held = Explanation(name="batch" if whole.whole_batch else "centre", said=whole.said,
                           rows=fit.agreeing & fit.telling)  # fmt: skip
        if held.rows.sum() >= MIN_EXPLAINED:
            yield replace(_fault(reading.frame, fit, held, rule), throughout=True)
    single = _single(reading)
    if single is not None:
        yield _fault(reading.frame, fit, single, SINGLE)


def _single(reading: _Reading) -> Explanation | None:
    """Return samples alone in their group, without a signal, at steps that follow or precede whole groups."""
    batch = reading.sampled.batch
    alone = np.bincount(batch.group)[batch.group] == 1
    share = np.bincount(batch.batch, weights=alone) / np.bincount(batch.batch)
    steps = share >= MAX_SINGLE
    others = ~steps & (share <= 1 - MAX_SINGLE)
    rows = np.bincount(batch.batch)
    if steps.sum() < MIN_SINGLE_STEPS or others.sum() < MIN_SINGLE_STEPS:
        return None
    if np.median(rows[steps]) < MAX_SINGLE * np.median(rows[others]):  # a part of the batch is recorded there
        return None
    found = alone & steps[batch.batch] & (np.abs(reading.sampled.advantage) <= ZERO)
    if found.sum() < MAX_SINGLE * (alone & steps[batch.batch]).sum():
        return None
    return Explanation(name="single", said="alone in their group", rows=found)


def _fault(frame: pl.DataFrame, fit: Fit, one: Explanation, rule: str) -> AdvantageFault:
    step = frame["step"].to_numpy()
    since = int(step[one.rows].min())
    later = step >= since
    telling = fit.telling | one.rows
    good = np.setdiff1d(step[fit.telling & fit.agreeing & ~later], step[~fit.agreeing & fit.telling])
    rows = frame.filter(pl.Series(one.rows)).select("step", "sample", "group_id", "rank")
    return AdvantageFault(
        rule=rule,
        name=one.name,
        said=one.said,
        samples=int(one.rows.sum()),
        share=float(one.rows[later & telling].mean()),
        steps=rows["step"].n_unique(),
        of_steps=len(np.unique(step[later])),
        since=since,
        after=int(good.max()) if len(good) else None,
        groups=rows.select("step", "group_id").n_unique(),
        rows=rows,
    )


def _merged(faults: Iterator[AdvantageFault]) -> tuple[AdvantageFault, ...]:
    """Return one fault a rule; samples left without a group by another way of grouping belong to that."""
    found: dict[str, AdvantageFault] = {}
    for fault in faults:
        known = found.get(fault.rule)
        if known is None:
            found[fault.rule] = fault
            continue
        rows = pl.concat([known.rows, fault.rows]).sort("step", maintain_order=True)
        found[fault.rule] = replace(
            known,
            samples=known.samples + fault.samples,
            share=min(1.0, known.share + fault.share),
            steps=rows["step"].n_unique(),
            since=min(known.since, fault.since),
            of_steps=max(known.of_steps, fault.of_steps),
            groups=rows.select("step", "group_id").n_unique(),
            rows=rows,
        )
    return tuple(found.values())
