"""Name what outside of the policy may have brought a finding about, ranked by all that the run's files show.

A sign is one look at the run around the finding's onset: a line of the console, an evaluation beside training, lengths,
saved rows, a setting, a restart. The causes and what each sign weighs are in evidence/failure_causes.toml.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.evidence import Evidence
from ptt.diagnostics.evidence.evaluation import LENGTHS
from ptt.diagnostics.evidence.length_limits import JUDGES, LONGEST, as_limit, evaluation_limit, length_limits
from ptt.diagnostics.evidence.mismatch_causes import MismatchAnswer, Sign, rank_causes, sign, table_of
from ptt.diagnostics.evidence.mismatch_settings import OF_EVALUATION
from ptt.diagnostics.evidence.sample_counters import MISSING, SILENT
from ptt.diagnostics.evidence.series import Series
from ptt.diagnostics.model import LIKELY, Finding
from ptt.diagnostics.parsers.io.console_incidents import UNREAD, without_loggers
from ptt.diagnostics.wording import pct, sig

TABLE: Final = "failure_causes.toml"
KINDS: Final[Mapping[str, frozenset[str]]] = {
    "lost": frozenset({
        "samples-lost", "trained-on-failures", "silent-timeouts", "survivors-only", "empty-responses",
    }),
    "reward": frozenset({
        "reward-fell", "reward-dips", "reward-stuck", "reward-jump", "length-collapse", "length-inflation",
        "truncated-share", "entropy-explosion", "kl-over-target", "right-answers-unpaid", "source-never-rewarded",
    }),
    "signal": frozenset({"no-signal-groups", "gradient-vanished", "frozen-loss"}),
    "slow": frozenset({"throughput-drop", "slow-steps", "run-stalled"}),
    "evaluation": frozenset({"eval-not-following", "split-gap", "reward-hacking"}),
}  # fmt: skip
LEAST: Final = 2.0  # nats: one clear sign, or two that agree
LOGGERS: Final = compiled(r"^(?:\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[,.\d]*\s+)?(?:(?:[\w.]+:\d+|\[\w+\]|[A-Z]+)\s+)*")
MAX_QUOTE: Final = 110  # characters
MARK: Final = 40  # characters by which a quoted line is known again
MAX_SIGNS: Final = 3  # in a sentence; the evidence holds all
MAX_LINES: Final = 2  # wordings of the console, the most frequent
WIDTH: Final = 20  # values before an onset, and after it, that are compared
MIN_VALUES: Final = 3
CHANGED: Final = 0.15  # of the level before, and beyond the scatter of single values
FOLLOWS: Final = 0.3  # of the reward's own relative change
LINES: Final[Mapping[str, re.Pattern[str]]] = {
    name: compiled(pattern)
    for name, pattern in {
        "gold": rf"(?i){UNREAD.pattern}",
        "quota": r"(?i)\bquota\b|limit of \d+ concurrent|reached (?:its|the) (?:limit|maximum)"
        r"|too many (?:open|concurrent|active|sessions|sandboxes|containers|instances)|\bno free \w+"
        r"|pool (?:is )?(?:full|exhausted)|resource.?exhausted|\borphan|\bunreleased\b|\A(?!.*\bmemory\b).*\bleak",
        "context": r"(?i)context (?:length|window)|max_model_len|maximum context|input is too long|prompt is too long",
        "none": r"\b(?:is|are|was|returned) None\b",
        "scorer": r"(?i)\b\w*(?:reward|scor(?:e|ing)|verif(?:y|ier|ication)|judge|grad(?:er|ing)|rubric)\w*",
        "parse": r"(?i)\bpars(?:e|er|ing)\b|\bextract\w*|malformed",
        "skipped": r"(?i)\b(?:no (?:tokens|triplets|output)|empty (?:trajectory|response|output))\b.{0,80}\bskip",
        "captured": r"(?i)\b(?:no|without) (?:interactions|traces|token (?:ids|data))\b",
        "empty": r"(?i)\bempty (?:trajector\w+|response|output|completion|generation)|\bno (?:tokens|triplets|output)\b"
        r"|zero trainable|\bproduced no\b",
        "transport": r"NCCL|NET/\w+|\bRDMA\b|InfiniBand",
        "paused": r"(?i)\A(?!.*\b(?:resumed|took|done|finished)\b).*(?:\bpaused\b|\basleep\b|\bwake.?up\b)",
        "tool": r"(?i)\b(?:tool|api|function)(?:[ _]?call|[ _]execution)s?(?: \S+)? (?:failed|error|timed out)",
        "sandbox": r"(?i)sandbox|\bcontainer\b|docker|\bpods?\b|\bsession\b|browser|preempt",
        "died": r"(?i)\bkilled\b|\bdied\b|\bOOM\b|out of memory|\bexited\b|broken ?(?:process)? ?pool|pool\w* broken"
        r"|terminated abruptly",
        "again": r"(?i)\babort|\bretr(?:y|ied|ying)|re-?queu|re-?schedul|\bdiscard|\bstale\b|\bevict",
        "waiting": r"(?i)\bwaiting (?:for|on)\b|no progress|\bstuck\b",
        "server": r"(?i)connect|refused|unreachable|unavailable|\bHTTP|\bserver\b|network|rate.?limit",
        "timeout": r"(?i)time.?d?.?out|\bdeadline exceeded\b|\btime budget\b",
        "episode": r"(?i)\b(?:rollout|episode|trajectory|agent|environment|env)s?\b.{0,40}\b(?:fail|error|exception)",
    }.items()
}
"""What a line of trouble speaks of; the first counts."""
GROUP_SIZES: Final = compiled(
    r"(?:^|\.)(?:group_size|num_generations|n_samples_per_prompt|num_samples_per_prompt|num_generations_per_prompt"
    r"|samples_per_prompt|num_return_sequences_in_group|rollouts_per_example|rollout\.n)$"
)
GROUP_BASELINES: Final = compiled(r"(?i)grpo|rloo|leave.?one|group")
BASELINES: Final = compiled(r"(?:adv_estimator|advantage_estimator|reward_normalization\.grouping|mean_level)$")
FILTERS: Final = compiled(r"(?:filter_groups\.metric|dynamic_sampling\.metric|filter_metric)$")
SWITCHES: Final = compiled(r"(?:filter_groups|dynamic_sampling)\.enabled?$|enable_filter_groups$")
DYNAMIC: Final = compiled(r"(?:^|\.)(?:use_dynamic_sampling|dynamic_sampling(?:\.enabled?)?)$")
SHAPING: Final = compiled(r"(?:reward_shaping|overlong_buffer|overlong_penalty)\.enabled?$")
MASK_CUT: Final = compiled(r"(?:^|\.)(?:mask_truncated_completions|overlong_filter(?:ing)?)$")
SHAPED: Final = frozenset({"seq_reward", "seq_final_reward", "score", "reward", "scores"})
JUDGE_LIMITS: Final = compiled(r"(?:max_model_len|max_input_tokens|context_length|max_context\w*)$")
ADAPTERS: Final = frozenset({"vllm_enable_lora", "enable_lora"})
FAILS: Final = compiled(
    r"(?i)fail|error|time.?d?.?out|abort|evict|dropp|invalid|malform|retr(?:y|ied)|unavail|skipped|empty|unscored"
)
"""Names of metrics that count what goes wrong."""
OF_ANSWERS: Final = compiled(r"(?i)format|malform|invalid")
"""Words of failures that are the policy's own: answers that nothing can read."""
LEAST_SHARE: Final = 0.05  # of the samples, or one in 20 of them a step
ROSE: Final = 3.0  # times the level before
TIMES: Final = compiled(r"(?i)tim(?:e|ing)|seconds|_s$|duration")
PARTS: Final[Mapping[str, re.Pattern[str]]] = {
    "scoring": re.compile(r"(?i)reward|scor(?:e|ing)|verif|judge|grad(?:er|ing)"),
    "transport": re.compile(
        r"(?i)sync|broadcast|all_?reduce|update_weights|refit|transfer|policy_training|update_actor"
    ),
    "tools": re.compile(r"(?i)\benv\b|env_|tool|sandbox|non_generation"),
}
MOST: Final = 0.5  # of what a step takes more
LENGTH: Final = "len/response_mean"
MISMATCH: Final = ("mismatch/logp_abs_mean", "mismatch/kl", "mismatch/prob_error", "mismatch/prob_diff", "kl/ref")
JUMPED: Final = 5.0  # times its level before, in one step
JUNK_AT_ONCE: Final = 0.2  # of its level before is left of a share of sound answers
VANISHED: Final = 0.02  # of its level before is left of a reward
FORMAT: Final = compiled(r"(?i)format|well.?formed|parse")
NEARLY_ALL: Final = 0.95  # of the right answers
FEW_STEPS: Final = 2  # a pass over the data: then the batch that ends it weighs
NEARS: Final = 0.5  # of a limit: the mean of answers is there when many of them are cut
REACHES: Final = 0.9
HALF: Final = 0.5
ALL_EQUAL: Final = 0.98  # of the groups
NOTHING: Final = 1.0  # tokens: an end token, or a placeholder
RARELY: Final = 5  # logged steps an evaluation, at least: else most onsets follow one
ABORTS: Final = compiled(r"(?i)^(?!console_lines/|.*(?:length|non_?abort)).*abort")


