"""Find the conversations in a record of unknown layout: its own lists and texts, those of the records in it.

A conversation is a list of messages, steps, events or calls with an agent among them, or a text that is a transcript.
What should have been done, or could be, is none.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

from ptt.diagnostics.definitions import compiled, dataclass
from ptt.diagnostics.parsers.io.message_shapes import decoded
from ptt.diagnostics.parsers.io.named_parts import Uses, parts_of, plain_key
from ptt.diagnostics.parsers.io.record_labels import labels_of
from ptt.diagnostics.parsers.io.shaped_records import (
    answer_key,
    path_in_tree,
    rated_answers,
    records_by_id,
    steps_by_number,
    steps_in_columns,
    steps_in_rows,
)
from ptt.diagnostics.parsers.io.trace_events import acts_of_parts
from ptt.diagnostics.parsers.io.trace_names import role_of
from ptt.diagnostics.parsers.io.trace_parts import acts_in, with_agents
from ptt.diagnostics.parsers.io.transcript_texts import is_transcript, shows_calls

MIN_TEXT: Final = 60  # characters of a transcript
MAX_TEXTS: Final = 64  # of one record
FEW: Final = 8  # entries of a list looked at to see whether it is a conversation
ENOUGH: Final = 0.5  # share of entries that must tell something
FEW_NAMED: Final = 2  # conversations under names of their own
PARTS_OF_ONE: Final = frozenset({
    "messages", "history", "conversation", "trajectory", "turns", "steps", "events", "trace", "transcript", "prompt",
    "completion", "response", "dialogue", "chat", "log", "logs", "input", "output", "actions", "observations",
    "toolcalls", "rawmessages", "chathistory",
})  # fmt: skip
"""Names of lists that belong to one conversation."""
MAX_DEPTH: Final = 6  # of lists and objects around a conversation
EXCLUDED: Final = ("expected", "gold", "reference", "groundtruth", "target", "available", "allowed", "candidate",
                   "fewshot", "tooldefinitions", "schema", "chosen", "rejected", "initial",
                   "fallback", "planned", "suggested", "possible", "alternative", "optimal", "required", "missing",
                   "forbidden", "unused")  # fmt: skip
"""How members begin that show what should be done or could be, not what was."""
OFFERED: Final = compiled(r"(?:tool|function)s(?!called|used|invoked|exec|run|hist|log|trace|result|taken)")
"""How members begin that define tools; those that were called begin alike."""
ASKING: Final = ("prompt", "system", "instruction", "question", "context", "input", "template", "chattemplate", "query")
"""How members begin whose text is asked of an agent, with examples of calls it may be."""
LISTS_CALLS: Final = ("call", "action", "invocation", "tooluse", "toolhistory", "tooltrace", "toollog", "toolexec",
                      "toolsused", "toolsinvoked", "toolsexec", "toolsrun", "toolshist", "toolslog")  # fmt: skip
TRANSITIONS: Final = "transitions"  # of one agent, from state to state
CAMEL: Final = compiled(r"(?<=[a-z0-9])(?=[A-Z])")


@dataclass(frozen=True, kw_only=True)
class Episode:
    """Where a conversation lies. `owners`: its record and the objects from there down to it."""

    entries: list[Any] | str
    owners: tuple[dict[str, Any], ...] = ()
    beside: list[Any] = field(default_factory=list)  # calls that the record lists next to it
    listed: bool = False
    key: str = ""  # of a text
    place: int | None = None  # index among the texts of its record, where each is an episode


def episodes_in(
    found: Any, owners: tuple[dict[str, Any], ...] = (), depth: int = 0, *, texts: bool = True
) -> Iterator[Episode]:
    """Yield the conversations in a value: its own, else those of the records in it; `texts`: those in texts too."""
    found = decoded(found) if isinstance(found, str) and found[:1] in ("[", "{") else found
    found = steps_in_rows(found) if isinstance(found, list) else found
    if depth > MAX_DEPTH or not isinstance(found, dict | list) or not found:
        return
    if isinstance(found, list):
        if _rank(found, listed=False) > 1:
            yield Episode(entries=found, owners=owners)
            return
        if (path := path_in_tree(found)) is not None and _rank(path, listed=False) > 1:
            yield Episode(entries=path, owners=owners)
            return
        entries = [entry for entry in found if isinstance(entry, dict | list)]
        yield from itertools.chain.from_iterable(_of_entries(entries, depth, texts=texts))
        return
    if ("chosen" in found and "rejected" in found) or acts_of_parts(found) is not None:  # the latter is one message
        return
    if runs := _runs_by_name(found):
        yield from runs
        return
    held = _of_entries(records_by_id(found), depth, texts=texts)
    if held and sum(map(bool, held)) > ENOUGH * len(held):
        yield from itertools.chain.from_iterable(held)
        return
    if texts and (rated := rated_answers(found)):
        yield from (
            Episode(entries=answer[key], owners=(answer,), key=key) for answer in rated for key in [answer_key(answer)]
        )
        return
    if (own := _own(found)) is not None:
        yield own
        return
    if texts and (written := texts_of(found)):
        yield from written
        return
    for key, value in found.items():
        if not isinstance(value, dict | list) or _is_excluded(plain_key(key)):
            continue
        if isinstance(value, list) and all(isinstance(e, list) and _rank(e, listed=False) > 1 for e in value):
            yield from (Episode(entries=entry, owners=(found,), place=place) for place, entry in enumerate(value))
            continue
        inner = episodes_in(value, (), depth + 1, texts=texts)
        yield from _joined(inner, found) if plain_key(key) == TRANSITIONS else inner


def _joined(held: Iterable[Episode], record: dict[str, Any]) -> list[Episode]:
    """Return the conversations of the states that an agent passed through as one, unless some are texts."""
    parts = list(held)
    if len(parts) < 2 or any(isinstance(part.entries, str) for part in parts):
        return parts
    return [Episode(entries=[entry for part in parts for entry in part.entries], owners=(record,))]


def _runs_by_name(found: dict[str, Any], task: str | None = None) -> list[Episode]:
    """Return the conversations under names, or under tasks and names, in an object that holds nothing else.

    Each is a list, or messages under their numbers: of these one is enough.
    """
    if not all(isinstance(value, dict | list) for value in found.values()) or any(
        plain_key(key) in PARTS_OF_ONE for key in found
    ):
        return []
    runs: list[Episode] = []
    for key, value in found.items():
        steps = value if isinstance(value, list) else steps_by_number(value)
        if (steps and _rank(steps, listed=False) > 1) or (steps is not value and _are_messages(steps)):
            runs.append(
                Episode(entries=steps, owners=({"sample_id": key} | ({} if task is None else {"task_id": task}),))
            )
            continue
        inner = _runs_by_name(value, key) if isinstance(value, dict) and task is None else []
        if not inner and value:
            return []
        runs += inner
    return runs if len(runs) >= FEW_NAMED or task is not None else []


def _are_messages(entries: list[Any]) -> bool:
    """Return whether each entry is a message by its role, and some are the agent's."""
    speakers = [role_of(parts_of(entry)) if isinstance(entry, dict) and "role" in entry else None for entry in entries]
    return None not in speakers and any(speaker is not None and speaker[1] == "assistant" for speaker in speakers)


