"""Makes one self-contained HTML file of a diagnosis of traces: no script, no network, the same bytes every time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from ptt.diagnostics.model import Finding
from ptt.diagnostics.traces.as_run import as_run
from ptt.diagnostics.traces.model import Example, Message, Parting, TraceDiagnosis, TraceSet
from ptt.reports.figures.drawing import FigureFault, save_figures
from ptt.reports.figures.line_plot import Axis, Drawing, LinePlot
from ptt.reports.figures.style import drawable
from ptt.reports.output import render
from ptt.reports.run import view
from ptt.reports.run.html import Page, drawn_figures, fault_lines, page_in_unit, shown_steps, undrawn_lines
from ptt.reports.text.names import sentence
from ptt.reports.text.numbers import count, number
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.traces.answers import replies
from ptt.reports.traces.figures import CURVES, FIGURES, MEANS, MIN_BLOCKS, SHARES, order_words
from ptt.reports.traces.tables import chapters, dollars

MAX_TEXT: Final = 4000  # letters of a message on the page
OUTCOMES: Final = {"success": "Succeeds", "failure": "Fails", "unknown": "Outcome unknown"}
ROLES: Final = ("system", "developer", "user", "assistant", "tool")
PLOTS_READ: Final = (
    "In each plot a point is a block of neighbouring episodes. The vertical line marks the onset, its band the 95% "
    "interval; the dashed line is the limit."
)
NO_CURVE: Final = ""  # a finding without a curve has its numbers, and examples below


def render_traces(diagnosis: TraceDiagnosis) -> Page:
    """Return report.html; a line stands in the place of a figure that cannot be drawn."""
    run = as_run(diagnosis)
    faults: list[FigureFault] = []
    figures = drawn_figures(FIGURES, diagnosis, faults)
    findings = view.worst_first(view.finding_views(run))
    weighty = [item for item in findings if item.finding.severity.at_least(view.BROKEN_FROM)]
    plots = {item.anchor: finding_plot(item.finding, diagnosis, f"plot-{item.anchor}") for item in view.every(findings)}
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
        first_steps=max(shown_steps(weighty, run), 1),
        counts=view.fold_lines(run),
        lanes=view.lanes(run),
        not_judged=[item for item in run.not_judged if item.applies],
        absent=view.absent(run),
        sources=view.source_groups(run.sources),
        chapters=chapters(diagnosis),
        partings=[_parting_view(parting) for parting in diagnosis.partings],
        episodes=[_episode_view(example) for example in diagnosis.examples],
    )
    return Page(text=page_in_unit(text, run.run.step_unit), faults=tuple(faults))


def write_trace_figures(diagnosis: TraceDiagnosis, directory: Path, faults: list[FigureFault]) -> list[Path]:
    """Write every figure that has data as SVG and PNG."""
    return save_figures(FIGURES, diagnosis, drawable(diagnosis.traces.name), directory, faults=faults)


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
        "Tools": None if traces.distinct_tools is None else count(traces.distinct_tools),
        "Mean reward": None if traces.reward_mean is None else number(traces.reward_mean),
        "Cost": _cost(traces),
    }
    return {name: value for name, value in known.items() if value is not None}


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
    """Return the curve that a finding is seen in; None where there is none, or it is not known."""
    column, frame = CURVES.get(finding.id), diagnosis.tables.get("over_order")
    if column is None or frame is None or column not in frame.columns:
        return None
    rows = frame.filter(pl.col(column).cast(pl.Float64).is_finite()).sort("block")
    if rows.height < MIN_BLOCKS:
        return None
    middle = ((rows["first"] + rows["last"]) / 2).to_numpy().astype(float)
    values = rows[column].to_numpy().astype(float)
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
    told = order_words(diagnosis, column)
    title = f"{name}, {of}: {told}" if told else f"{name}, {of}"
    return drawing.finish(key=key, title=title, alt=f"{title}.")


@dataclass(frozen=True, kw_only=True)
class MessageView:
    """One message, finished."""

    role: str
    text: str
    calls: tuple[str, ...]
    look: str  # classes: its role, failed, marked
    note: str  # what is special about it


@dataclass(frozen=True, kw_only=True)
class EpisodeView:
    """One episode to look at, folded on the page."""

    title: str
    outcome: str
    state: str
    facts: str
    messages: tuple[MessageView, ...]


@dataclass(frozen=True, kw_only=True)
class PartingView:
    """Two episodes of one prompt, side by side."""

    title: str
    why: str
    sides: tuple[EpisodeView, EpisodeView]


def _parting_view(parting: Parting) -> PartingView:
    return PartingView(
        title=f"{safe(parting.group)}: parted at assistant turn {count(parting.turn + 1)}",
        why=sentence(parting.why),
        sides=(_episode_view(parting.success, "parts here"), _episode_view(parting.failure, "parts here")),
    )


def _episode_view(example: Example, mark: str = "what the finding is about") -> EpisodeView:
    reward = "" if example.reward is None else f"reward {number(example.reward)}"
    parts = [safe(example.trajectory_id), safe(example.source), reward]
    return EpisodeView(
        title=sentence(example.title).rstrip("."),
        outcome=OUTCOMES.get(example.outcome, OUTCOMES["unknown"]),
        state=example.outcome if example.outcome in OUTCOMES else "unknown",
        facts=" · ".join(part for part in parts if part),
        messages=tuple(_message_view(message, mark) for message in example.messages),
    )


def _message_view(message: Message, mark: str) -> MessageView:
    role = message.role if message.role in ROLES else "other"
    notes = ["the call failed" if message.failed else "", mark if message.marked else ""]
    return MessageView(
        role=safe(message.role, longest=40),
        text=lines(message.text),
        calls=tuple(lines(call) for call in message.calls),
        look=" ".join([role, *(["failed"] if message.failed else []), *(["marked"] if message.marked else [])]),
        note=", ".join(note for note in notes if note),
    )


def lines(text: str) -> str:
    """Make a text of several lines harmless to show, its lines kept."""
    return "\n".join(safe(line, longest=MAX_TEXT) for line in shortened(text, MAX_TEXT).splitlines())
