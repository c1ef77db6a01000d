"""Agent traces in a layout of their own: conversations, steps, calls and events found by the names of their parts.

What no parser for a known writer takes is read here: one conversation a record, at any depth; a list of steps with
action and observation; calls in a flat list; events on lines, joined by their session; JSON in JSON texts; documents
one after another; tables with a row for each message. What was taken for what is said in the source's note. Logs of
metrics, settings and data sets of plain texts are refused: a trace shows an agent that speaks or calls a tool, and who
or what answered.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Any, Final

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.assembled_chats import Chat, with_listed
from ptt.diagnostics.parsers.io.conversations import opening
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.message_shapes import decoded
from ptt.diagnostics.parsers.io.named_parts import PLAIN, Message, Uses, call_in, parts_of, plain_key
from ptt.diagnostics.parsers.io.record_episodes import (
    ENOUGH,
    MAX_DEPTH,
    Episode,
    episodes_in,
    is_conversation,
    snake,
    texts_of,
    unacted,
)
from ptt.diagnostics.parsers.io.record_labels import RANKS, labels_of, split_of, step_of, timing_of, tools_of
from ptt.diagnostics.parsers.io.record_values import first_values, values
from ptt.diagnostics.parsers.io.text_calls import prompt_in
from ptt.diagnostics.parsers.io.trace_names import Act, event_of, role_of, words_of
from ptt.diagnostics.parsers.io.trace_parts import acts_in, with_agents
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.transcript_texts import is_transcript, shows_calls, transcripts
from ptt.diagnostics.parsers.io.values import as_label, as_number, dict_of
from ptt.diagnostics.wording import counted

LOOKED: Final = 20  # records looked at to tell how a file is read
SESSIONS: Final = (
    "episode_id", "trajectory_id", "rollout_id", "simulation_id", "conversation_id", "conv_id", "session_id",
    "thread_id", "chat_id", "dialog_id", "dialogue_id", "episode", "sample_id", "instance_id", "task_id", "example_id",
    "question_id", "trace_id", "run_id", "session", "conversation", "case_id", "scenario_id", "game_id", "run",
    "rollout",
)  # fmt: skip
"""Names of what joins events to one episode, the clearest first."""
ATTEMPTS: Final = ("trial", "attempt", "rollout_idx", "sample_idx", "seed", "repeat")
STEP_NUMBERS: Final = ("step", "step_number", "step_id", "step_idx", "step_index", "step_num", "turn", "turn_number",
                       "turn_idx", "turn_index", "iteration", "round")  # fmt: skip
NO_SESSION: Final = re.compile(
    r"(?:.*_)?(?:tool|call|event|message|msg|span|parent|user|agent|request|response|step|turn|action|node|span_parent|log"
    r"|result|invocation|model|org|organization|project|customer|app|device|client|worker|process|thread|item)_id|id"
)
"""Names that end in `_id` and join no events to an episode."""
KEYED: Final = 0.5  # share of the events that must name their session
OUTCOMES: Final = ("outcome", "verdict", "grade", "result", "judgement", "judgment", "evaluation")
PASSED: Final = {
    "pass": True, "passed": True, "success": True, "successful": True, "correct": True, "solved": True,
    "resolved": True, "fail": False, "failed": False, "failure": False, "incorrect": False, "wrong": False,
    "unsolved": False, "unresolved": False,
}  # fmt: skip
LABELLING: Final = frozenset(
    {"reward", "success", "stop_reason", "model", "truncated", "cost_usd", "tokens_in", "tokens_out", "env", "task"}
)
EXPECTED: Final = ("ground_truth", "gts", "expected_answer", "reference_answer", "gold_answer")
PASSING: Final = frozenset({"update", "updated", "progress", "checkpoint", "heartbeat", "check"})
"""Words of a kind of event that tells how far a run is, not how it ended."""
TOTALS: Final = ("total", "overall", "final", "total_score", "score", "reward", "value")
"""How the whole of a reward is called beside its parts."""
NO_TRACE: Final = "record(s) skipped: no conversation, call or event in them."
PLAN: Final = "agent records"
DIGITS: Final = re.compile(r"-?\d{1,9}(?:\.\d{1,20})?")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a file is read: a record an episode, or events that a key joins (empty: all are one episode)."""

    events: bool
    key: str = ""
    text: str = ""  # the member of a record that holds its transcript, also where one shows no call