@dataclass(frozen=True, kw_only=True)
class Said:
    """A line of the console that begins with a finding, or was there all along."""

    text: str
    count: float

    @property
    def quote(self) -> str:
        """What it says, without what loggers put before it."""
        said = LOGGERS.sub("", without_loggers(self.text))
        said = said if said[:1].isalnum() else self.text  # a name in brackets is no logger's
        return said if len(said) <= MAX_QUOTE else f"{said[:MAX_QUOTE]}…"


@dataclass(frozen=True, kw_only=True)
class Around:
    """A finding, and where its signs are looked for."""

    finding: Finding
    evidence: Evidence
    lines: Sequence[Said]
    restart: int | None  # the last step before a restart that it begins with, or soon after

    @property
    def onset(self) -> int | None:
        """The step at which it began; None: it was there from the start."""
        first = self.evidence.run.first_step
        onset = self.finding.onset_step
        return None if onset is None or (first is not None and onset <= first + 1) else onset

    def levels(self, series: Series, *, least: int = MIN_VALUES) -> tuple[float, float] | None:
        """Return a series' median before and from the onset on; without one, of its first and its last values."""
        steps, values = series.finite()
        parts = (
            (values[:WIDTH], values[-WIDTH:])
            if self.onset is None
            else (values[steps < self.onset][-WIDTH:], values[steps >= self.onset][:WIDTH])
        )
        if min(map(len, parts)) < least:
            return None
        return float(np.median(parts[0])), float(np.median(parts[1]))

    def change(self, series: Series, *, least: int = MIN_VALUES) -> tuple[float, float, float] | None:
        """Return both levels and the relative change, 0 where it is within the scatter of single values."""
        found = self.levels(series, least=least)
        if found is None:
            return None
        before, after = found
        values = series.finite()[1]
        scatter = float(np.median(np.abs(np.diff(values)))) if len(values) > 1 else 0.0
        share = (after - before) / abs(before) if before else 0.0
        return before, after, share if abs(after - before) > scatter else 0.0


