"""The card that a notebook shows of a diagnosis: its verdict, three figures, and what to do."""

from __future__ import annotations

from html import escape
from typing import Final

from ptt.diagnostics.model import Diagnosis, in_unit
from ptt.reports.figures import FIGURES
from ptt.reports.figures.drawing import inline_svg
from ptt.reports.figures.faults import suppress_faults
from ptt.reports.figures.style import PROPERTIES
from ptt.reports.run.answers import NOTHING_TO_DO, happened
from ptt.reports.run.outcome import said_beside_headline
from ptt.reports.text.names import sentence, slice_name, status_word
from ptt.reports.text.numbers import counted
from ptt.reports.text.sanitize import safe, shortened
from ptt.reports.text.why import after_slice

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