SHARED: Final = 0.9  # sessions an event: a name that each event has for itself joins none


def recognises(file: RunFile) -> bool:
    """Recognise files whose first records hold conversations, or are events of one."""
    return _plan(file) is not None


def _plan(file: RunFile) -> Plan | None:
    return file.look(PLAN, lambda: _new_plan(first_values(file), whole=file.name.lower().endswith(".json")))


def _new_plan(rows: list[Any], *, whole: bool) -> Plan | None:
    """Return how rows are read; `whole`: one document holds them, so that rounds without a session are one chat."""
    held = [row for row in rows if isinstance(row, dict | list)]
    if not held:
        return None
    uses = Uses()
    told = [(row, acts) for row in held if isinstance(row, dict) and (acts := acts_in(row, uses))]
    looked = held[:LOOKED]
    if len(told) == len(held) > 1 and all(len(row) == 1 for row, _ in told) and len({*map(tuple, held)}) > 1:
        return Plan(events=True)  # what the nodes of a graph add
    if whole and len(told) > 1 and all(isinstance(row, dict) and _is_round(row) for row in held):
        return Plan(events=True, key=_session_key([row for row, _ in told]))
    rounds = [row for row, acts in told if [act.message.get("role") for act in acts[:2]] == ["user", "assistant"]]
    alike = all(isinstance(row, dict) and row.keys() == rounds[0].keys() for row in held) if rounds else False
    if len(rounds) > ENOUGH * len(told if alike else held) and (key := _session_key(rounds)):
        return Plan(events=True, key=key)
    own = sum(map(_owns_episode, looked))
    if own and (own >= ENOUGH * len(looked) or len(told) < own):
        return Plan(events=False)
    if len(told) > 1 and _is_dialogue([act for _, acts in told for act in acts], [row for row, _ in told]):
        return Plan(events=True, key=_session_key([row for row, _ in told]))
    if sum(map(_holds_episode, looked)) >= ENOUGH * len(looked):
        return Plan(events=False, text=_text_key(looked))
    return None


def _is_round(row: dict[str, Any]) -> bool:
    """Return whether a row is one round of a chat: what each side said stands under its name."""
    return all(isinstance(row.get(side), str) for side in ("user", "assistant"))


def _owns_episode(row: Any) -> bool:
    """Return whether a row holds a conversation; calls listed beside a question and its answer are none."""
    found = next(episodes_in(row, texts=False), None)
    if found is None or (_is_message(row) and not is_conversation(found.entries)):
        return False
    told = acts_in(row, Uses()) if found.listed else []
    return not {act.message.get("role") for act in told} >= {"user", "assistant"}


def _is_message(row: Any) -> bool:
    """Return whether a row is a message by its role, whatever calls or results it lists."""
    return isinstance(row, dict) and "role" in row and role_of(parts_of({"role": row["role"]})) is not None


def _holds_episode(row: Any) -> bool:
    return next(episodes_in(row), None) is not None or (isinstance(row, dict) and bool(unacted(row)))


def _text_key(rows: list[Any]) -> str:
    episodes = (episode for row in rows[:LOOKED] for episode in episodes_in(row))
    found = next((episode for episode in episodes if isinstance(episode.entries, str)), None)
    return "" if found is None else found.key


def _is_dialogue(acts: list[Act], rows: list[dict[str, Any]]) -> bool:
    """Return whether an agent acts, and somebody or something else is heard, or an environment rates what it does."""
    agent = any(act.kind == "call" or act.message.get("role") == "assistant" for act in acts)
    heard = any(act.kind in ("result", "answer") or act.message.get("role") in ("user", "tool") for act in acts)
    return agent and (heard or all("done" in row and "reward" in row for row in rows))


def _number_of(row: dict[str, Any]) -> float | None:
    """Return the number of the step that an event belongs to."""
    numbers = (as_number(value) for name in STEP_NUMBERS for key, value in row.items() if snake(key) == name)
    return next((number for number in numbers if number is not None), None)