def with_cause(finding: Finding, evidence: Evidence, lines: Sequence[Said], restart: int | None) -> Finding:
    """Add the likeliest causes to a finding that names none itself, where signs speak for one outside of the policy."""
    kinds = {kind for kind, ids in KINDS.items() if finding.id in ids}
    if not kinds or finding.likely_cause:
        return finding
    around = Around(finding=finding, evidence=evidence, lines=lines, restart=restart)
    names = [name for name, entry in table_of(TABLE).items() if kinds.intersection(entry.get("of", ()))]
    answer = rank_causes(_signs(around), framework=evidence.run.framework, table=TABLE, names=names)
    if answer is None or answer.first.score < LEAST or answer.first.name == "policy":
        return finding
    return replace(
        finding,
        context=(*finding.context, *_said(answer, said=" ".join((finding.claim, *finding.context)))),
        evidence={**finding.evidence, **answer.evidence},
        causes=tuple(cause.title for cause in answer.causes if cause.name != "policy"),
        confirm=(answer.experiment, *finding.confirm),
        next=(answer.setting, *finding.next),
    )


def _said(answer: MismatchAnswer, *, said: str) -> Iterator[str]:
    """Yield the likely cause, and what speaks for it, less what is `said` already."""
    first, *others = answer.causes
    told = f"{LIKELY}{first.title}"
    if answer.indistinguishable and others[0].name != "policy":
        told += f", or {others[0].title} (to tell them apart: {answer.experiment})"
    yield told
    fresh = [text for text in first.for_ if (text.partition('"')[2].rstrip('"')[:MARK] or text) not in said]
    if fresh:
        yield f"for it speaks: {'; '.join(fresh[:MAX_SIGNS])}"


