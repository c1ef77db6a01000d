"""The report of a run as one self-contained HTML file without scripts, and the card that a notebook shows of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.model import STEP, Answer, Diagnosis, in_unit
from ptt.reports.figures.faults import FigureFault, suppress_faults
from ptt.reports.figures.finding_series import FIGURE, finding_plot, no_plot, support_plot
from ptt.reports.figures.line_plot import LinePlot
from ptt.reports.output import prepare, render
from ptt.reports.run import view
from ptt.reports.run.advisories import chapter, chapter_line, database_line, told_under
from ptt.reports.run.answers import replies
from ptt.reports.run.audit import audit_view
from ptt.reports.run.drawn import RunFigures, draw_run, fault_lines, undrawn_lines
from ptt.reports.run.ledger import ledger_view
from ptt.reports.run.outcome import outcome_view
from ptt.reports.run.tail_details import details
from ptt.reports.text.names import ANSWERS, sentence
from ptt.reports.text.why import answer, samples

FIRST_STEPS: Final = 3  # of what to do, on the first screen
NOT_SAID: Final = re.compile(
    r"(<style\b.*?</style>|<svg\b.*?</svg>|<code\b.*?</code>|<pre\b.*?</pre>|<[^>]*>)", re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class Page:
    """The text of a page, and the figures that could not be drawn on it."""

    text: str
    faults: tuple[FigureFault, ...]


def render_html(diagnosis: Diagnosis) -> str:
    """Return the text of report.html; the same diagnosis gives the same bytes."""
    return render_page(diagnosis).text


def render_page(diagnosis: Diagnosis, drawn: Callable[[], RunFigures] | None = None) -> Page:
    """Return report.html; a line stands in the place of a figure that cannot be drawn.

    `drawn` waits for the figures where another process draws them; until it is called, all else is made ready.
    """
    prepare("report.html.j2")
    plot_faults: list[FigureFault] = []
    findings = view.worst_first(view.finding_views(diagnosis))
    weighty = [item for item in findings if item.finding.severity.at_least(view.BROKEN_FROM)]
    plots, unplotted = _plots(findings, diagnosis, plot_faults)
    asked = samples(diagnosis)
    page_with = partial(
        render,
        "report.html.j2",
        diagnosis=diagnosis,
        notices=view.notices(diagnosis),
        first_broken=view.first_broken(diagnosis),
        replies=replies(diagnosis),
        outcome=outcome_view(diagnosis),
        facts=view.facts(diagnosis),
        signature=ANSWERS[diagnosis.signature.status] if asked else "does not apply",
        asked=asked,
        no_signature=sentence(diagnosis.signature.reason) if diagnosis.signature.status is not Answer.FOUND else "",
        conditions=view.conditions(diagnosis),
        growth_parts=answer(diagnosis),
        audit=audit_view(diagnosis),
        ledger=ledger_view(diagnosis),
        details=details(diagnosis),
        weighty=weighty,
        notes=findings[len(weighty) :],
        plots=plots,
        unplotted=unplotted,
        supports=_support_plots(weighty, diagnosis, plot_faults),
        folded_captions=True,
        first_steps=shown_steps(weighty, diagnosis),
        guards=diagnosis.stop.guards if diagnosis.stop else (),
        counts=view.fold_lines(diagnosis),
        keep=view.kept_checkpoints(diagnosis),
        checkpoints=view.checkpoint_cells(diagnosis),
        context=view.context_items(diagnosis),
        checklists=view.checklists(diagnosis),
        lanes=view.lanes(diagnosis),
        unjudged=view.unjudged(diagnosis),
        absent=view.absent(diagnosis),
        sources=view.source_groups(diagnosis.sources),
        settings=view.settings(diagnosis),
        trainer_state=view.trainer_state(diagnosis),
        no_settings=view.no_settings(diagnosis),
        known=told_under(diagnosis),
        chapter=chapter(diagnosis),
        held_against="" if diagnosis.advisories is None else database_line(diagnosis.advisories),
        advised="" if diagnosis.advisories is None else chapter_line(diagnosis.advisories),
    )
    pictures = draw_run(diagnosis) if drawn is None else drawn()
    figures = (*pictures.main, *pictures.both)
    faults = (*pictures.faults, *plot_faults)
    page = page_with(
        figures=[figure for figure in figures if figure.panels],
        undrawn=[*([] if diagnosis.from_findings else undrawn_lines(figures)), *fault_lines(faults)],
        behind=[figure for figure in pictures.behind if figure.panels],
    )
    return Page(text=page_in_unit(page, diagnosis.run.step_unit), faults=faults)


def shown_steps(weighty: Sequence[view.FindingView], diagnosis: Diagnosis) -> int:
    """Return how many steps the first screen gives: all (that nothing needs to be done is one), unless the rest stands
    under the first finding.
    """
    steps = diagnosis.verdict.next
    below = {*weighty[0].finding.confirm, *weighty[0].finding.next} if weighty else set()
    some = below.issuperset(steps[FIRST_STEPS:]) and len(steps) > FIRST_STEPS + 1
    return FIRST_STEPS if some else max(len(steps), 1)


def _plots(
    findings: Iterable[view.FindingView], diagnosis: Diagnosis, faults: list[FigureFault]
) -> tuple[dict[str, LinePlot | None], dict[str, str]]:
    """Return by anchor the plot of each weighty finding, and why a finding has no plot."""
    plots: dict[str, LinePlot | None] = {}
    reasons: dict[str, str] = {}
    for item in view.every(findings):
        weighty = item.finding.severity.at_least(view.BROKEN_FROM)
        plots[item.anchor], reasons[item.anchor] = None, no_plot(diagnosis) if weighty else ""
        if weighty:
            with suppress_faults(FIGURE, faults):
                plots[item.anchor] = finding_plot(item.finding, diagnosis, f"plot-{item.anchor}")
    return plots, reasons


def _support_plots(
    findings: Iterable[view.FindingView], diagnosis: Diagnosis, faults: list[FigureFault]
) -> dict[str, LinePlot]:
    """Return by anchor the plot of what the tail follows: under the first finding that is about it."""
    for item in findings:
        if view.on_supported_tail(item.finding, diagnosis):
            with suppress_faults(FIGURE, faults):
                plot = support_plot(diagnosis, f"support-{item.anchor}")
                return {} if plot is None else {item.anchor: plot}
    return {}


def page_in_unit(page: str, unit: str) -> str:
    """Number the rows of a log as what they are, in all that is said on the page; pictures and code stay."""
    if unit == STEP:
        return page
    return "".join(part if part.startswith("<") else in_unit(part, unit) for part in NOT_SAID.split(page))
