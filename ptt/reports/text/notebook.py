"""What a notebook shows of a value: a line in bold, a table and lines of text; escaped, without scripts or links."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

from ptt.reports.text.sanitize import safe, shortened

MAX_ROWS: Final = 12  # of the table, and as many lines; the rest is counted
MAX_TEXT: Final = 400  # characters of a cell or a line


def card(title: str, *, head: Sequence[str] = (), rows: Sequence[Sequence[str]] = (), texts: Sequence[str] = ()) -> str:
    """Return the card as HTML; a notebook keeps every card it showed, so it stays short."""
    parts = [f"<p><b>{_text(title)}</b></p>"]
    if rows:
        names = f"<thead>{_row(head, 'th')}</thead>" if head else ""
        parts.append(f"<table>{names}<tbody>{''.join(_row(row, 'td') for row in rows[:MAX_ROWS])}</tbody></table>")
    parts += [f"<p>{_text(text)}</p>" for text in texts[:MAX_ROWS]]
    if (rest := max(0, len(rows) - MAX_ROWS) + max(0, len(texts) - MAX_ROWS)) > 0:
        parts.append(f"<p>and {rest} more</p>")
    return f'<div style="max-width:60em">{"".join(parts)}</div>'


def _row(cells: Sequence[str], kind: str) -> str:
    of = "".join(f'<{kind} style="text-align:left;vertical-align:top">{_text(cell)}</{kind}>' for cell in cells)
    return f"<tr>{of}</tr>"


def _text(text: str) -> str:
    return escape(shortened(safe(text), MAX_TEXT))