def _sign(which: str, /, **numbers: str) -> Sign:
    return sign(which, table=TABLE, **numbers)


def _signs(around: Around) -> Iterator[Sign]:
    yield from _of_lines(around)
    yield from _of_failure_metrics(around)
    yield from _of_times(around)
    yield from _of_restart(around)
    yield from _of_onset(around)
    yield from _of_evaluation(around)
    yield from _of_lengths(around)
    yield from _of_texts(around)
    yield from _of_groups(around)
    yield from _of_rows(around)
    yield from _of_settings(around)
    yield from _of_evaluation_limit(around)
    yield from _of_data(around)


def _of_lines(around: Around) -> Iterator[Sign]:
    told = set[str]()
    for line in sorted(around.lines, key=lambda one: -one.count):
        name = next((name for name, pattern in LINES.items() if pattern.search(line.text)), None)
        if name is not None and name not in told and len(told) < MAX_LINES:
            told.add(name)
            yield _sign(f"line_{name}", count=f"{line.count:,.0f}", quote=line.quote)


def _of_failure_metrics(around: Around) -> Iterator[Sign]:
    """Look for the metric of failures that rises most where the finding begins: its name says of what."""
    risen: list[tuple[float, str, Sign]] = []
    for series in (*around.evidence.metrics.values(), *around.evidence.other.values()):
        told = FAILS.search(series.raw_name) and not series.raw_name.startswith("console_lines/")
        found = around.change(series) if told else None
        if found is None or found[1] < LEAST_SHARE or found[1] < ROSE * max(found[0], 0.0):
            continue
        name = _fails_by_name(series.raw_name)
        if name is not None and (name != "context" or any(map(JUDGES.search, around.evidence.settings))):
            text = f"{series.raw_name} rises from {sig(found[0])} to {sig(found[1])}"
            risen.append((found[1], series.raw_name, replace(_sign(f"line_{name}", count="", quote=""), text=text)))
    if risen:
        yield max(risen, key=lambda one: one[:2])[2]


def _fails_by_name(raw: str) -> str | None:
    """Return what a metric of failures speaks of, by the last part of its name; None for what the policy writes."""
    words = raw.rpartition("/")[2].replace("_", " ")
    if OF_ANSWERS.search(words):
        return None
    return next((name for name, pattern in LINES.items() if pattern.search(words)), None)


def _of_times(around: Around) -> Iterator[Sign]:
    """Look for the part of a step's time that makes up most of what the step takes more."""
    step = around.evidence.metrics.get("time/step")
    if step is None or around.finding.id not in KINDS["slow"] or (whole := around.levels(step)) is None:
        return
    parts = []
    for series in (*around.evidence.metrics.values(), *around.evidence.other.values()):
        name = next((name for name, pattern in PARTS.items() if pattern.search(series.raw_name)), None)
        found = around.levels(series) if name is not None and TIMES.search(series.raw_name) else None
        if name is not None and found is not None and found[1] - found[0] >= MOST * (whole[1] - whole[0]) > 0:
            parts.append((found[1] - found[0], name, series.raw_name, found))
    if parts:
        _, name, raw, found = max(parts, key=lambda part: part[0])
        yield _sign(f"time_{name}", name=raw, before=sig(found[0]), after=sig(found[1]))