def _of_entries(entries: list[Any], depth: int, *, texts: bool) -> list[list[Episode]]:
    """Return the conversations of each record of a list; where most have some, one without any call made none."""
    held = [list(episodes_in(entry, (), depth + 1, texts=texts)) for entry in entries]
    if sum(map(bool, held)) < ENOUGH * len(held):
        return held
    return [
        episodes or (unacted(entry, labelled=False) if isinstance(entry, dict) else [])
        for entry, episodes in zip(entries, held, strict=True)
    ]


def _is_excluded(plain: str) -> bool:
    """Return whether a member shows what should be or could be done, or defines tools."""
    return plain.startswith(EXCLUDED) or OFFERED.match(plain) is not None


def _own(record: dict[str, Any]) -> Episode | None:
    """Return the conversation of a record: the clearest and longest list among its members and objects."""
    found: list[tuple[int, int, int, Episode]] = []
    places: list[tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = [(record, (record,))]
    answers: list[Episode] = []
    calls: list[tuple[bool, list[Any]]] = []  # and whether they stand under a name for calls
    for place, owners in places:
        for key, value in place.items():
            plain = plain_key(key)
            if _is_excluded(plain):
                continue
            value = decoded(value) if isinstance(value, str) and value[:1] in ("[", "{") else value
            if isinstance(value, dict) and len(owners) < MAX_DEPTH // 2:
                places.append((value, (*owners, value)))
                if (steps := steps_in_columns(value)) is not None:
                    found.append((2, len(steps), -len(found), Episode(entries=steps, owners=owners)))
                held = list(value.values())  # messages under their ids
                ided = len(held) > 2 and all(isinstance(entry, dict) for entry in held)
                value = steps_by_number(value) or (held if ided else value)
            if not isinstance(value, list) or not value:
                continue
            value = steps_in_rows(value)
            listed = any(word in plain for word in LISTS_CALLS)
            rank = _rank(value, listed=listed)
            path = None if rank else path_in_tree(value)
            if path is not None:
                value, rank = path, _rank(path, listed=listed)
            if rank:
                episode = Episode(entries=value, owners=owners, listed=listed)
                found.append((rank, len(value), -len(found), episode))
            elif len(value) == 1 and [act.message.get("role") for act in acts_in(value[0], Uses())] == ["assistant"]:
                answers.append(Episode(entries=value, owners=owners))
            if rank == 1:
                calls.append((listed, value))
    if not found:
        return None
    rank, *_, best = max(found, key=lambda entry: entry[:3])
    if rank == 1 and answers:  # the calls are listed beside what the agent said in the end
        rank, best = 2, answers[0]
    beside = max(calls, key=lambda entry: (entry[0], len(entry[1])))[1] if rank > 1 and calls else []
    return Episode(entries=best.entries, owners=best.owners, beside=beside, listed=best.listed)


def unacted(record: dict[str, Any], *, labelled: bool = True) -> list[Episode]:
    """Return the episode of a record whose list of calls is empty; `labelled`: only if it says how it ended."""
    for place in (record, *(value for value in record.values() if isinstance(value, dict))):
        empty = any(
            value == [] and CALL_LISTS.fullmatch(plain) is not None and not _is_excluded(plain)
            for key, value in place.items()
            for plain in [plain_key(key)]
        )
        labels = labels_of({snake(key): value for key, value in (record | place).items()}) if empty else None
        if labels is not None and (not labelled or labels.reward is not None or labels.columns["success"] is not None):
            return [Episode(entries=[], owners=(record,) if place is record else (record, place))]
    return []


CALL_LISTS: Final = compiled(
    r"(?:actual|agent|all|executed|generated|model|observed|predicted)?(?:tool(?:s|uses|calls|invocations)?"
    r"(?:called|used|executed|invoked|made)?|functioncalls(?:made)?|actions(?:taken|executed)?)|actualcalls"
    r"|(?:tool)?calllog"
)


def texts_of(record: dict[str, Any], known: tuple[str, ...] = ()) -> list[Episode]:
    """Return the texts of a record that are an agent's transcript: one, or a list with one for each attempt.

    `known`: members that are one in other records.
    """
    for key, value in record.items():
        several = value if isinstance(value, list) and len(value) <= MAX_TEXTS else [value]
        plain = plain_key(key)
        if _is_excluded(plain) or plain.startswith(ASKING) or not all(isinstance(text, str) for text in several):
            continue
        shown = key in known and any(several)
        if shown or any(len(text) >= MIN_TEXT and (shows_calls(text) or is_transcript(text)) for text in several):
            places = range(len(several)) if isinstance(value, list) else [None]
            return [
                Episode(entries=text, owners=(record,), key=key, place=place)
                for text, place in zip(several, places, strict=True)
            ]
    return []


def is_conversation(entries: list[Any] | str) -> bool:
    """Return whether entries are messages, steps or events with an agent among them, not calls alone."""
    return isinstance(entries, list) and _rank(entries, listed=False) > 1


def _rank(found: list[Any], *, listed: bool) -> int:
    """Return 2 for a list of messages, steps or events with an agent among them, 1 for one of calls alone, else 0."""
    looked = with_agents(list(map(decoded, found[:FEW])))
    uses = Uses()
    told = [acts for entry in looked if (acts := acts_in(entry, uses, listed=listed))]
    if len(told) < ENOUGH * len(looked):
        return 0
    acts = [act for acts in told for act in acts]
    if any(act.kind == "say" and act.message.get("role") == "assistant" for act in acts):
        return 2 if len(acts) > 1 or acts[0].message.get("tool_calls") else 0
    if not any(act.kind == "call" for act in acts):
        return 0
    return 2 if any(act.kind == "say" for act in acts) else 1


@lru_cache(maxsize=4096)
def snake(key: str) -> str:
    """Return a name in small letters with underscores."""
    return CAMEL.sub("_", key[:80]).replace("-", "_").replace(".", "_").replace(" ", "_").lower()
