"""Transcripts of agents in plain text or Markdown: `## USER` headings, `User:` lines, Thought/Action/Observation.

Logs that people print for themselves, and aider's history. One that shows no agent that speaks twice, and nothing that
answers it, is not taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ptt.diagnostics.parsers.io.conversations import opening
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import pieces, text_head
from ptt.diagnostics.parsers.io.printed_runs import AIDER, Transcript
from ptt.diagnostics.parsers.io.record_labels import labels_of, split_of
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.transcript_texts import (
    TEXTS,
    is_marked,
    is_transcript,
    marks_of,
    plain,
    transcripts,
)

MEMORY_FACTOR: Final = 6  # of the size of the text, for its lines and messages


def recognises(file: RunFile) -> bool:
    """Recognise the turns of an agent, and of those who answer it, in the first lines of a text."""
    if not file.name.lower().endswith(TEXTS):
        return False
    head = text_head(file)
    return b"\0" not in head and is_transcript(plain(head.decode("utf-8", "replace")))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory an episode of the text."""
    file.budget.take(nbytes=MEMORY_FACTOR * file.size, what="a transcript")
    text = bytearray()
    for piece in pieces(file):
        if isinstance(piece, Lost):
            yield piece
        else:
            text += piece
    whole = plain(text.decode("utf-8", "replace"))
    samples = Samples(file, PARSER.name)
    rows = ({"transcript": found} for found in transcripts(whole))
    yield from read_samples(samples, rows, lambda row, into: _add(row["transcript"], into))
    style = "aider's history" if whole.lstrip().startswith(AIDER) else _style(whole)
    yield Lost(note=f"{file.rel}: read as a transcript by {style} (likely).")


def _style(text: str) -> str:
    marks = marks_of(text)
    if not is_marked(marks):
        return "what its lines tell of calls"
    style = next((mark.style for mark in marks), "")
    return "the names of speakers that begin its lines" if style == "inline" else "its headings that name speakers"


def _add(found: Transcript, samples: Samples) -> bool:
    if not any(message["role"] == "assistant" for message in found.messages):
        return False
    labels = labels_of(found.labels)
    success = labels.columns["success"]
    samples.add(
        Sample(
            step=None,
            split=split_of(samples.file, {}),
            completion=found.messages,
            identity=[found.messages],
            prompt=opening(found.messages),
            reward=labels.reward if labels.reward is not None or success is None else float(success),
            columns=labels.columns,
        )
    )
    return True


PARSER = Parser(
    name="plain_transcripts",
    describes="Agents' transcripts in plain text, Markdown, aider's history: trajectories, turns, tool calls.",
    held_against="real: logs of Reflexion, tau2-bench rollouts and aider",
    priority=95,
    general=True,
    of_training=False,
    recognises=recognises,
    read=read,
)