def _of_restart(around: Around) -> Iterator[Sign]:
    onset = around.onset
    if around.restart is None or onset is None:
        return
    later = onset - around.restart
    yield _sign("restart", at=str(around.restart), later="with" if later <= 1 else f"{later} steps after")
    for name in MISMATCH:
        series = around.evidence.metrics.get(name)
        found = None if series is None else around.levels(series)
        if series is not None and found is not None and abs(found[1]) >= JUMPED * abs(found[0]) > 0:
            yield _sign("mismatch_at_onset", name=series.raw_name, before=sig(found[0]), after=sig(found[1]))
            break
    for series in around.evidence.other.values():
        found = around.levels(series) if FORMAT.search(series.raw_name) else None
        if found is not None and 0 <= found[1] < JUNK_AT_ONCE * found[0]:
            yield _sign("junk_at_once", name=series.raw_name, before=sig(found[0]), after=sig(found[1]))
            break
    for key, value in around.evidence.settings.items():
        if key.split(".")[-1] in ADAPTERS and value is True:
            yield _sign("adapter_in_engine", setting=f"{key}={value}")
            break


def _of_onset(around: Around) -> Iterator[Sign]:
    """Look at what an onset follows, and whether anything is left of the reward from there on."""
    onset, evaluation = around.onset, around.evidence.evaluation
    if onset is None:
        return
    reward = around.evidence.metrics.get("reward/mean")
    found = None if reward is None else around.levels(reward)
    if reward is not None and found is not None and found[0]:
        steps, values = reward.finite()
        if not values[steps >= onset].any():
            yield _sign("nothing_left", name=reward.raw_name, before=sig(found[0]))
    figures = evaluation.figures if evaluation is not None else ()
    evaluated = {int(step) for one in figures if one.outcome for step in one.series.finite()[0]}
    at = max((step for step in evaluated if onset - 1 <= step <= onset), default=None)
    if at is not None and len(evaluated) * RARELY <= (around.evidence.run.step_count or 0):
        yield _sign("after_evaluation", at=str(at))


def _of_evaluation(around: Around) -> Iterator[Sign]:
    """Compare what an evaluation does with the reward: it is scored beside training."""
    evidence = around.evidence
    reward = evidence.metrics.get("reward/mean")
    moved = None if reward is None else around.change(reward)
    figures = evidence.evaluation.figures if evidence.evaluation is not None else ()
    beside = next(
        (
            (one.series, found)
            for one in figures
            if one.outcome and (found := around.change(one.series, least=1)) is not None
        ),
        None,
    )
    if moved is None:
        return
    if beside is not None:
        series, (before, after, share) = beside
        numbers = {"name": series.raw_name, "before": sig(before), "after": sig(after)}
        if moved[2] <= -CHANGED:
            yield _sign("evaluation_falls" if share <= FOLLOWS * moved[2] else "evaluation_stays", **numbers)
        elif moved[2] >= CHANGED and share < FOLLOWS * moved[2] and around.lines:
            numbers = {"eval_before": sig(before), "eval_after": sig(after), "name": series.raw_name}
            scored = any(LINES[name].search(line.text) for line in around.lines for name in ("gold", "scorer"))
            which = "pays_what_fails" if scored else "rises_by_selection"
            yield _sign(which, before=sig(moved[0]), after=sig(moved[1]), **numbers)
    outcomes = evidence.rewards.outcomes.values() if evidence.rewards is not None else ()
    for series in outcomes:
        found = None if LENGTHS.search(series.raw_name) else around.change(series)
        if found is not None and found[2] >= CHANGED and moved[2] <= -CHANGED:
            yield _sign("outcome_rises", name=series.raw_name, before=sig(found[0]), after=sig(found[1]))
            return