def _restarts(row: dict[str, Any], first: tuple[float, frozenset[str]] | None, last: float | None) -> bool:
    """Return whether an event's step begins to count anew: it has the first number again, and the same members."""
    number = _number_of(row) if first is not None and last is not None else None
    if number is None or first is None or last is None or number > first[0]:
        return False
    return number < last or first[1] == row.keys()


def _session_key(rows: list[dict[str, Any]]) -> str:
    names = Counter(snake(key) for row in rows for key, value in row.items() if as_label(value))
    others = [name for name in names if name.endswith("_id") and not NO_SESSION.fullmatch(name)]
    for key in [*SESSIONS, *others]:
        if names[key] < KEYED * len(rows):
            continue
        if len({_value(row, key) for row in rows}) <= max(1, SHARED * len(rows)):
            return key
    return ""


def _value(row: dict[str, Any], key: str) -> str | None:
    return next((as_label(value) for name, value in row.items() if snake(name) == key), None)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a conversation, and what was taken for what."""
    plan = _plan(file) or Plan(events=False)
    reader = _Reader(Samples(file, PARSER.name), plan)
    rows = reader.joined(values(file)) if plan.events else reader.episodes(values(file))
    yield from read_samples(reader.samples, rows, reader.put, NO_TRACE)
    yield from reader.notes()


@dataclass
class _Reader:
    """Takes the conversations of one file."""

    samples: Samples
    plan: Plan
    uses: Uses = field(default_factory=Uses)
    without_key: int = 0

    def episodes(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Yield each conversation in the rows; None for a row without any."""
        for row in rows:
            if isinstance(row, Lost):
                yield row
                continue
            found = list(episodes_in(row))
            if not found and isinstance(row, dict):
                found = texts_of(row, (self.plan.text,)) if self.plan.text in row else unacted(row)
            yield from ({"episode": episode} for episode in found)
            if not found and isinstance(row, dict | list):
                yield None

    def joined(self, rows: Iterable[Any]) -> Iterator[Any]:
        """Yield each conversation that events make up, in the order of their first events."""
        chats: dict[str, tuple[Chat, dict[str, Any]]] = {}
        first: dict[str, tuple[float, frozenset[str]]] = {}  # the number of the first step, and its members
        last: dict[str, float] = {}
        finished = 0
        size = 0
        for row in rows:
            if isinstance(row, Lost):
                yield row
                continue
            if not isinstance(row, dict):
                continue
            name = self._name(row)
            if name is None:
                self.without_key += 1
                continue
            chat, about = chats.setdefault(name, (Chat(), {}))
            acts = acts_in(row, self.uses)
            counted_anew = not self.plan.key and _restarts(row, first.get(name), last.get(name))
            if counted_anew or any(chat.begins_anew(act) for act in acts):
                finished += 1
                chats[f"{name}\0{finished}"] = chats.pop(name)
                chat, about = chats.setdefault(name, (Chat(), {}))
            if (number := _number_of(row)) is not None:
                first[name] = first[name] if chat.messages and name in first else (number, frozenset(row))
                last[name] = number
            before = chat.size
            for act in acts:
                chat.add(act)
            size += chat.size - before
            _label(about, row, acts, self.plan.key)
            self.samples.file.budget.take(nbytes=size, what="the events of a file")
        for chat, about in chats.values():
            if chat.messages:
                yield {"chat": chat, "about": about}

    def _name(self, row: dict[str, Any]) -> str | None:
        if not self.plan.key:
            return ""
        name = _value(row, self.plan.key)
        return None if name is None else "\0".join([name, *(_value(row, key) or "" for key in ATTEMPTS)])

    def put(self, found: dict[str, Any], _samples: Samples) -> bool:
        """Add one conversation."""
        if "chat" in found:
            chat, about, record = found["chat"], found["about"], found["about"]
        else:
            episode: Episode = found["episode"]
            record = episode.owners[0] if episode.owners else {}
            about = _labels(episode)
            if isinstance(episode.entries, str):
                self.uses.take("text", episode.key)
                return self._put_text(episode.entries, about, record)
            chat = self._chat(episode)
            if not episode.entries:
                self._add([], about, record, {"n_turns": None})
                return True
        if not any(message.get("role") in ("assistant", "tool") for message in chat.messages):
            return False
        begun = any(message.get("role") == "user" for message in chat.messages)
        asked = None if begun else _asked(record)
        told = {} if chat.spoke or begun else {"n_turns": None if "chat" in found else _numbered(episode.entries)}
        self._add(chat.messages, about, record, told, asked)
        return True

    def _put_text(self, text: str, about: dict[str, Any], record: dict[str, Any]) -> bool:
        """Add the transcript in a text of a record."""
        self.uses.inferred += 1
        asked = _asked(record)
        if not is_transcript(text):
            spoken = text if shows_calls(text) else [{"role": "assistant", "content": text}]
            self._add(spoken, about, record, {}, asked)
            return True
        for found in transcripts(text):
            known = labels_of(about).columns["success"] is not None
            self._add(found.messages, about if known else about | found.labels, record, {})
        return True

    def _add(
        self,
        completion: list[Message] | str,
        about: dict[str, Any],
        record: dict[str, Any],
        told: dict[str, Any],
        asked: Any = None,
    ) -> None:
        labels = labels_of(about)
        success = labels.columns["success"]
        reward = labels.reward if labels.reward is not None or success is None else float(success)
        messages = completion if isinstance(completion, list) else []
        self.samples.add(
            Sample(
                step=step_of(record),
                split=split_of(self.samples.file, record),
                completion=completion,
                identity=[labels.columns["sample_id"], labels.columns["task"], completion or record],
                prompt=opening(messages) or asked,
                reward=reward,
                components=labels.components,
                timing=timing_of(messages),
                asked=asked,
                tools=tools_of([record]),
                columns=labels.columns | told,
                expected=next((record[key] for key in EXPECTED if record.get(key) is not None), None),
            )
        )

    def _chat(self, episode: Episode) -> Chat:
        chat = Chat()
        entries = list(map(decoded, episode.entries))
        named = with_agents(entries)
        self.uses.inferred += named is not entries
        for entry in named:
            for act in acts_in(entry, self.uses, listed=episode.listed):
                chat.add(act)
        if episode.beside and not any(message.get("tool_calls") for message in chat.messages):
            with_listed(chat, [c for e in episode.beside if (c := call_in(decoded(e), self.uses, listed=True))])
        return chat

    def notes(self) -> Iterator[Lost]:
        """Yield what was taken for what, and what was left out."""
        file, uses = self.samples.file, self.uses
        named = [f"{part} = `{_shown(key)}`" for part in SHOWN if part in uses.taken for key in [_most(uses, part)]]
        if self.plan.key:
            named.append(f"episode = `{self.plan.key}`")
        if named:
            yield Lost(note=f"{file.rel}: read by its parts: {', '.join(named)} ({self._sureness()}).")
        if self.without_key:
            events = counted(self.without_key, "event(s)")
            yield Lost(note=f"{file.rel}: {events} without `{self.plan.key}` left out.")

    def _sureness(self) -> str:
        """Say how sure the reading is: by speakers and texts under their usual names, by others, or inferred."""
        if self.plan.text:
            return "likely: calls and results by the marks in it"
        if self.uses.inferred > self.uses.read:
            return "a guess: who speaks is told by the kinds of events"
        usual = _most(self.uses, "role") in ("role", "") and _most(self.uses, "text") in ("content", "")
        return "sure" if usual and self.uses.read and not self.uses.inferred else "likely"


