"""Prints lines to a terminal, wrapped under themselves."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

MIN_WIDTH: Final = 30  # of what is wrapped, however narrow the terminal


def print_wrapped(
    console: Console, text: Text, *, head: Text | str = "", hang: int | None = None, style: str = "",
    min_width: int = MIN_WIDTH,
) -> None:  # fmt: skip
    """Print a text after `head`; what is carried over hangs `hang` letters in, or as far as the head reaches."""
    head = Text(head) if isinstance(head, str) else head
    hang = len(head) if hang is None else hang
    start = head
    for line in text.wrap(console, max(console.width - hang, min_width), overflow="fold"):
        line.rstrip()
        console.print(start.copy().append_text(line), style=style, soft_wrap=True)
        start = Text(" " * hang, style=head.style)
