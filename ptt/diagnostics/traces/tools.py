"""The tools: how often each is called, fails and at which error, repeats itself; which are missing or made up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import polars as pl

from ptt.diagnostics.model import Severity
from ptt.diagnostics.rules.interface import Finding
from ptt.diagnostics.schema import WORDED
from ptt.diagnostics.statistics.clustered_share import clustered_share
from ptt.diagnostics.traces.call_outcomes import KNOWN_BY, LEARNT, PRECISION
from ptt.diagnostics.traces.cost import by_tool
from ptt.diagnostics.traces.judging import Asked, Bounds, Judged, Measured, graded, judge_share, no_calls, not_judged
from ptt.diagnostics.traces.tables import TraceTables, per_episode, scan_table
from ptt.diagnostics.wording import counted, pct

CODE: Final = r"(?:http|status|code|error)[^0-9a-z]{0,12}"  # what stands before a number that is no count or price
CLASSES: Final = (
    ("timeout", (r"time[sd]?[ _-]?out", r"deadline[ _]exceeded")),
    ("rate limit", (r"rate[ _-]?limit", r"too many requests", r"quota", rf"{CODE}429\b")),
    (
        "unknown tool",
        (
            r"unknown[ _]?(?:tool|function)",
            r"no (?:such )?(?:tool|function)\b",
            r"\b(?:tool|function)\b.{0,60}?\b(?:is |was |does )?not[ _](?:found|exist|available|defined|recognized)",
        ),
    ),
    (
        "parse",
        (
            r"\bpars(?:e|ing)\b",
            r"pars(?:e|er|ing)_?error",
            r"json ?decode",
            r"malformed",
            r"syntax ?error",
            r"unterminated",
            r"unexpected (?:token|eof|end)",
        ),
    ),
    (
        "invalid arguments",
        (
            r"invalid[ _]?(?:arg|param|input|call|value|type)",
            r"missing \d* ?(?:required|positional)",
            r"unexpected keyword",
            r"validation ?error",
            r"required (?:arg|param|property|field)",
            r"\bschema\b",
            r"type ?error",
            r"bad request",
            rf"{CODE}4(?:00|22)\b",
        ),
    ),
    (
        "permission",
        (
            r"permission",
            r"forbidden",
            r"unauthori[sz]ed",
            r"access (?:is )?denied",
            r"not (?:allowed|permitted)",
            rf"{CODE}40[13]\b",
        ),
    ),
    ("not found", (r"not[ _]?found", r"no such", r"do(?:es)?(?: not|n't) exist", r"key ?error", rf"{CODE}404\b")),
    (
        "server error (5xx)",
        (r"internal server error", r"bad gateway", r"service (?:is )?unavailable", r"overloaded", rf"{CODE}5\d\d\b"),
    ),
    ("request error (4xx)", (rf"{CODE}4\d\d\b",)),
    ("connection", (r"\bconnect", r"network", r"unreachable", r"refused", r"reset by peer", r"\bdns\b", r"\bssl\b")),
    ("out of memory", (r"out of memory", r"\boom\b", r"memory ?error")),
    ("exit code", (r"exit(?:ed with)? ?(?:code|status)", r"return ?code", r"non-?zero", r"command failed")),
)
"""Name and patterns, tried in this order: what is said first of an error is what it is called."""
EXCEPTION: Final = r"\b([A-Z][A-Za-z0-9]*(?:Error|Exception))\b"
OTHER: Final = "other"
UNTOLD: Final = "not told"
NUMBERED: Final = r"\S*\d\S*"  # a word with a number in it: a price, an id, a line
EXAMPLE_CHARS: Final = 120  # of an error text, as an example of its class


def classify_errors(failed: pl.DataFrame) -> pl.DataFrame:
    """Add to failed calls the `error_class` of each, and what it said, on one line, as `said`."""
    said = pl.concat_str(pl.col("error_type"), pl.col("error_text"), separator=" ", ignore_nulls=True)
    rows = failed.with_columns(said.str.replace_all(r"\s+", " ").str.strip_chars().alias("said"))
    texts = rows.select(pl.col("said").unique())
    return rows.join(texts.with_columns(_class_of(texts["said"])), on="said", how="left", maintain_order="left")


def _class_of(texts: pl.Series) -> pl.Series:
    """Return the class of each text; each pattern is tried on what none before it took."""
    rest = pl.DataFrame({"at": pl.int_range(len(texts), eager=True), "text": texts})
    named = [(rest.filter(pl.col("text") == "").select("at", pl.lit(UNTOLD).alias("error_class")))]
    rest = rest.filter(pl.col("text") != "")
    for name, patterns in CLASSES:
        hit = rest["text"].str.contains(f"(?i){'|'.join(patterns)}")
        named.append(rest.filter(hit).select("at", pl.lit(name).alias("error_class")))
        rest = rest.filter(~hit)
    own = pl.col("text").str.extract(EXCEPTION).fill_null(OTHER)
    named.append(rest.select("at", own.alias("error_class")))
    return pl.concat(named).sort("at")["error_class"]


def error_table(classified: pl.DataFrame) -> pl.DataFrame:
    """Return the classes of error of each tool, the most frequent first, each with its commonest text."""
    tool = pl.col("tool").fill_null(NO_NAME)
    rows = classified.with_columns(tool.alias("tool"))
    texts = rows.group_by("tool", "error_class", "said").agg(pl.len().cast(pl.Int64).alias("calls"))
    form = pl.col("said").str.replace_all(NUMBERED, "#")  # the same but for its numbers and ids
    texts = texts.with_columns(pl.col("calls").sum().over("tool", "error_class", form).alias("alike"))
    common = texts.drop_nulls("said").sort("alike", "calls", "said", descending=[True, True, False])
    common = common.group_by("tool", "error_class", maintain_order=True).agg(pl.col("said").first().alias("example"))
    counts = (
        texts.group_by("tool", "error_class")
        .agg(pl.col("calls").sum())
        .join(
            common.with_columns(pl.col("example").str.slice(0, EXAMPLE_CHARS)), on=["tool", "error_class"], how="left"
        )
    )
    share = pl.col("calls") / pl.col("calls").sum().over("tool")
    counts = counts.with_columns(share.alias("share")).sort(
        pl.col("calls").sum().over("tool"), "tool", "calls", "error_class", descending=[True, False, True, False]
    )
    return counts.select("tool", "error_class", "calls", "share", "example")


BOUNDS: Final = Bounds(
    floor=0.1,  # of the calls: below, failures are an accident that an agent can live with
    factor=2.0,  # less is noise of what is called for
    medium=0.1,
    high=0.5,  # the tool is as good as gone
    chronic=0.4,  # where Microsoft's post-training toolkit calls a failure rate high
    surely=0.3,  # a tool of few calls that fails in half of them is as little use as one of many
)
MAX_TOOLS_TESTED: Final = 8
OTHERS_SHARE: Final = 0.5  # of the failure share of all: the other tools' is below it, so that the fault is of one
MAX_FINDINGS: Final = 5  # tools that are named: more say the same of others
ASKED: Final = Asked(
    trials="tool calls",
    hits="fail",
    metric="tool_calls.ok",
    bounds=BOUNDS,
    causes=(
        "the tool or its server is down, overloaded or out of quota",
        "the agent writes calls that the tool cannot take",
        "the tool's interface changed",
    ),
    confirm="read the failed calls of the episodes {where} and repeat two by hand: is it the tool or the agent?",
    next=(
        "fix the tool, or retry its transient errors outside the agent's context",
        "leave episodes that failed through the environment's fault out of training and of success rates",
    ),
)
NO_NAME: Final = "(no name)"
MOST: Final = 0.5  # of the calls: with more outcomes unknown than this, that nothing was found says little
FAIR_SHARE: Final = 0.1  # of the calls: a tool with fewer hardly moves the whole
MAX_NAMED: Final = 3
ENABLE: Final = "write with each tool result whether the call failed: a flag or an error field"


def judge_failures(tables: TraceTables) -> Judged:
    """Judge the share of failed calls, of all tools and of each; one bad tool is named as that tool.

    Calls that were malformed are another failure, which has a check of its own.
    """
    calls = tables.calls
    if calls.is_empty() and tables.traces.tool_errors:
        return Judged(verdict=graded(_errors_alone(tables), reason="results of tools are recorded without their calls"))
    if calls.is_empty():
        return no_calls(tables)
    measured = {"tool_failure_rate": Measured.of(tables, tables.episodes["failed"], tables.episodes["known"]).share}
    made = _made(calls)
    whole, single = failures(tables)
    if not whole.share.trials:
        judged = not_judged(_untold(calls), missing=("tool_calls.ok",), enable=ENABLE)
        return replace(judged, measured=measured, tables={"calls": _outcome_rows(tables)})
    formed = "well-formed tool calls" if made.height < calls["counted"].count() else ASKED.trials
    asked = replace(ASKED, trials=formed)
    findings = [_with_error(finding, made) for finding in _by_tool(tables, asked, whole, single)]
    share = measured["tool_failure_rate"]
    reason = f"{pct(share.value or 0.0)} of {share.trials:,} tool calls with a known outcome fail"
    if share.hits > whole.share.hits:
        reason += f", {share.hits - whole.share.hits:,} of them as malformed calls, which are judged apart"
    if read := _read_from_text(made):
        reason = f"{reason}; {read}"
    if not findings and (gap := _gap(calls)):
        verdict = not_judged(f"{gap}; {reason}", missing=("tool_calls.ok",), enable=ENABLE).verdict
    else:
        verdict = graded(*findings, reason=reason)
    return Judged(verdict=verdict, measured=measured, tables={"calls": _outcome_rows(tables)})


def _outcome_rows(tables: TraceTables) -> pl.DataFrame:
    """Return each call with its outcome and how that is known."""
    ids = tables.episodes["trajectory_id"].gather(tables.calls["episode"])
    return tables.calls.select(ids, "call", "turn", "tool", "failed", "known_by")


def _gap(calls: pl.DataFrame) -> str:
    """Say of which calls too little is known for a clean answer: of most of all, or of most of a tool's."""
    unknown = pl.col("counted").is_null()
    total, missing = calls.height, int(calls.select(unknown.sum()).item())
    of = calls.group_by(pl.col("tool").fill_null(NO_NAME)).agg(unknown.sum().alias("missing"), pl.len().alias("calls"))
    often = of.filter(pl.col("calls") >= FAIR_SHARE * total, pl.col("missing") > MOST * pl.col("calls"))
    if often.is_empty() and missing <= MOST * total:
        return ""
    named = often.sort("missing", "tool", descending=[True, False]).head(MAX_NAMED).iter_rows()
    tools = ", ".join(f"{count:,} of {many:,} of {name}" for name, count, many in named)
    return f"the outcome of {missing:,} of {total:,} tool calls is unknown{f' ({tools})' if tools else ''}"


