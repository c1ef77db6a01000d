"""The report of a run as one self-contained HTML file without scripts, and the card that a notebook shows of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

from ptt.diagnostics.model import STEP, Answer, Diagnosis, in_unit
from ptt.reports.figures import BEHIND_THE_TAIL, FIGURES
from ptt.reports.figures.drawing import FigureFault, inline_svg, suppress_faults
from ptt.reports.figures.finding_series import FIGURE, finding_plot, no_plot
from ptt.reports.figures.line_plot import LinePlot
from ptt.reports.figures.panels import DataTable, FigureSpec, Panel, Source
from ptt.reports.figures.style import PROPERTIES
from ptt.reports.output import render
from ptt.reports.run import view
from ptt.reports.run.answers import NOTHING_TO_DO, happened, replies
from ptt.reports.run.outcome import outcome_view, said_beside_headline
from ptt.reports.run.tail_details import details
from ptt.reports.text.names import ANSWERS, sentence, slice_name, status_word
from ptt.reports.text.numbers import counted
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.why import after_slice, answer, samples

if TYPE_CHECKING:
    from ptt.diagnostics.compare.comparison import Comparison

FIRST_STEPS: Final = 3  # of what to do, on the first screen
NOT_SAID: Final = re.compile(
    r"(<style\b.*?</style>|<svg\b.*?</svg>|<code\b.*?</code>|<pre\b.*?</pre>|<[^>]*>)", re.DOTALL
)


@dataclass(frozen=True, kw_only=True)
class DrawnFigure:
    """One figure with its caption; without panels, the caption says why there are none."""

    name: str
    title: str
    caption: str
    columns: int
    panels: tuple[Panel, ...]
    tables: tuple[DataTable, ...]
    folded: bool
    pictures: Mapping[str, Markup]  # the panels' content, by their keys


@dataclass(frozen=True, kw_only=True)
class Page:
    """The text of a page, and the figures that could not be drawn on it."""

    text: str
    faults: tuple[FigureFault, ...]


def svg(panel: Panel) -> Markup:
    """Draw one panel; the templates escape everything else."""
    return Markup(inline_svg(panel))  # noqa: S704  our own SVG: matplotlib escapes the texts in it


def render_html(diagnosis: Diagnosis) -> str:
    """Return the text of report.html; the same diagnosis gives the same bytes."""
    return render_page(diagnosis).text


def render_page(diagnosis: Diagnosis, beside: Comparison | None = None) -> Page:
    """Return report.html; a line stands in the place of a figure that cannot be drawn.

    `beside`: the run set against a baseline, for the figures of both in one chart.
    """
    faults: list[FigureFault] = []
    both = [] if beside is None else _of_both(beside, faults)
    figures = drawn_figures(FIGURES, diagnosis, faults)
    behind = drawn_figures(BEHIND_THE_TAIL, diagnosis, faults)
    findings = view.worst_first(view.finding_views(diagnosis))
    weighty = [item for item in findings if item.finding.severity.at_least(view.BROKEN_FROM)]
    plots, unplotted = _plots(findings, diagnosis, faults)
    not_judged = [item for item in diagnosis.not_judged if item.applies]
    asked = samples(diagnosis)
    page = render(
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
        figures=[figure for figure in (*figures, *both) if figure.panels],
        undrawn=[*([] if diagnosis.from_findings else undrawn_lines([*figures, *both])), *fault_lines(faults)],
        behind=[figure for figure in behind if figure.panels],
        growth_parts=answer(diagnosis),
        details=details(diagnosis),
        weighty=weighty,
        notes=findings[len(weighty) :],
        plots=plots,
        unplotted=unplotted,
        folded_captions=True,
        first_steps=shown_steps(weighty, diagnosis),
        counts=view.fold_lines(diagnosis),
        keep=view.kept_checkpoints(diagnosis),
        checkpoints=view.checkpoint_cells(diagnosis),
        context=view.context_items(diagnosis),
        checklists=view.checklists(diagnosis),
        lanes=view.lanes(diagnosis),
        not_judged=not_judged,
        absent=view.absent(diagnosis),
        sources=view.source_groups(diagnosis.sources),
        settings=view.settings(diagnosis),
        trainer_state=view.trainer_state(diagnosis),
        no_settings=view.no_settings(diagnosis),
    )
    return Page(text=page_in_unit(page, diagnosis.run.step_unit), faults=tuple(faults))


def _of_both(beside: Comparison, faults: list[FigureFault]) -> list[DrawnFigure]:
    from ptt.reports.figures.compare import MAIN  # few runs stand beside a baseline, and loading it takes a while

    return drawn_figures(MAIN, beside, faults)


def shown_steps(weighty: Sequence[view.FindingView], diagnosis: Diagnosis) -> int:
    """Return how many steps the first screen gives: all, unless the rest stands under the first finding."""
    steps = diagnosis.verdict.next
    below = {*weighty[0].finding.confirm, *weighty[0].finding.next} if weighty else set()
    return FIRST_STEPS if below.issuperset(steps[FIRST_STEPS:]) and len(steps) > FIRST_STEPS + 1 else len(steps)


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


def page_in_unit(page: str, unit: str) -> str:
    """Number the rows of a log as what they are, in all that is said on the page; pictures and code stay."""
    if unit == STEP:
        return page
    return "".join(part if part.startswith("<") else in_unit(part, unit) for part in NOT_SAID.split(page))


def undrawn_lines(figures: list[DrawnFigure]) -> list[str]:
    """Return one line a reason, with the figures that could not be drawn for it."""
    titles: dict[str, list[str]] = {}
    for figure in figures:
        if not figure.panels and figure.caption:
            titles.setdefault(figure.caption.removeprefix("Not drawn: "), []).append(figure.title)
    return [f"Not drawn: {'; '.join(names)}. {sentence(reason)}" for reason, names in titles.items()]


def fault_lines(faults: Sequence[FigureFault]) -> list[str]:
    """Return one line for each figure that could not be drawn."""
    return [f"Not drawn: {fault.title}. {fault.reason}" for fault in faults]


def drawn_figures(kinds: Sequence[FigureSpec[Source]], source: Source, faults: list[FigureFault]) -> list[DrawnFigure]:
    """Draw figures for the page; those that cannot be drawn are left out, and added to `faults`."""
    figures = []
    for kind in kinds:
        with suppress_faults(kind, faults):
            figures.append(_drawn_figure(kind, source))
    return figures


def _drawn_figure(kind: FigureSpec[Source], source: Source) -> DrawnFigure:
    panels = kind.panels(source)
    return DrawnFigure(
        name=kind.name,
        title=(kind.takeaway(source) if panels else "") or kind.title,
        caption=kind.caption(source) if panels else kind.absence(source),
        columns=kind.columns,
        panels=panels,
        tables=kind.data(source),
        folded=kind.folded,
        pictures={panel.key: svg(panel) for panel in panels},
    )


MAX_BYTES: Final = 60_000  # a notebook keeps every card it showed
FIRST: Final = ("tail_emergence", "windowed_cdf", "effective_sample_size")  # the others where these have no data
MAX_FIGURES: Final = 3
MAX_SENTENCES: Final = 2
MAX_TEXT: Final = 300  # characters of a sentence
MAX_NAME: Final = 60


def card(diagnosis: Diagnosis) -> str:
    """Return the card as HTML without scripts or links, at most MAX_BYTES long; a figure that does not fit is named."""
    steps = diagnosis.verdict.next or (NOTHING_TO_DO,)
    did = [text] if (text := said_beside_headline(diagnosis)) else []
    texts = [
        _headline(diagnosis),
        *did,
        *happened(diagnosis, short=True)[:MAX_SENTENCES],
        f"Next: {sentence(steps[0])}",
    ]
    unit = diagnosis.run.step_unit
    shown = [f"<p>{_text(in_unit(text, unit))}</p>" for text in texts]
    left_out = []
    for name, drawn in _figures(diagnosis):
        if sum(len(part.encode()) for part in (*shown, drawn)) < MAX_BYTES - 4 * MAX_TEXT:  # room for what frames it
            shown.append(drawn)
        else:
            left_out.append(name)
    if left_out:
        shown.append(f"<p>Too large for a card, see <code>.figures</code>: {', '.join(left_out)}.</p>")
    colours = ";".join(f"{name}:{colour}" for colour, name in PROPERTIES.items())
    return f'<div style="{colours};--font:sans-serif;max-width:60em">{"".join(shown)}</div>'


def summary(diagnosis: Diagnosis) -> str:
    """Return the diagnosis in three lines of plain text: the verdict, how much was judged, what to do first."""
    steps = diagnosis.verdict.next or (NOTHING_TO_DO,)
    blind = sum(item.applies for item in diagnosis.not_judged)
    counts = (counted(len(diagnosis.findings), "finding"), counted(len(diagnosis.passed), "healthy check"))
    first = shortened(safe(sentence(steps[0])), MAX_TEXT)
    return f"{shortened(_headline(diagnosis), MAX_TEXT)}\n{', '.join(counts)}, {blind} not judged\nNext: {first}"


def _headline(diagnosis: Diagnosis) -> str:
    name = shortened(safe(diagnosis.run.name), MAX_NAME)
    return f"{status_word(diagnosis.verdict)} {name}: {safe(sentence(diagnosis.verdict.headline))}"


def _figures(diagnosis: Diagnosis) -> list[tuple[str, str]]:
    """Draw one panel of up to three figures that have data: that of tokens after tools where there is one."""
    drawn: list[tuple[str, str]] = []
    after = slice_name(after_slice(diagnosis)).capitalize()
    for spec in sorted(FIGURES, key=lambda spec: FIRST.index(spec.name) if spec.name in FIRST else len(FIRST)):
        if len(drawn) == MAX_FIGURES:
            break
        with suppress_faults(spec, []):
            panels = [panel for panel in spec.panels(diagnosis) if panel.shown != "narrow"]
            if panels:
                panel = next((panel for panel in panels if panel.title.startswith(after)), panels[0])
                title = _text(spec.takeaway(diagnosis) or spec.title)
                size = f'viewBox="0 0 {panel.width} {panel.height}" width="{panel.width}" height="{panel.height}"'
                svg = f'<svg {size} role="img">{inline_svg(panel)}</svg>'
                of = f"<br>{_text(panel.title)}" if panel.title else ""
                drawn.append((spec.name, f"<p><b>{title}</b>{of}</p>{svg}"))
    return drawn


def _text(text: str) -> str:
    return escape(shortened(safe(text), MAX_TEXT))
