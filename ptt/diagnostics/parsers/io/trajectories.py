"""What parsers of sampled trajectories share: messages to turns and paired tool calls, and rows of the tables."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import polars as pl

from ptt.diagnostics.definitions import dataclass
from ptt.diagnostics.parsers.io.answer_texts import claims_success, is_right, last_words, measure_answer, success_of
from ptt.diagnostics.parsers.io.conversations import conversation_row
from ptt.diagnostics.parsers.io.interface import Context, Lost, Piece, Rows, RunFile, count_notes
from ptt.diagnostics.parsers.io.lines import line_objects
from ptt.diagnostics.parsers.io.text_calls import chat_in, offers_tools, prompt_in, read_text_calls
from ptt.diagnostics.parsers.io.tool_calls import calls_of, failed_calls
from ptt.diagnostics.parsers.io.values import as_hash, as_name, dicts_in, digest, nested, plain_text
from ptt.diagnostics.schema import TABLES
from ptt.diagnostics.wording import counted

ANSWER: Final = "answer"  # not a column: the text to be measured, and then dropped
MEASURED_ANSWERS: Final = 32  # of a step in a file, then ever fewer of the later ones: enough for a share
MEASURED_WITHOUT_STEP: Final = 64  # the same for answers without a step: 240 of a thousand, at 0.2 ms each
TEXT_CHARS = 4000  # of a message whose text is kept: half from its beginning, half from its end


def messages_of(completion: Any) -> list[dict[str, Any]] | None:
    """Return a completion as messages, also where a text spells them; plain text as a single one; None if neither."""
    completion = chat_in(completion)
    if isinstance(completion, str):
        return [{"role": "assistant", "content": completion}]
    if isinstance(completion, list) and all(isinstance(message, dict) for message in completion):
        return completion
    return None


def spoken(
    completion: Any, tools: Sequence[dict[str, Any]] = (), asked: Any = None, *, paired: bool = False
) -> tuple[list[dict[str, Any]], Sequence[int], bool]:
    """Return a completion's messages with the calls in their texts, the number that each came from, and what is known.

    The last: whether turns and calls are known, as they are not of a plain text in which nothing shows that there were
    tools. `paired`: its calls are read already, and its texts are not searched.
    """
    found = messages_of(completion) or []
    plain = isinstance(completion, str) and chat_in(completion) is completion
    read = None
    if not paired:
        read = read_text_calls(found, declared=tool_names(tools), asked=asked, transcript=plain)
    if read is None:
        return found, range(len(found)), not plain or offers_tools(asked)
    return [message for _, message in read], [origin for origin, _ in read], True


def turns_of(messages: list[dict[str, Any]], *, keep_text: bool) -> list[dict[str, Any]]:
    """Return role, length and hash of each message, and with `keep_text` its text and calls, shortened.

    The last message of the assistant that says anything has its text beside them, under ANSWER, for `Samples.put`.
    """
    texts = [plain_text(message.get("content")) for message in messages]
    turns: list[dict[str, Any]] = [
        {
            "turn_idx": at,
            "role": as_name(message.get("role")),
            "text_len": len(text),
            "text_hash": as_hash(text),
            "text": _kept(text, message) if keep_text else None,
        }
        for at, (message, text) in enumerate(zip(messages, texts, strict=True))
    ]
    said = [at for at, turn in enumerate(turns) if turn["role"] == "assistant" and turn["text_len"]]
    if said:
        turns[said[-1]][ANSWER] = texts[said[-1]]
    return turns


def _kept(text: str, message: dict[str, Any]) -> str:
    calls = [f"{call['name']}({call['args_json'] or ''})" for call in calls_of([message])]
    whole = " ".join([text, *calls] if text else calls)
    return whole if len(whole) <= TEXT_CHARS else f"{whole[: TEXT_CHARS // 2]}…{whole[-TEXT_CHARS // 2 :]}"


FLUSH_ROWS: Final = 20_000  # messages and calls kept as Python objects before they become frames
FLUSH_CHARS: Final = 8_000_000  # characters of conversations, the same
WORD: Final = re.compile(r"[a-z]+")
WENT_ON: Final = "went_on"  # ok_source of a call without a result, behind which its author wrote on
BEHIND_CALL: Final = re.compile(
    r"</tool_call>\s*(?=[^\s<\[])(?!(?i:tool|user|observation|ipython|results?|output|response|returned)\b)"
)
"""A text that goes on behind its call; what a result begins with is none."""
NO_OBJECTS: Final = "message(s) or step(s) skipped: not an object."
EVALUATION: Final = frozenset({"val", "valid", "validation", "eval", "evals", "evaluation", "test"})
TRAINING: Final = frozenset({"train", "training", "rollout", "rollouts"})

Facts = Mapping[str, str | int | float | bool | None]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One trajectory as its file records it; None where the file does not say.

    `completion`: the messages of the trajectory, or its text if roles are lost; turns and calls are then unknown.
    `identity`: what distinguishes this sample from all others of the run, wherever its file is. `prompt`: what attempts
    at the same prompt share: messages, a text, or the name of the task. `asked`: the messages or the text of the prompt
    that `completion` does not begin with, for exports. `tools`: definitions of the tools offered, as the file has them.
    `columns`: further columns of the table of trajectories. `expected` is compared with what the last answer marks as
    its result.
    """

    step: int | None
    split: str
    completion: list[dict[str, Any]] | str
    identity: Sequence[Any]
    prompt: Any = None
    reward: float | None = None
    components: Mapping[str, float | None] = field(default_factory=dict)
    calls: list[dict[str, Any]] | None = None  # already paired with results; if None, they are paired here
    timing: Sequence[Mapping[str, Any]] = ()  # for each message: n_tokens, t_start, t_end
    asked: Any = None
    tools: Sequence[dict[str, Any]] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    expected: Any = None  # the right answer, where the file names one