ASKED: Final = ("question", "prompt", "instruction", "query", "input", "task", "problem")


def _asked(record: dict[str, Any]) -> Any:
    """Return what a record keeps of its prompt beside the answer: a text, or messages, as JSON text too."""
    return next(
        (prompt_in(value) for key in ASKED if (value := record.get(key)) and isinstance(value, str | list)), None
    )


SHOWN: Final = ("role", "text", "calls", "tool", "arguments", "result")


def _most(uses: Uses, part: str) -> str:
    return uses.taken[part].most_common(1)[0][0] if part in uses.taken else ""


def _shown(key: str) -> str:
    return re.sub(r"[^\w./ -]", "?", key[:40])


def _numbered(entries: list[Any] | str) -> int | None:
    """Return how many steps calls are numbered by, one turn each; None where they are not, or all are of one step."""
    numbers = [_number_of(entry) for entry in entries if isinstance(entry, dict)]
    steps = len(set(numbers))
    return None if not numbers or None in numbers or steps == 1 < len(numbers) else steps


def _labels(episode: Episode) -> dict[str, Any]:
    """Return the labels of a conversation: of its record, of the objects down to it, and of those beside it."""
    about: dict[str, Any] = {}
    record = episode.owners[0] if episode.owners else {}
    beside = [value for value in record.values() if isinstance(value, dict) and value not in episode.owners]
    for place in (record, *episode.owners[1:], *beside):
        _take(about, place)
    if episode.place is not None:
        lists = [record[name] for name in ("scores", "rewards", "reward", "score") if name in record]
        scored = next((found for found in lists if isinstance(found, list) and len(found) > episode.place), None)
        if scored is not None:
            about["reward"] = as_number(scored[episode.place])
    if not about.get("reward") and isinstance(episode.entries, list):
        rewards = [as_number(dict_of(entry).get("reward")) for entry in episode.entries]
        known = [value for value in rewards if value is not None]
        if known and labels_of(about).reward is None:
            about["reward"] = sum(known)
    return about