def _read_from_text(calls: pl.DataFrame) -> str:
    """Say how many failures are read from texts, and how often such a reading is right."""
    hits = dict(calls.filter("failed")["known_by"].value_counts().iter_rows())
    said = {WORDED: "read from the words of results", LEARNT: "learnt from the tool's other results"}
    told = []
    for by, how in said.items():
        right, read = PRECISION.get(by, (0, 0))
        trust = f"right in {right} of {read} hand-labelled results" if read else "unproven"
        told += [f"{hits[by]:,} of the failures {how} ({trust})"] if by in hits else []
    return ", ".join(told)


def _made(calls: pl.DataFrame) -> pl.DataFrame:
    return calls.filter(pl.col("counted").is_not_null() & ~pl.col("malformed").fill_null(value=False))


def failures(tables: TraceTables) -> tuple[Measured, dict[str, Measured]]:
    """Measure the failures of all calls that were well formed, and, of several tools, of those called most."""
    made = _made(tables.calls)
    known = made.filter(pl.col("tool").is_not_null())
    names = known.group_by("tool").len().sort("len", "tool", descending=[True, False])["tool"]
    several = tables.calls["tool"].drop_nulls().n_unique() > 1  # of some, no outcome may be known
    single = names.head(MAX_TOOLS_TESTED).to_list() if several else []
    return measure_calls(tables, made), {
        name: measure_calls(tables, known.filter(pl.col("tool") == name), name) for name in single
    }