@dataclass
class Samples:
    """Rows of one file, table by table, and the means of what it evaluates."""

    file: RunFile
    parser: str
    rows: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {
            name: [] for name in ("trajectories", "rewards", "turns", "answers", "tool_calls", "conversations", "evals")
        }
    )
    dropped: int = 0  # messages and steps that are not objects
    _seen: Counter[int] = field(default_factory=Counter)
    _answers: Counter[int | None] = field(default_factory=Counter)
    _means: dict[tuple[str, int | None, str], list[float]] = field(default_factory=dict)
    _chars: int = 0  # in the conversations among the rows

    def add(self, sample: Sample) -> None:
        """Add one trajectory with its rewards, turns and tool calls."""
        asked = prompt_in(sample.asked)
        messages, origins, known = spoken(sample.completion, sample.tools, asked, paired=sample.calls is not None)
        calls = (calls_of(messages) if sample.calls is None else sample.calls) if known else []
        if any(call["result_len"] is None for call in calls) and _goes_on(sample.completion):
            calls = [call | ({"ok_source": WENT_ON} if call["result_len"] is None else {}) for call in calls]
        turns = turns_of(messages, keep_text=self.file.keep_text)
        timings = dict(enumerate(sample.timing))
        for turn, origin in zip(turns, origins, strict=True):
            turn.update(timings.pop(origin, {}))
        columns = {
            "step": sample.step,
            "split": sample.split,
            "prompt_hash": None if sample.prompt is None else digest(sample.prompt),
            "reward": sample.reward,
            "n_turns": sum(message.get("role") == "assistant" for message in messages) if known else None,
            **({"n_tool_fail": failed_calls(messages, calls)} if known else {}),
            **({"tools_offered": tool_names(sample.tools)} if sample.tools else {}),
            **sample.columns,
        }
        said = next((turn[ANSWER] for turn in turns if ANSWER in turn), None)
        if sample.expected is not None and said is not None:
            columns["answer_right"] = is_right(said, sample.expected)
        name = self.new_id(digest([self.parser, *sample.identity]))
        self.put(name, columns, turns=turns, calls=calls if known else None, rewards=scores_of(sample.components))
        self.keep_conversation(name, messages, asked, sample.tools)

    def keep_conversation(
        self,
        trajectory_id: str,
        messages: Sequence[dict[str, Any]],
        asked: Any = None,
        tools: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Keep the messages of a trajectory that was put, where an export asks for them."""
        if self.file.keep_messages and (messages or asked):
            row = conversation_row(messages, asked, tools)
            self.rows["conversations"].append({"trajectory_id": trajectory_id, **row})
            self._chars += sum(len(text or "") for text in row.values())

    def objects(self, found: Any) -> list[dict[str, Any]]:
        """Return the objects in a list of messages or steps, and count the other entries."""
        kept = dicts_in(found)
        self.dropped += len(found) - len(kept) if isinstance(found, list) else 0
        return kept

    def new_id(self, hashed: int) -> str:
        """Name a trajectory by its digest, numbered where the file repeats it."""
        repeat, self._seen[hashed] = self._seen[hashed], self._seen[hashed] + 1
        return f"{hashed:016x}-{repeat}" if repeat else f"{hashed:016x}"

    def put(
        self,
        trajectory_id: str,
        columns: Mapping[str, Any],
        *,
        turns: Iterable[Mapping[str, Any]] = (),
        calls: Sequence[Mapping[str, Any]] | None = None,
        rewards: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Add one trajectory's rows, which come without its id; without `calls` their number is not known."""
        key, calls_made = {"trajectory_id": trajectory_id}, calls or ()
        parts = [{**key, **reward} for reward in rewards]
        self.rows["rewards"] += parts
        if columns.get("success") is None and parts:
            columns = {**columns, "success": success_of({str(part["name"]): part["score"] for part in parts})}
        answer = None
        for turn in turns:
            row = {**key, **turn}
            answer = row.pop(ANSWER, answer)
            self.rows["turns"].append(row)
        if answer is not None and self._is_drawn(trajectory_id, columns["step"]):
            self.rows["answers"].append({**key, **measure_answer(answer)})
        words = last_words(answer, calls_made)
        self.rows["tool_calls"] += [{**key, "step": columns["step"], **call} for call in calls_made]
        counts = {"n_tool_calls": len(calls_made), "n_tool_fail": sum(call["ok"] is False for call in calls_made)}
        claims = None if words is None else claims_success(words)
        self.rows["trajectories"].append(
            {
                **key,
                "claims_success": claims,
                **(counts if calls is not None else {}),
                "source": self.file.rel,
                **columns,
            }
        )

    def _is_drawn(self, trajectory_id: str, step: int | None) -> bool:
        """Choose answers to measure by the hash of their sample: all at first, then one in ever more."""
        before, self._answers[step] = self._answers[step], self._answers[step] + 1
        many = MEASURED_ANSWERS if step is not None else MEASURED_WITHOUT_STEP
        return zlib.crc32(trajectory_id.encode()) % (1 + before // many) == 0

    def mean(self, suite: str, step: int | None, metric: str, value: float | None) -> None:
        """Count a score of an evaluated sample towards the mean of its suite."""
        if value is not None:
            total = self._means.setdefault((suite, step, metric), [0.0, 0.0])
            total[0] += value
            total[1] += 1

    def evaluated(self, **row: Any) -> None:
        """Add a figure that the writer worked out itself."""
        self.rows["evals"].append({**row, "source": self.file.rel})

    @property
    def full(self) -> bool:
        """Return whether it is time to take the rows out."""
        return self._chars >= FLUSH_CHARS or sum(map(len, self.rows.values())) >= FLUSH_ROWS

    def take(self) -> Iterator[Rows]:
        """Yield the rows that were added as frames, and start again empty."""
        for table, rows in self.rows.items():
            if rows:
                yield Rows(table=table, frame=pl.DataFrame(rows, schema=TABLES[table], orient="row"))
                rows.clear()
        self._chars = 0

    def close(self, **columns: Any) -> Iterator[Piece]:
        """Yield what is left, the means of the evaluated scores, and what was dropped."""
        for (suite, step, metric), (total, count) in self._means.items():
            self.evaluated(suite=suite, step=step, metric=metric, value=total / count, n=int(count), **columns)
        self._means.clear()
        yield from self.take()
        yield from count_notes(self.file, {NO_OBJECTS: self.dropped}, lost=(NO_OBJECTS,))
        self.dropped = 0


def _goes_on(completion: list[dict[str, Any]] | str) -> bool:
    """Return whether the assistant's own text goes on behind a call that it wrote."""
    if isinstance(completion, str):
        return BEHIND_CALL.search(completion) is not None
    said = (message.get("content") for message in completion if message.get("role") == "assistant")
    return any(isinstance(text, str) and BEHIND_CALL.search(text) for text in said)


def read_lines(
    file: RunFile, parser: str, add: Callable[[dict[str, Any], Samples], bool], facts: Facts | None = None
) -> Iterator[Piece]:
    """Read a line file of samples: `add` takes one object, and says whether it was one."""
    yield from read_samples(Samples(file, parser), objects(file), add)
    if facts:
        yield Context(facts=dict(facts))


def attempt(add: Callable[[dict[str, Any], Samples], bool], found: Any, samples: Samples) -> bool:
    """Add a sample if it is one; nesting that could just be decoded may still be too deep to encode again."""
    try:
        return isinstance(found, dict) and add(found, samples)
    except RecursionError:
        return False


def objects(file: RunFile) -> Iterator[dict[str, Any] | Lost]:
    """Yield the JSON objects of a line file; other lines are counted."""
    bad = 0
    for record in line_objects(file):
        if record is not None:
            yield record
        bad += record is None
    if bad:
        yield Lost(rows=bad, note=f"{file.rel}: {counted(bad, 'line(s)')} skipped: not a JSON object.")


def rows_of_columns(found: dict[str, Any], length_of: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Turn an object of lists into rows, as many as the list `length_of` has; name the lists of another length."""
    leading = found.get(length_of)
    if not isinstance(leading, list):
        return [], []
    fitting = {
        name: column for name, column in found.items() if isinstance(column, list) and len(column) == len(leading)
    }
    uneven = [name for name, column in found.items() if isinstance(column, list) and name not in fitting]
    names = list(fitting)
    return [dict(zip(names, row, strict=True)) for row in zip(*fitting.values(), strict=True)], uneven


def split_of_path(rel: str) -> str:
    """Return `train` or `eval` by the names of file and folders, the innermost first; `unknown` if they do not say."""
    for part in reversed(rel.lower().split("/")):
        words = set(WORD.findall(part))
        if words & EVALUATION:
            return "eval"
        if words & TRAINING:
            return "train"
    return "unknown"


def read_samples(
    samples: Samples,
    rows: Iterable[dict[str, Any] | Piece | None],
    add: Callable[[dict[str, Any], Samples], bool],
    lacking: str = "row(s) skipped: not a sample.",
) -> Iterator[Piece]:
    """Read `rows` of one file as samples: `add` takes one, and says whether it was a sample; pieces pass through."""
    bad = 0
    for row in rows:
        if isinstance(row, Piece):
            yield row
            continue
        bad += not attempt(add, row, samples)
        if samples.full:
            yield from samples.take()
    yield from samples.close()
    yield from count_notes(samples.file, {lacking: bad}, lost=(lacking,))


def tool_names(definitions: Iterable[Any]) -> list[str]:
    """Return the names of tools from their definitions, of OpenAI's shape or with the name on top."""
    found = (nested(tool, "function", "name") or nested(tool, "name") for tool in definitions)
    return sorted({name for name in found if isinstance(name, str)})


def scores_of(components: Mapping[str, float | None]) -> list[dict[str, Any]]:
    """Spell the parts of a reward out as rows."""
    return [{"name": name, "score": score} for name, score in components.items()]
