"""Faults of the texts of samples and of their lengths: refusals, repetition, one form, one length, pay by length."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np

from benchmarks.loop.faults.fault import GROUPS, TOOLS, Fault, begin, later, stall, worse
from benchmarks.loop.made import Made, Sample
from benchmarks.loop.noise import Generator
from benchmarks.loop.samples import KEYS, said
from ptt.diagnostics.model import Link, Severity

REFUSALS: Final = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with this request.",
    "I apologize, but I am unable to provide that information.",
    "**Sorry**, I can\u2019t answer questions about codes.",
    "As an AI language model, I cannot look codes up.",
    "Unfortunately, I'm not able to share codes.",
)
LENGTH: Final = 60  # letters of an answer, where all come to one length
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


def one_length(run: Made, generator: Generator, size: float) -> int:
    """All answers come to one length, and less is solved."""
    onset = begin(run, generator)
    late = run.late(onset)
    level = float(np.nanmedian(run.train["len"]))
    for name, near in (("len", 1.0), ("len_max", 1.005), ("len_min", 0.995)):
        scatter = np.exp(generator.normal(0, 1e-4, run.count))
        logged = np.isfinite(run.train[name])
        run.train[name] = np.where(logged & (late > 0), level * near * scatter, run.train[name])

    def filled(sample: Sample) -> Sample:
        said_before = sum(len(message["content"]) for message in sample.messages[:-1] if message["role"] == "assistant")
        text = sample.messages[-1]["content"].ljust(LENGTH, ".")[: LENGTH - said_before]
        return replace(sample, messages=(*sample.messages[:-1], said(text)))

    later(run, onset, generator, 1.0, filled)
    worse(run, onset, 0.35 * size)
    return onset


def paid_length(run: Made, generator: Generator, size: float) -> int:
    """Each answer is paid by its length, and answers grow."""
    onset = begin(run, generator)

    def padded(sample: Sample) -> Sample:
        words = int(generator.integers(0, 60))
        text = f"{sample.messages[-1]['content']} {' '.join(str(word) for word in generator.choice(KEYS, words))}"
        return replace(sample, messages=(*sample.messages[:-1], said(text)), correct=words / 60)

    later(run, onset, generator, 1.0, padded)
    for name in ("len", "len_max"):
        run.change(name, 1 + 0.6 * size * run.ramp(onset, 0.2))
    drawn = generator.normal(0, 1, run.count) * run.late(onset)  # batches that happen to be longer earn more
    run.change("len", np.exp(0.15 * drawn))
    for name in ("reward", "r_correct"):
        run.change(name, plus=0.1 * drawn)
    return onset


def _of(name: str, about: str, breaks: Any, link: Link, *ids: str, **other: Any) -> Fault:
    return Fault(name=name, about=about, ids=ids or (name,), link=link, breaks=breaks, **{"algorithms": TOOLS, **other})


FAULTS: Final = (
    _of("refusals in texts", "a third of the answers refuse, and no metric says so", refusing, Link.REWARD,
        "refusals-rise"),
    _of("repetition in texts", "two in five answers go round in a phrase", looping, Link.REWARD, "repetition-rise"),
    _of("one form for every answer", "nine in ten answers are one form with other words in it", formal,
        Link.EXPLORATION, "template-collapse"),
    _of("equal-lengths", "all answers come to one length, a third less is solved", one_length, Link.EXPLORATION,
        algorithms=GROUPS, least=Severity.LOW),
    _of("reward-follows-length", "each answer is paid by its length", paid_length, Link.REWARD, least=Severity.LOW),
)  # fmt: skip