def _untold(calls: pl.DataFrame) -> str:
    """Say what is known of calls whose failure share is unknown."""
    failures = int(calls["failed"].sum() or 0)
    if not failures:
        return (
            f"no outcome of the {calls.height:,} tool calls is recorded, and none of their results says that it failed"
        )
    told = f"{failures:,} of {calls.height:,} tool calls {'is' if failures == 1 else 'are'} marked as failed"
    return f"{told}, and of the others no outcome is recorded"


def _errors_alone(tables: TraceTables) -> Finding:
    """Return that tools report errors, where the calls that they answer are not recorded."""
    errors, episodes = tables.traces.tool_errors or 0, tables.episodes.height
    return Finding(
        severity=Severity.LOW,  # of how many calls is not known
        claim=f"{counted(errors, 'tool result(s)')} of {counted(episodes, 'episode(s)')} report an error",
        observed=float(errors),
        limit=0.0,
        unit="tool results",
        evidence={"metric": "trajectories.n_tool_fail"},
        causes=ASKED.causes,
        confirm=("read these results: is it the tool or the agent?",),
        next=("record the calls beside their results, so that a share can be told",),
    )


def _by_tool(tables: TraceTables, asked: Asked, whole: Measured, single: Mapping[str, Measured]) -> list[Finding]:
    """Return the finding of the tools that are to blame, or of all tools together."""
    together = judge_share(tables, asked, whole)
    if not single:
        return [together] if together is not None else []
    of_tools = list(single.values())
    named = [(each, found) for each in of_tools if (found := judge_share(tables, asked, each)) is not None]
    named.sort(key=lambda pair: (pair[1].severity.rank, -pair[0].share.hits))
    bad = [each for each, found in named if found.severity.at_least(Severity.MEDIUM)]
    if bad and not _is_general(whole, bad, tables.calls["tool"].drop_nulls().n_unique()):
        return [found for _, found in named[:MAX_FINDINGS] if found.severity.at_least(Severity.MEDIUM)]
    if together is None:
        return [found for _, found in named[:MAX_FINDINGS]]
    return [together]


