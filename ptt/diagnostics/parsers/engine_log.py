"""Console of an inference engine beside a run: the settings it prints as it starts, and lines on weights and caches."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final

from ptt.diagnostics.parsers import plain_transcripts
from ptt.diagnostics.parsers.io.console_files import NAMES, SUFFIXES
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import blocks, is_torn, torn_line
from ptt.diagnostics.parsers.io.setup_files import banner_packages, engine_settings, kept
from ptt.diagnostics.parsers.io.telemetry import ESCAPES, EventLog

BEGINNING: Final = 1 << 18  # bytes in which an engine prints its settings
MIN_PACKAGES: Final = 2  # of a text that says nothing of an engine
OF_ENGINE: Final = (
    rb"load(?:ed|ing)? \w{0,20} ?weights|load_lora|\blora adapter|prefix.cache|flush_cache|kv.?cache|update_weights"
    rb"|\bweights? (?:sync|transfer|broadcast|update)|\b(?:sync|broadcast|push)(?:ed|ing)? (?:\w+ )?weights\b|\brefit\b"
    rb"|compliant: (?:nan|inf|-inf)|spans across nodes"
    rb"|cache (?:not )?flush|params_dict|replay fallback"
    rb"|\blora\b[^\n]{0,250}will be ignored"
    rb"|\b(?:engine|server|replica|router)s?\b[^\n]{0,80}\b(?:restart|respawn|recover|replac|re-?register|health check)"
)
SPEAKS: Final = re.compile(rb"(?i)" + OF_ENGINE)
"""What an engine says of itself, or a worker that serves one."""
LOGGED: Final = re.compile(
    rb"(?m)^[^\n]{0,80}?(?:\b\d{1,2}:\d\d:\d\d\b|\b(?:TRACE|DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL)\b)[^\n]*"
    rb"|^\W{0,4}(?:step|rollout|iteration)[ =:#_]{1,3}\d[^\n]*"
    rb"|^\((?:[\w.]+ )?pid=\d[^\n]*"
    rb"|^\[(?!\d+\]|[^\]\n]*(?:\b(?:19|20)\d\d\b|\bet al\b|\b[A-Z][a-z]+\d\d\b))[\w./: -]{2,40}\] [^\n]*"
)
"""A line with the time or the level that a logger writes, or one that begins with a step, a worker of Ray or a tag in
brackets; prose has none, for the year or the number of a reference is no tag."""
MIN_LOGGED: Final = 2  # of such lines
NUMBERED: Final = re.compile(rb"(?m)(?:[ \t][-+]?\d[\d.e+-]{0,20}){3}[ \t]*$")
"""A line that ends in three bare numbers: where most do, it is a training's log in a layout of its own."""
TELLING: Final = re.compile(
    rb"(?i)(?<![a-z_])(?:global_|train_|start_)?(?:step|rollout|iteration)(?:_id)?[ =:#_]{1,3}(\d{1,9})(?![\d/.])|"
    + OF_ENGINE
    + rb"|\b(?:restart|resum|checkpoint|not load|missing key|unexpected key)|weight sync"
    rb"|weights? [^\n]{0,120}not (?:loaded|initialized)"
)
"""What is looked for in a line: the step that it names, or weights, caches, adapters and restarts."""
TRAINS: Final = re.compile(rb"(?i)\b(?:loss|reward|score)\w*['\"\]]?\s{0,3}[:=]?\s{0,3}[-+]?\d")
"""A metric: then it is a training's log, whether or not another parser reads it."""


def recognises(file: RunFile) -> bool:
    """Recognise a log by an engine's settings and versions, or by what an engine says of weights and caches."""
    name, head = file.name.lower(), file.readable_head
    if not (name.endswith(SUFFIXES) or name in NAMES) or b"\0" in head or TRAINS.search(head):
        return False
    found = _setup(head)
    if found.settings or len(found.packages) >= MIN_PACKAGES:
        return True
    if SPEAKS.search(head) is None or sum(1 for _ in islice(LOGGED.finditer(head), MIN_LOGGED)) < MIN_LOGGED:
        return False
    if 2 * len(NUMBERED.findall(head)) > head.count(b"\n"):
        return False
    return not plain_transcripts.recognises(file)


def _setup(beginning: bytes) -> Context:
    text = ESCAPES.sub("", beginning.decode("utf-8", "replace"))
    return Context(facts={}, settings=kept(engine_settings(text)), in_part=True, packages=banner_packages(text))


def read(file: RunFile) -> Iterator[Piece]:
    """Yield the settings and versions, then the telling lines, each at the last step that a line named."""
    events, beginning, step = EventLog(file), bytearray(), None
    for block in blocks(file):
        if isinstance(block, Lost):
            yield block
            continue
        beginning += block[: BEGINNING - len(beginning)]
        if is_torn(block):
            block, _, torn = block.rpartition(b"\n")
            yield torn_line(file, torn)
        kept_to = 0
        for match in TELLING.finditer(block):
            if match[1]:
                step = int(match[1])
            if match.start() >= kept_to:
                start, kept_to = block.rfind(b"\n", 0, match.start()) + 1, block.find(b"\n", match.end())
                kept_to = len(block) if kept_to < 0 else kept_to
                line = block[start:kept_to]
                if any(not found[1] for found in TELLING.finditer(line)):
                    events.add(step, None, "stdout", line.decode("utf-8", "replace"))
    if (found := _setup(bytes(beginning))).settings or found.packages:
        yield found
    yield from events.pieces()


PARSER = Parser(
    name="engine_log",
    describes="The console of an inference engine: the settings and versions that it prints as it starts (vLLM, "
    "SGLang), and its lines on weights, adapters, caches and restarts.",
    held_against="source: vLLM's `LLMEngine` and `EngineArgs`, SGLang's `ServerArgs`",
    priority=65,
    general=True,
    of_training=False,
    recognises=recognises,
    read=read,
)
