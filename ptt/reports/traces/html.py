"""Makes one self-contained HTML file of a diagnosis of traces: no script, no network, the same bytes every time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import Finding
from ptt.diagnostics.traces.call_outcomes import KNOWN_BY
from ptt.diagnostics.traces.model import MEASURES, TraceDiagnosis, TraceSet, as_run, tool_of
from ptt.reports.figures.faults import FigureFault
from ptt.reports.figures.line_plot import Axis, Drawing, LinePlot
from ptt.reports.figures.panels import DataTable
from ptt.reports.output import render
from ptt.reports.run import view
from ptt.reports.run.drawn import drawn_figures, fault_lines, undrawn_lines
from ptt.reports.run.html import Page, page_in_unit, shown_steps
from ptt.reports.text.names import sentence
from ptt.reports.text.numbers import count, number, percent
from ptt.reports.text.sanitize import safe
from ptt.reports.traces.answers import interval_words, known_by, level, replies, worst_tools
from ptt.reports.traces.episodes import episode_views, links_of_findings, parting_views, tool_lines_over_order
from ptt.reports.traces.figures import CURVES, FIGURES, MEANS, MIN_BLOCKS, SHARES, order_words
from ptt.reports.traces.tool_names import with_short_names

MAX_ROWS: Final = 200  # of a table: more lie in the store
NONE: Final = "–"
KINDS: Final[Mapping[str, str]] = {
    "task": "By task", "env": "By environment", "model": "By model", "step": "By training step", "tool": "By tool",
}  # fmt: skip
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """Tables that are folded together under one heading."""

    key: str
    title: str
    summary: str
    tables: tuple[DataTable, ...]


def chapters(diagnosis: TraceDiagnosis) -> tuple[Chapter, ...]:
    """Return the chapters that have a table."""
    made = (
        ("tools", "Tools and errors", "calls, failures, latency, error classes", _of_tools(diagnosis)),
        ("tail", "Tail of the tokens", "by tool, assistant turn and class of error", _of_tail(diagnosis)),
        ("changes", "Change over the set", "found, or what would have been", _of_changes(diagnosis)),
        ("cost", "Cost and tokens", "in all, an episode, by tool", _of_cost(diagnosis)),
        ("groups", "Success by task, environment and model", "with 95% intervals", _of_groups(diagnosis)),
        ("measured", "All measured shares", "as the gate checks them", _measured(diagnosis)),
    )
    return tuple(
        Chapter(key=key, title=title, summary=summary, tables=tables) for key, title, summary, tables in made if tables
    )


def _of_tools(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    head = (
        "Tool", "Calls", "Episodes", "Failed", "95% interval", "Known by", "First part", "Last part", "Latency p50",
        "p95", "Repeated", "Malformed", "Success with", "Success without",
    )  # fmt: skip
    rows = [
        (
            safe(row["name"] or "no name"),
            count(row["calls"]),
            count(row["episodes"]),
            share(row["failed"]),
            interval(row),
            known_by(row),
            share(row["first_failed"]),
            share(row["last_failed"]),
            *(seconds(row[key]) for key in ("latency_p50", "latency_p95")),
            *(_of_calls(row, key) for key in ("repeated", "malformed")),
            *(share(row[key]) for key in ("success_with", "success_without")),
        )
        for row in worst_tools(diagnosis)
    ]
    errors = [
        (
            safe(row["tool"] or "no name"),
            safe(row["error_class"]),
            count(row["calls"]),
            share(row["share"]),
            safe(row["example"] or "", longest=160),
        )
        for row in diagnosis.rows("error_classes")
    ]
    return (
        *_table(_tools_title(diagnosis, len(rows)), *_without_empty(head, rows)),
        *_table("Classes of errors", ("Tool", "Error", "Calls", "Of its failures", "For example"), errors),
    )


def _of_changes(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    rows = [
        (
            safe(row["label"]),
            level(row, row["value"]),
            "no change beyond chance"
            if row["early"] is None
            else f"{level(row, row['early'])} to "
            f"{level(row, row['late'])}, since {diagnosis.traces.order} {count(row['onset'])}",
            NONE if row["p_value"] is None else number(row["p_value"]),
            level(row, row["seen_at"]),
        )
        for row in diagnosis.rows("changes")
    ]
    head = ("Rate", "Of all", "Over the order", "p", "From half-way on, found 9 times of 10 at")
    return _table("Rates that were looked at for a change for the worse", head, rows)


PARTS: Final = {
    "all": "All episodes", "episode": "An episode", "success": "A success", "failing": "All that fail",
    "tool": "Calls of",
}  # fmt: skip


def _of_cost(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    rows = [
        (
            f"{PARTS[row['part']]} {safe(row['name'])}".strip(),
            count(row["episodes"]),
            dollars(row["cost_usd"]),
            NONE if row["low"] is None else f"{dollars(row['low'])} to {dollars(row['high'])}",
            *(NONE if row[key] is None else count(round(row[key])) for key in ("tokens_in", "tokens_out")),
        )
        for row in diagnosis.rows("cost")
    ]
    head = ("Of", "Episodes", "Cost", "Bounds (95%)", "Tokens read", "Tokens written")
    return _table("An episode is spread evenly over its turns and calls", *_without_empty(head, rows))


def _of_tail(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    head = ("By", "Name", "Tokens", "Of the tail", "Of the tokens", "Lift", "95% interval", "p99 of |r|")
    rows = [
        (
            row["kind"].capitalize(),
            safe(row["name"]),
            count(row["tokens"]),
            share(row["tail_share"]),
            share(row["token_share"]),
            *(NONE if value is None else number(float(value)) for value in (row["lift"],)),
            NONE if row["low"] is None else f"{number(row['low'])} to {number(row['high'])}",
            NONE if row["p99"] is None else number(float(row["p99"])),
        )
        for row in diagnosis.rows("token_tail")
    ]
    return _table("Where the tail sits: tools and errors are those before the tokens", head, rows)


def _tools_title(diagnosis: TraceDiagnosis, listed: int) -> str:
    called = diagnosis.traces.distinct_tools or 0
    most = f"The {count(listed)} tools called most, of {count(called)}" if called > listed else "Tools"
    return f"{most}, the worst first"


def _of_calls(row: Row, key: str) -> str:
    """Write a count of calls with its share of them; tables of an older ptt hold the share alone."""
    value = row[key]
    if value is None or isinstance(value, float):
        return share(value)
    return share(value / row["calls"]) if row["calls"] else NONE


def _without_empty(
    head: tuple[str, ...], rows: Sequence[tuple[str, ...]]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Leave out the columns that hold nothing in any row."""
    kept = [index for index, _ in enumerate(head) if any(row[index] != NONE for row in rows)]
    return tuple(head[index] for index in kept), [tuple(row[index] for index in kept) for row in rows]