def _is_general(whole: Measured, bad: list[Measured], tools: int) -> bool:
    """Tell whether the other tools, as far as known, fail about as often as all do, or no other tool is called."""
    hits = whole.share.hits - sum(each.share.hits for each in bad)
    trials = whole.share.trials - sum(each.share.trials for each in bad)
    if len(bad) == tools or not trials:
        return len(bad) == tools
    return hits / trials >= OTHERS_SHARE * whole.share.hits / whole.share.trials


def _with_error(finding: Finding, calls: pl.DataFrame) -> Finding:
    """Add the commonest class of error to a finding, with its share of the failed calls and an example."""
    failed = calls.filter("failed")
    if finding.slice is not None:
        failed = failed.filter(pl.format("tool:{}", "tool") == finding.slice)
    row = error_table(classify_errors(failed.with_columns(pl.lit("all").alias("tool")))).row(0, named=True)
    error = {"error_class": row["error_class"], "error_share": row["share"], "error_example": row["example"]}
    told = "" if row["error_class"] in {OTHER, UNTOLD} else f"; {pct(row['share'])} of the errors: {row['error_class']}"
    read = _read_from_text(failed)
    return replace(
        finding, claim=f"{finding.claim}{told}{read and f'; {read}'}", evidence={**finding.evidence, **error}
    )


def measure_calls(tables: TraceTables, calls: pl.DataFrame, tool: str | None = None) -> Measured:
    """Measure the failures of calls, of one tool or of all."""
    hits, trials = per_episode(tables, calls.group_by("episode").agg(pl.col("failed").sum(), pl.len()))
    return Measured(
        share=tables.call_share(pl.col("failed"), calls),
        hits=hits,
        trials=trials,
        tool=tool,
        rate="tool_failures" if tool is None else f"tool:{tool}",
        reach=float((hits > 0).sum()) / max(1, tables.episodes.height),
    )


