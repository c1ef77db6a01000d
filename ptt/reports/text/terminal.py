"""Prints to a terminal: no line is wider than an eye follows, and what is wrapped hangs under itself."""

from __future__ import annotations

import os
from typing import Final

from rich.console import Console
from rich.text import Text

MIN_WIDTH: Final = 30  # of what is wrapped, however narrow the terminal
MAX_WIDTH: Final = 100  # columns: longer lines are hard to read, and break where they are pasted into a chat


def open_console() -> Console:
    """Return a console on standard output, as wide as the terminal but never wider than MAX_WIDTH.

    Where output goes to a file or a CI log, which have no width, it is MAX_WIDTH.
    """
    console = Console()
    if console.width > MAX_WIDTH or not (console.is_terminal or "COLUMNS" in os.environ):
        console.width = MAX_WIDTH
    return console


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