def _of_groups(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    tables: list[DataTable] = []
    every = diagnosis.rows("by")
    for kind, title in KINDS.items():
        named = [row for row in every if row["kind"] == kind]
        rows = [
            (
                safe(str(row["name"]) if row["name"] is not None else "no name"),
                count(row["episodes"]),
                count(row["labelled"]),
                share(row["success"]),
                interval(row),
                NONE if row["reward"] is None else number(float(row["reward"])),
                dollars(row.get("cost_usd")),
            )
            for row in named
        ]
        head = (title.removeprefix("By ").capitalize(), "Episodes", "Labelled", "Success", "95% interval", "Reward",
                "Cost an episode")  # fmt: skip
        tables += _table(title, *_without_empty(head, rows))
    return tuple(tables)


def _measured(diagnosis: TraceDiagnosis) -> tuple[DataTable, ...]:
    rows = [
        (
            f"{measure.label[:1].upper()}{measure.label[1:]}",
            name,
            share(found.value),
            interval_words(found.interval) or NONE,
            f"{count(found.hits)} of {count(found.trials)} {measure.of}",
        )
        for name, measure in MEASURES.items()
        if (found := diagnosis.measured.get(name)) is not None
    ]
    return _table("Shares", ("What", "Name", "Share", "95% interval", "Counted"), rows)


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> tuple[DataTable, ...]:
    if not rows:
        return ()
    cut = f"{title} (the first {MAX_ROWS} of {count(len(rows))})" if len(rows) > MAX_ROWS else title
    return (DataTable(title=cut, head=head, rows=tuple(rows[:MAX_ROWS])),)


def share(value: float | None) -> str:
    """Write a share, or a dash."""
    return NONE if value is None or value != value else percent(value)


def interval(row: Row) -> str:
    """Write the interval of a row, or a dash."""
    return NONE if row["low"] is None or row["high"] is None else interval_words((row["low"], row["high"]))


def dollars(value: float | None) -> str:
    """Write a cost, or a dash."""
    return NONE if value is None else f"${number(float(value))}"


def seconds(value: float | None) -> str:
    """Write a duration, or a dash."""
    return NONE if value is None or value != value else f"{number(float(value))} s"


PLOTS_READ: Final = (
    "In each plot a point is a block of neighbouring episodes. The vertical line marks the onset, its band the 95% "
    "interval; the dashed line is the limit."
)
NO_CURVE: Final = ""  # a finding without a curve has its numbers, and examples below


def render_traces(diagnosis: TraceDiagnosis) -> Page:
    """Return report.html; a line stands in the place of a figure that cannot be drawn."""
    diagnosis = with_short_names(diagnosis)
    run = as_run(diagnosis)
    faults: list[FigureFault] = []
    figures = drawn_figures(FIGURES, diagnosis, faults)
    findings = view.worst_first(view.finding_views(run))
    weighty = [item for item in findings if item.finding.severity.at_least(view.BROKEN_FROM)]
    plots = {item.anchor: finding_plot(item.finding, diagnosis, f"plot-{item.anchor}") for item in view.every(findings)}
    episodes = episode_views(diagnosis)
    text = render(
        "traces.html.j2",
        diagnosis=run,
        notices=view.notices(run),
        first_broken=view.first_broken(run),
        replies=replies(diagnosis),
        facts=facts(diagnosis),
        figures=[figure for figure in figures if figure.panels],
        undrawn=[*undrawn_lines(figures), *fault_lines(faults)],
        weighty=weighty,
        notes=findings[len(weighty) :],
        plots=plots,
        plots_read=PLOTS_READ,
        unplotted=dict.fromkeys(plots, NO_CURVE),
        folded_captions=True,
        first_steps=shown_steps(weighty, run),
        guards=(),
        counts=view.fold_lines(run),
        lanes=view.lanes(run),
        unjudged=view.unjudged(run),
        absent=view.absent(run),
        sources=view.source_groups(run.sources),
        chapters=chapters(diagnosis),
        partings=parting_views(diagnosis),
        episodes=episodes,
        episodes_of=links_of_findings(diagnosis, episodes),
        texts_kept=any(message.text for example in diagnosis.examples for message in example.messages),
        tool_lines=tool_lines_over_order(diagnosis, episodes),
    )
    return Page(text=page_in_unit(text, run.run.step_unit), faults=tuple(faults))


def facts(diagnosis: TraceDiagnosis) -> Mapping[str, str]:
    """Return what the traces are: each fact by its name."""
    traces = diagnosis.traces
    known: dict[str, str | None] = {
        "Format": safe(", ".join(sorted(traces.kinds)).replace("_", " ")) or None,
        "Episodes": count(traces.episodes),
        "Labelled": count(traces.labelled),
        "Tasks": None if traces.tasks is None else count(traces.tasks),
        "Assistant turns": None if traces.assistant_turns is None else count(traces.assistant_turns),
        "Tool calls": None if traces.tool_calls is None else count(traces.tool_calls),
        "Failed": None if traces.tool_errors is None else count(traces.tool_errors),
        "Outcomes": _outcomes(diagnosis),
        "Tools": None if traces.distinct_tools is None else count(traces.distinct_tools),
        "Mean reward": None if traces.reward_mean is None else number(traces.reward_mean),
        "Cost": _cost(traces),
    }
    return {name: value for name, value in known.items() if value is not None}


def _outcomes(diagnosis: TraceDiagnosis) -> str | None:
    rows = diagnosis.rows("tools")
    total = {key: sum(row[key] or 0 for row in rows) for key in ("calls", "known", *KNOWN_BY)}
    return known_by(total) or None


def _cost(traces: TraceSet) -> str | None:
    if traces.cost_usd is None:
        return None
    known = (
        "" if traces.costed == traces.episodes else f" in {count(traces.costed)} of {count(traces.episodes)} episodes"
    )
    if not traces.cost_usd:
        return f"recorded as $0{known}"  # by writers that do not know the price of a model
    return f"{dollars(traces.cost_usd)}{known}, {dollars(traces.cost_usd / traces.costed)} an episode"


def finding_plot(finding: Finding, diagnosis: TraceDiagnosis, key: str) -> LinePlot | None:
    """Return the curve that shows a finding; None if the finding has no curve or its values are unknown."""
    column = CURVES.get(finding.id)
    rows = _curve(finding, diagnosis, column) if column is not None else None
    if column is None or rows is None or rows.height < MIN_BLOCKS:
        return None
    middle = ((rows["first"] + rows["last"]) / 2).to_numpy().astype(float)
    values = rows["value"].to_numpy().astype(float)
    limit = finding.limit if column not in MEANS and finding.limit is not None and finding.limit <= 1 else None
    top = max(float(values.max()), limit or 0.0)
    drawing = Drawing(
        x=Axis(low=float(rows["first"][0]), high=float(max(rows["last"][-1], rows["first"][0] + 1))),
        y=Axis(low=min(0.0, float(values.min())), high=top * 1.1 or 1.0),
    )
    drawing.axes(diagnosis.traces.order)
    drawing.line("mean", middle, values)
    if limit is not None:
        drawing.level("limit", limit, f"limit {number(limit)}")
    if finding.onset_interval is not None and finding.onset_interval[0] < finding.onset_interval[1]:
        drawing.span("range", *finding.onset_interval)
    if finding.onset_step is not None:
        drawing.step("since", finding.onset_step, f"since {count(finding.onset_step)}")
    name, of, _ = SHARES[column]
    told = order_words(diagnosis, column, finding)
    if (tool := tool_of(finding)) is not None:
        title = sentence(told).rstrip(".") if told else f"{name} of {safe(tool)}"
    else:
        title = f"{name}, {of}: {told}" if told else f"{name}, {of}"
    return drawing.finish(key=key, title=title, alt=f"{title}.")


def _curve(finding: Finding, diagnosis: TraceDiagnosis, column: str) -> pl.DataFrame | None:
    """Return first, last and value of the blocks in which a finding is seen; of one tool those of its own calls."""
    frame, tool = diagnosis.tables.get("failures_over_order"), tool_of(finding)
    if finding.id == "tool-failures" and tool is not None and frame is not None:
        rows = frame.filter(pl.col("tool") == tool).with_columns(value=pl.col("failures") / pl.col("known"))
    else:
        frame = diagnosis.tables.get("over_order")
        if frame is None or column not in frame.columns:
            return None
        rows = frame.with_columns(value=pl.col(column).cast(pl.Float64))
    return rows.filter(pl.col("value").is_finite()).sort("block")