def _take(about: dict[str, Any], place: dict[str, Any]) -> None:
    """Take an object's labels that are not yet known."""
    for key, value in place.items():
        name = snake(key)
        label = RANKS.get(name, ("", 0))[0]
        if label == "reward":
            if isinstance(value, bool):
                about.setdefault("success", value)
            value = _reward(value)
        if label and value is not None:
            about.setdefault(name, value)
        elif name in OUTCOMES and isinstance(value, str | bool):
            passed = value if isinstance(value, bool) else PASSED.get(value.strip().lower())
            if passed is not None:
                about.setdefault("success", passed)
        elif name == "split":
            about.setdefault(name, value)


def _reward(value: Any) -> Any:
    """Return a reward that is written as a truth, as a text, or as the total of its parts, as the number it is."""
    if isinstance(value, dict):
        value = next((value[key] for key in TOTALS if as_number(value.get(key)) is not None), value)
    if isinstance(value, bool):
        return float(value)
    return float(value) if isinstance(value, str) and DIGITS.fullmatch(value) else value


def _label(about: dict[str, Any], row: dict[str, Any], acts: list[Act], key: str) -> None:
    """Take the labels that an event tells: those of a call are the call's, and rewards of steps add up."""
    if key:
        name = _value(row, key)
        about.setdefault(
            "task" if key in ("task_id", "instance_id", "example_id", "question_id") else "sample_id", name
        )
    called = any(value and plain_key(name) in PLAIN for name, value in row.items())  # what it tells is the call's own
    passing = not PASSING.isdisjoint(words_of(event_of(parts_of(row))))
    places = [row] if acts or not (called or passing) else []
    for depth, place in enumerate(places):
        for raw, value in list(place.items()):
            name = snake(raw)
            label = RANKS.get(name, ("", 0))[0]
            if isinstance(value, dict) and not acts and depth < MAX_DEPTH:
                places.append(value)
            if label not in LABELLING or isinstance(value, dict | list) or value is None:
                continue
            if label in ("model", "env", "task"):
                about.setdefault(name, value)
            elif label == "reward" and acts and as_number(value) is not None:
                about[name] = (as_number(about.get(name)) or 0.0) + float(value)
            elif not acts:
                about[name] = value


PARSER = Parser(
    name="agent_records",
    describes="Agent traces of any other layout, read by the names of their parts: trajectories, turns, tool calls.",
    held_against="real: logs of GAIA, tau-bench, MINT and LangChain agents in layouts of their own",
    priority=95,
    general=True,
    of_training=False,
    recognises=recognises,
    read=read,
)