def _of_lengths(around: Around) -> Iterator[Sign]:
    series = around.evidence.metrics.get(LENGTH)
    found = None if series is None else around.change(series)
    if series is None or found is None:
        return
    before, after, share = found
    if after <= NOTHING < before:
        yield _sign("nothing_written", name=series.raw_name, before=sig(before), after=sig(after))
    elif abs(share) >= CHANGED:
        name = "longer" if share > 0 else "shorter"
        yield _sign(name, name=series.raw_name, before=sig(before), after=sig(after))
    limit = min((value for _, value in length_limits(around.evidence.settings, evaluation=False)), default=0.0)
    if share >= CHANGED and NEARS * limit <= after <= limit:
        yield _sign("near_limit", name=series.raw_name, limit=f"{limit:.0f}", after=sig(after))
    reach = max((float(np.median(one.finite()[1][-WIDTH:])) for one in _longest(around.evidence)), default=after)
    for key, value in around.evidence.settings.items():
        if not JUDGES.search(key):
            continue
        number = as_limit(value)
        if JUDGE_LIMITS.search(key) and number is not None and reach >= REACHES * number:
            yield _sign("judge_limit", after=sig(reach), limit=f"{number:.0f}", setting=f"{key}={value}")
            return


def _of_texts(around: Around) -> Iterator[Sign]:
    """Look whether the reward vanishes at once while what the policy writes stays as it was, by length and entropy."""
    metrics = around.evidence.metrics
    reward = metrics.get("reward/mean")
    moved = None if reward is None else around.levels(reward)
    if around.onset is None or moved is None or not 0 <= moved[1] <= VANISHED * moved[0]:
        return
    told = []
    for name in (LENGTH, "entropy"):
        series = metrics.get(name)
        found = None if series is None else around.levels(series)
        if series is None or found is None or abs(found[1] - found[0]) > CHANGED * abs(found[0]):
            return
        told.append(f"{series.raw_name} ({sig(found[0])} → {sig(found[1])})")
    yield _sign("texts_unchanged", before=sig(moved[0]), after=sig(moved[1]), names=" and ".join(told))


def _of_groups(around: Around) -> Iterator[Sign]:
    """Look whether groups come to earn all the same from one step to the next, while the reward is no best or worst."""
    silent, reward = (around.evidence.metrics.get(name) for name in ("reward/zero_std_frac", "reward/mean"))
    if silent is None or reward is None or around.onset is None:
        return
    steps, shares = silent.finite()
    place = int(np.searchsorted(steps, around.onset))
    at_once = 0 < place < len(steps) and shares[place - 1] <= HALF and np.median(shares[place:][:WIDTH]) >= ALL_EQUAL
    found, values = around.levels(reward), reward.finite()[1][reward.finite()[0] >= around.onset]
    if at_once and found is not None and np.ptp(values) > CHANGED * abs(found[0]):
        text = {"before": pct(float(shares[place - 1])), "after": pct(float(np.median(shares[place:][:WIDTH])))}
        yield _sign("equal_at_once", low=sig(float(values.min())), high=sig(float(values.max())), **text)


def _longest(evidence: Evidence) -> Iterator[Series]:
    for series in (*evidence.metrics.values(), *evidence.other.values()):
        if LONGEST.search(series.raw_name) and len(series.finite()[0]):
            yield series


def _of_rows(around: Around) -> Iterator[Sign]:
    """Look at the saved samples: those without a token, and right answers that are not paid."""
    evidence, onset = around.evidence, around.onset
    episodes = evidence.counters.episodes if evidence.counters is not None else None
    if episodes is not None and SILENT in episodes.causes and (failed := episodes.failed.sum()):
        late = np.ones(len(episodes.steps), bool) if onset is None else episodes.steps >= onset
        asked, before = episodes.asked[late].sum(), episodes.asked[~late].sum()
        if asked and episodes.failed[late].sum() > HALF * failed:
            earlier = float(episodes.failed[~late].sum() / before) if before else 0.0
            yield _sign("rows_empty", share=pct(float(episodes.failed[late].sum() / asked)), before=pct(earlier))
    if episodes is not None and episodes.causes and around.finding.id in KINDS["lost"]:
        told, count = next(iter(episodes.causes.items()))
        name = None if told == SILENT else _fails_by_name(told)
        if name is not None:
            text = f'{count} recorded episodes end with "{told}"'
            yield replace(_sign(f"line_{name}", count="", quote=""), text=text)
    faults = evidence.faults
    if faults is not None and faults.unpaid_by_length is not None:
        long, short = faults.unpaid_by_length
        yield _sign("unpaid_long", long=pct(long), short=pct(short))
    elif faults is not None and faults.unpaid is not None and faults.unpaid.share >= CHANGED:
        share = faults.unpaid.share
        of_all = "unpaid_evaluated" if faults.unpaid_evaluated else "unpaid_all"
        yield _sign(of_all if share >= NEARLY_ALL else "unpaid", share=pct(share))
        if evidence.events and not around.lines:
            yield _sign("unsaid")
    lost = evidence.counters.lost if evidence.counters is not None else None
    if around.finding.evidence.get("trained_on") is True:
        yield _sign("trained_on")
    elif lost is not None and lost.name == MISSING:
        yield _sign("not_kept")
    elif around.finding.evidence.get("trained_on") is False:
        yield _sign("not_trained_on")


