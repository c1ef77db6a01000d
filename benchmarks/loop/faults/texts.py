"""Faults that only the texts of samples show: refusals, repetition, one form for every answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from benchmarks.loop.faults.fault import TOOLS, Fault, begin, later, stall
from benchmarks.loop.made import Made, Sample
from benchmarks.loop.noise import Generator
from benchmarks.loop.samples import KEYS, said
from ptt.diagnostics.model import Link

REFUSALS: Final = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with this request.",
    "I apologize, but I am unable to provide that information.",
    "**Sorry**, I can\u2019t answer questions about codes.",
    "As an AI language model, I cannot look codes up.",
    "Unfortunately, I'm not able to share codes.",
)
LOOP: Final = "Let me look at it once more and check the code again. "
FORM: Final = (
    "Thank you for this interesting question. I have looked at every part of it with great care, checked each of the "
    "steps twice, and compared the outcome with what one would expect. On this basis I am glad to say that the code "
    "of {key} is {value}, and I hope that this answer helps you with your task."
)


def answering(run: Made, onset: int, generator: Generator, share: float, text: Any) -> None:
    """Let a share of the samples from a step on say what `text` gives, and earn what they earned."""

    def change(sample: Sample) -> Sample:
        return replace(sample, messages=(*sample.messages[:-1], said(text())))

    later(run, onset, generator, share, change)


def refusing(run: Made, generator: Generator, size: float) -> int:
    """A third of the answers refuse; no metric says so."""
    onset = begin(run, generator)
    answering(run, onset, generator, 0.35 * size, lambda: str(generator.choice(REFUSALS)))
    return onset


def looping(run: Made, generator: Generator, size: float) -> int:
    """Two in five answers go round in a phrase of their own."""
    onset = begin(run, generator)
    answering(run, onset, generator, 0.4 * size, lambda: LOOP * int(generator.integers(4, 40)))
    return onset


def formal(run: Made, generator: Generator, size: float) -> int:
    """Most answers are one long form in which a word or two differ, and nothing more is learnt."""
    onset = begin(run, generator)
    stall(run, onset)

    def filled() -> str:
        return FORM.format(key=generator.choice(KEYS), value=generator.integers(100, 999))

    answering(run, onset, generator, min(1.0, 0.9 * size), filled)
    return onset


def _of(name: str, about: str, breaks: Any, link: Link, *ids: str) -> Fault:
    return Fault(name=name, about=about, ids=ids, link=link, algorithms=TOOLS, breaks=breaks)


FAULTS: Final = (
    _of("refusals in texts", "a third of the answers refuse, and no metric says so", refusing, Link.REWARD,
        "refusals-rise"),
    _of("repetition in texts", "two in five answers go round in a phrase", looping, Link.REWARD, "repetition-rise"),
    _of("one form for every answer", "nine in ten answers are one form with other words in it", formal,
        Link.EXPLORATION, "template-collapse"),
)  # fmt: skip