MAX_TOOLS: Final = 50  # by calls; an agent that makes names up has no end of them
END_SHARE: Final = 1 / 3  # of the episodes, and the first: early and late in the table of tools
NAME: Final = r"[^\p{L}\p{N}]+"  # what writers put for a dot or a slash that an interface does not take in a name
MIN_REQUIRED: Final = 5  # episodes that ask for a tool: with fewer, that none calls it is no habit
MADE_UP_SHARE: Final = 0.05  # of the calls, at least: more is no slip
MIN_USERS: Final = 20  # labelled episodes with a tool and without it
GAIN: Final = 0.2  # of the episodes: what those that call a tool must succeed more often
RARE_SHARE: Final = 0.25  # of the episodes that are offered a tool: fewer call it
Z: Final = 3.0  # standard errors of the difference between them; with fifty tools, chance hardly comes so far


def judge_tool_use(tables: TraceTables) -> Judged:
    """Describe every tool; judge those that are required or useful and not called, and those that do not exist."""
    calls = tables.calls
    offered, required = (_listed(tables, name) for name in ("tools_offered", "tools_required"))
    if calls.is_empty() and offered is None:
        return no_calls(tables)
    views = {"tools": tool_table(tables)}
    failed = calls.filter("failed")
    if failed.height:
        views["error_classes"] = error_table(classify_errors(failed))
    findings: list[Finding] = []
    said = []
    if required is not None:
        findings += _never_called(tables, required)
        said.append(f"{required['tool'].n_unique()} are required")
    if offered is not None:
        findings += _made_up(tables, offered)
        findings += _under_used(tables, offered)
        said.append(f"{offered['tool'].n_unique()} are offered")
    called = tables.traces.distinct_tools or calls["tool"].drop_nulls().n_unique()
    reason = f"{counted(called, 'tool(s)')} {'is' if called == 1 else 'are'} called" + "".join(
        f", {part}" for part in said
    )
    return Judged(verdict=graded(*findings, reason=reason), tables=views)


def tool_table(tables: TraceTables) -> pl.DataFrame:
    """Return one row a tool: calls, failures with their interval, latency, repeats, and how its episodes end."""
    episodes = tables.episodes.height
    calls = tables.calls.filter(pl.col("tool").is_not_null())
    same = calls.select(pl.struct("episode", "tool", "args", "result").hash(1).alias("same"))["same"]
    calls = calls.with_columns((~same.is_first_distinct() & calls["result"].is_not_null()).alias("repeated"))
    early, late = pl.col("episode") < END_SHARE * episodes, pl.col("episode") >= (1 - END_SHARE) * episodes
    seconds = pl.col("latency_s").fill_nan(None)
    counts = (
        calls.group_by("tool")
        .agg(
            pl.len().cast(pl.Int64).alias("calls"),
            pl.col("episode").n_unique().cast(pl.Int64).alias("episodes"),
            pl.col("counted").sum().cast(pl.Int64).alias("failures"),
            pl.col("counted").count().cast(pl.Int64).alias("known"),
            *(
                ((pl.col("known_by") == by) & pl.col("counted").is_not_null()).sum().cast(pl.Int64).alias(by)
                for by in KNOWN_BY
            ),
            pl.col("counted").mean().alias("share"),
            pl.col("counted").filter(early).mean().alias("first_failed"),
            pl.col("counted").filter(late).mean().alias("last_failed"),
            seconds.quantile(0.5, "nearest").alias("latency_p50"),
            seconds.quantile(0.95, "nearest").alias("latency_p95"),
            pl.col("malformed").sum().cast(pl.Int64),
            pl.col("repeated").sum().cast(pl.Int64),
        )
        .sort("calls", "tool", descending=[True, False])
        .head(MAX_TOOLS)
    )
    low, high = _bounds(tables, calls, counts["tool"].to_list())
    outcomes = _outcomes(tables, calls, counts["tool"].to_list())
    spent = by_tool(tables).select("tool", "cost_usd")
    found = counts.join(outcomes, on="tool", how="left", maintain_order="left")
    return found.join(spent, on="tool", how="left", maintain_order="left").select(
        pl.col("tool").alias("name"),
        "calls",
        "episodes",
        pl.when(pl.col("known") > 0).then("failures").alias("failures"),
        "known",
        *KNOWN_BY,
        pl.col("share").alias("failed"),
        pl.Series("low", low, pl.Float64),
        pl.Series("high", high, pl.Float64),
        "first_failed",
        "last_failed",
        "latency_p50",
        "latency_p95",
        (pl.col("repeated") / pl.col("calls")).alias("repeated"),
        (pl.col("malformed") / pl.col("calls")).alias("malformed"),
        "cost_usd",
        "success_with",
        "success_without",
    )