def _of_settings(around: Around) -> Iterator[Sign]:
    settings = around.evidence.settings
    by_group = any(BASELINES.search(key) and GROUP_BASELINES.search(str(value)) for key, value in settings.items())
    for key, value in settings.items():
        if GROUP_SIZES.search(key) and value == 1 and by_group and not OF_EVALUATION.search(key):
            yield _sign("group_of_one", setting=f"{key}={value}")
            break
    filtered = next(((key, value) for key, value in settings.items() if FILTERS.search(key)), None)
    off = {key for key, value in settings.items() if SWITCHES.search(key) and str(value).lower() in ("false", "0")}
    if filtered is not None and str(filtered[1]) in SHAPED and not off:
        yield _sign("filter_metric", setting=f"{filtered[0]}={filtered[1]}")
    on = [key for key in sorted(settings) if settings[key] is True]
    sampled, shaped = (next((key for key in on if found.search(key)), None) for found in (DYNAMIC, SHAPING))
    if filtered is None and sampled is not None and shaped is not None:
        yield _sign("filter_metric", setting=f"{sampled} and {shaped} are on, and no other metric to filter by is set")
    yield from _of_masked(around)
    counted = around.evidence.counters.counts.values() if around.evidence.counters is not None else ()
    for series in (*around.evidence.other.values(), *counted):
        if ABORTS.search(series.raw_name):
            values = series.finite()[1]
            if len(values) and float(np.median(values)) > 1:
                yield _sign("aborted", name=series.raw_name, level=sig(float(np.median(values))))
                return


def _of_masked(around: Around) -> Iterator[Sign]:
    """Look whether cut answers are masked while ever more are cut, and the gradient shrinks with them."""
    key = next((key for key, value in around.evidence.settings.items() if MASK_CUT.search(key) and value is True), None)
    whole = replace(around, finding=replace(around.finding, onset_step=None))  # it creeps in
    cut, norm = (around.evidence.metrics.get(name) for name in ("len/clipped_frac", "grad_norm"))
    if key is None or cut is None or norm is None:
        return
    shares, norms = whole.change(cut), whole.change(norm)
    if shares is not None and norms is not None and shares[1] - shares[0] >= CHANGED and norms[2] <= -CHANGED:
        numbers = {"shares": f"{pct(shares[0])} → {pct(shares[1])}", "norms": f"{sig(norms[0])} → {sig(norms[1])}"}
        yield _sign("masked_dilutes", setting=f"{key}=True", cut=cut.raw_name, norm=norm.raw_name, **numbers)


def _of_evaluation_limit(around: Around) -> Iterator[Sign]:
    found = evaluation_limit(around.evidence.settings) if around.evidence.evaluation is not None else None
    if found is not None:
        yield _sign("evaluation_limit", setting=f"{found[0]}={found[1]:.0f}, {found[2]:.0f} in training")


def _of_data(around: Around) -> Iterator[Sign]:
    context = around.evidence.run.context
    passes, steps = context.get("data_exhausted"), context.get("data_exhausted_after_steps")
    lost = bool(context.get("data_exhausted_without_step"))
    if isinstance(passes, int) and isinstance(steps, int) and passes > 1 and (lost or steps <= FEW_STEPS * passes):
        yield _sign("exhausted", passes=str(passes), steps=str(steps))
    kept = around.evidence.metrics.get("samples/kept_frac")
    found = None if kept is None else around.change(kept)
    if found is not None and found[2] <= -CHANGED:
        yield _sign("keeps_less", before=sig(found[0]), after=sig(found[1]))