def _bounds(
    tables: TraceTables, calls: pl.DataFrame, names: list[str]
) -> tuple[list[float | None], list[float | None]]:
    by_episode = (
        calls.filter(pl.col("counted").is_not_null())
        .group_by("tool", "episode")
        .agg(pl.col("counted").sum().cast(pl.Float64).alias("failed"), pl.len().cast(pl.Float64))
    )
    low: list[float | None] = []
    high: list[float | None] = []
    of = by_episode.partition_by("tool", as_dict=True)
    for name in names:
        part = of.get((name,))
        interval = None
        if part is not None:
            unit = np.unique(tables.unit[part["episode"].to_numpy()], return_inverse=True)[1]
            interval = clustered_share(part["failed"].to_numpy(), part["len"].to_numpy(), unit).interval
        low.append(interval[0] if interval else None)
        high.append(interval[1] if interval else None)
    return low, high


def _outcomes(tables: TraceTables, calls: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Return how often episodes with each tool succeed, and those without it."""
    labelled = tables.episodes.filter(pl.col("success").is_not_null()).select("episode", "success")
    used = calls.select("tool", "episode").unique().join(labelled, on="episode")
    of = used.group_by("tool").agg(pl.col("success").sum().alias("hits"), pl.len().alias("of"))
    hits, total = int(labelled["success"].sum()), labelled.height
    without = pl.lit(total) - pl.col("of")
    return (
        pl.DataFrame({"tool": names}, schema={"tool": pl.String})
        .join(of, on="tool")
        .select(
            "tool",
            (pl.col("hits") / pl.col("of")).alias("success_with"),
            pl.when(without > 0).then((hits - pl.col("hits")) / without).alias("success_without"),
        )
    )


def _listed(tables: TraceTables, column: str) -> pl.DataFrame | None:
    """Return the tools listed with each episode, one row each; None where no file lists any."""
    rows = scan_table(tables.store, "trajectories").select("trajectory_id", pl.col(column).alias("tool"))
    found = rows.filter(pl.col("tool").list.len() > 0).collect()
    if found.is_empty():
        return None
    number = tables.episodes.select("trajectory_id", "episode")
    return found.join(number, on="trajectory_id").select("episode", "tool").explode("tool").drop_nulls().unique()


def _never_called(tables: TraceTables, required: pl.DataFrame) -> list[Finding]:
    """Return the tools that tasks require and no episode of them calls."""
    called = tables.calls.select("episode", plain_name("tool").alias("plain")).unique()
    asked = required.with_columns(plain_name("tool").alias("plain"))
    missed = asked.join(called, on=["episode", "plain"], how="anti").group_by("tool").len("missed")
    of = asked.group_by("tool").len("asked").join(missed, on="tool", how="left").fill_null(0)
    bad = of.filter((pl.col("missed") == pl.col("asked")) & (pl.col("asked") >= MIN_REQUIRED)).sort("tool")
    return [
        Finding(
            severity=Severity.MEDIUM,
            claim=f"{name} is required in {count:,} episodes, and none of them calls it",
            observed=0.0,
            limit=0.0,
            unit="share",
            slice=f"tool:{name}",
            evidence={"metric": "trajectories.tools_required", "tool": name, "episodes_asked": count},
            causes=("the tool is not offered, or only under another name", "the agent ends before it gets there"),
            confirm=(f"print the tools of one such episode as the agent sees them: is {name} among them?",),
            next=(f"show the use of {name} in the prompt or in an example, and see whether it is called",),
        )
        for name, count, _ in bad.iter_rows()
    ]


def _made_up(tables: TraceTables, offered: pl.DataFrame) -> list[Finding]:
    """Return calls of tools that are not offered, and that never answered without an error: those that answer exist."""
    known = offered.select("episode", plain_name("tool").alias("plain"))
    told = known.select("episode").unique()
    calls = tables.calls.filter(pl.col("tool").is_not_null()).with_columns(plain_name("tool").alias("plain"))
    calls = calls.join(told, on="episode", how="semi")
    strange = calls.join(known, on=["episode", "plain"], how="anti")
    answered = pl.col("result").is_not_null() & ~pl.col("failed").fill_null(value=False)
    names = strange.group_by("tool").agg(answered.any().alias("answers"), pl.len())
    names = names.filter(~pl.col("answers")).sort("len", "tool", descending=[True, False])
    if names.is_empty():
        return []
    hit = pl.col("tool").is_in(names["tool"].implode()) & pl.col("strange")
    marked = calls.join(
        strange.select("episode", "call", pl.lit(value=True).alias("strange")), on=["episode", "call"], how="left"
    )
    share = tables.call_share(hit.fill_null(value=False), marked)
    serious = share.interval is not None and share.interval[0] >= MADE_UP_SHARE
    listed = ", ".join(names["tool"].head(3))
    return [
        Finding(
            severity=Severity.MEDIUM if serious else Severity.LOW,
            claim=f"{share.hits:,} of {share.trials:,} tool calls name a tool that is not offered: {listed}",
            observed=share.value,
            limit=MADE_UP_SHARE,
            unit="share",
            evidence={
                "metric": "trajectories.tools_offered",
                "hits": share.hits,
                "trials": share.trials,
                "tools": listed,
            },
            causes=("the agent remembers tools of its training", "the prompt names tools that are not offered"),
            confirm=("search the prompt for these names",),
            next=("offer the tool, or take its name out of the prompt", "answer such a call with the names there are"),
        )
    ]


def _under_used(tables: TraceTables, offered: pl.DataFrame) -> list[Finding]:
    """Return tools that few call although those who do succeed more often: a hint, for tasks may differ."""
    labelled = tables.episodes.filter(pl.col("success").is_not_null()).select("episode", "success")
    called = tables.calls.select("episode", "tool").unique().with_columns(pl.lit(value=True).alias("used"))
    rows = offered.join(labelled, on="episode").join(called, on=["episode", "tool"], how="left")
    used = pl.col("used").fill_null(value=False)
    success = pl.col("success").cast(pl.Float64)
    of = rows.group_by("tool").agg(
        used.sum().alias("users"),
        (~used).sum().alias("others"),
        success.filter(used).mean().alias("with"),
        success.filter(~used).mean().alias("without"),
    )
    notes = []
    for row in of.sort("tool").iter_rows(named=True):
        if min(row["users"], row["others"]) < MIN_USERS or row["users"] > RARE_SHARE * (row["users"] + row["others"]):
            continue
        variance = sum(
            row[part] * (1 - row[part]) / row[many] for part, many in (("with", "users"), ("without", "others"))
        )
        gain = row["with"] - row["without"]
        if gain >= GAIN and gain >= Z * math.sqrt(variance):
            notes.append(_under_used_note(row, gain))
    return notes


def _under_used_note(row: dict[str, float | str], gain: float) -> Finding:
    name, users, others = str(row["tool"]), int(row["users"]), int(row["others"])
    return Finding(
        severity=Severity.INFO,
        claim=f"{name} is called in {users:,} of {users + others:,} episodes that are offered it; these succeed in "
        f"{pct(float(row['with']))}, the others in {pct(float(row['without']))}",
        observed=gain,
        limit=GAIN,
        unit="share",
        slice=f"tool:{name}",
        evidence={"metric": "trajectories.tools_offered", "tool": name, "users": users, "others": others},
        causes=("the tool helps, and the agent does not think of it", "the tasks that call for it are easier"),
        confirm=(f"compare attempts at one task with {name} and without it",),
        next=(f"name {name} in the prompt for a third of the episodes, and compare",),
    )


def plain_name(column: str) -> pl.Expr:
    """Return a tool's name in the letters that every interface takes."""
    return pl.col(column).str.replace_all(NAME, "_").str.to_lowercase()
