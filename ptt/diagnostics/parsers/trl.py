"""TRL and other Hugging Face trainers: completions logged as Parquet, and the log history in trainer_state.json.

Completions become trajectories, turns, tool calls and reward components. Scripts copy a trainer's state under other
names, and into documents of their own: it is told by its `log_history`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.types as pat

from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, RunFile, lost_notes, read_error
from ptt.diagnostics.parsers.io.lines import count_halves, too_large_to_parse, well_formed
from ptt.diagnostics.parsers.io.metric_rows import MetricColumns, flatten, metric_values
from ptt.diagnostics.parsers.io.parquet_files import cut_note, is_cut, row_batches, schema_of
from ptt.diagnostics.parsers.io.text_calls import prompt_in
from ptt.diagnostics.parsers.io.tool_calls import calls_of
from ptt.diagnostics.parsers.io.trajectories import Samples, messages_of, scores_of, spoken, turns_of
from ptt.diagnostics.parsers.io.values import as_hash, as_json, as_number, as_plain_number, as_step
from ptt.diagnostics.wording import counted

KEYS = frozenset({"step", "prompt", "completion"})
SAMPLE_ID = "sample_id"  # TRL writes what a reward function hands to its `log_extra` as columns of their own
BAD_ROWS = "row(s) skipped: no step, or no completion."
BATCH_ROWS = 1024


def recognises_completions(file: RunFile) -> bool:
    """Recognise a file by place and columns, or by place alone where the footer is gone."""
    if not file.name.endswith(".parquet") or not is_cut(file):
        return False
    if not (file.name.startswith("completions_") or file.path.parent.name == "completions"):
        return False
    footer = schema_of(file)
    return footer is None or set(footer[0].names) >= KEYS


def read_completions(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a row; texts are hashed and measured, and kept only where the user asked for it."""
    footer = schema_of(file)
    if footer is None:
        yield cut_note(file)
        return
    if missing := sorted(KEYS.difference(footer[0].names)):
        note = f"{file.rel}: no column {' and '.join(missing)}, so its rows are not samples."
        yield Lost(rows=footer[1], bytes=file.size, note=note)
        return
    rewards = _reward_columns(footer[0])
    wanted = [name for name in footer[0].names if name in KEYS or name in rewards or name == "advantage"]
    if pat.is_string(kind := _type_of(footer[0], SAMPLE_ID)) or pat.is_large_string(kind) or pat.is_integer(kind):
        wanted.append(SAMPLE_ID)
    samples = Samples(file, COMPLETIONS.name)
    bad = 0
    for batch in row_batches(file, wanted, footer[1], rows=BATCH_ROWS):
        if isinstance(batch, Lost):
            yield batch
            continue
        for row in batch:
            bad += not _add(row, rewards, samples)
        yield from samples.take()
    yield from lost_notes(file, {BAD_ROWS: bad})
    yield Context(facts={"framework": "trl"})


def _reward_columns(schema: pa.Schema) -> list[str]:
    """Return the reward functions' columns: the numbers right behind the completion."""
    names: list[str] = []
    for column in list(schema)[schema.get_field_index("completion") + 1 :]:
        if column.name == "advantage" or not (pat.is_floating(column.type) or pat.is_null(column.type)):
            break
        names.append(column.name)
    return names


def _add(row: dict[str, Any], rewards: list[str], samples: Samples) -> bool:
    """Add one sample to the tables; False if it holds no step or no completion."""
    step = as_step(row["step"])
    if step is None or messages_of(row["completion"]) is None:
        return False
    asked = prompt_in(row["prompt"])
    messages, _, _ = spoken(row["completion"], asked=asked)
    scores = {name: as_plain_number(row[name]) for name in rewards}
    advantage = as_plain_number(row.get("advantage"))
    # Without the step: TRL repeats a generation in later files under later steps, and it stays one trajectory.
    sample = row.get(SAMPLE_ID)
    named = [] if sample is None else [str(sample)]
    content = as_json([row["prompt"], row["completion"], scores, advantage, *named])
    given = [score for score in scores.values() if score is not None]
    columns = {
        "sample_id": named[0] if named else None,
        "step": step,
        "split": "unknown",  # evaluation writes into the same file
        "prompt_hash": as_hash(as_json(row["prompt"])),
        "reward": sum(given) if given else None,  # TRL's own total if no weights were set
        "advantage": advantage,
        "n_turns": sum(message.get("role") == "assistant" for message in messages),
    }
    name = samples.new_id(as_hash(content))
    samples.put(
        name,
        columns,
        turns=turns_of(messages, keep_text=samples.file.keep_text),
        calls=calls_of(messages),
        rewards=scores_of(scores),
    )
    samples.keep_conversation(name, messages, asked)
    return True


def _type_of(schema: pa.Schema, name: str) -> pa.DataType:
    places = schema.get_all_field_indices(name)
    return schema.field(places[0]).type if len(places) == 1 else pa.null()


COMPLETIONS = Parser(
    name="trl_completions",
    describes="Completions that TRL logs as Parquet: trajectories, turns, tool calls, rewards; texts on request.",
    held_against="real: TRL 1.16 runs with tools",
    priority=10,
    of_training=False,
    recognises=recognises_completions,
    read=read_completions,
)


MAX_BYTES = 256 << 20  # a million logged steps; JSON takes ten times its size when it is read
FACTS = ("global_step", "max_steps", "logging_steps", "train_batch_size")
FACT = re.compile(r'"(global_step|max_steps|logging_steps|train_batch_size)": (\d+)')
HISTORY = re.compile(r'"log_history"\s*:\s*\[')
HISTORY_BYTES = re.compile(HISTORY.pattern.encode())
STRING, BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"'), re.compile(rb"[\[\]{}]")
MAX_NESTING = 3  # levels of a document searched for a state
WHITE = b"\xef\xbb\xbf \t\r\n"
TRL_NAMES = frozenset(
    {"completions/mean_length", "completion_length", "frac_reward_zero_std", "objective/rlhf_reward", "rewards/margins",
     "min_reward", "mean_token_accuracy"}
)  # fmt: skip
MAX_ROW = 1 << 18  # characters of a logged row
FAILED_SHARE = 4  # of the text, the cost allowed for rows that cannot be decoded: damage is not everywhere
FAILURE_COST = 1000  # characters readable in the time that one failure takes
STEPLESS = "row(s) of the log history skipped: no step."
SEPARATOR = re.compile(r"[\s,]*")


def recognises_state(file: RunFile) -> bool:
    """Recognise a log history in the first levels of a document, or the name of a state that is torn before it."""
    head = file.readable_head
    if not head.lstrip(WHITE).startswith(b"{"):
        return False
    if file.name.endswith("trainer_state.json") and (b'"global_step"' in head or b'"log_history"' in head):
        return True
    start = HISTORY_BYTES.search(head)
    return start is not None and 1 <= _depth(head[: start.start()]) <= MAX_NESTING


def _depth(text: bytes) -> int:
    """Return how many brackets are open behind a text; 0 where a first document has ended in it."""
    depth = 0
    for mark in BRACKET.findall(STRING.sub(b"", text)):
        depth += 1 if mark in b"[{" else -1
        if not depth:
            return 0
    return depth


def read_state(file: RunFile) -> Iterator[Piece]:
    """Yield the log history as metrics; of a torn file, the rows before and after the tear."""
    if file.size > MAX_BYTES:
        yield Lost(bytes=file.size, note=f"{file.rel} is larger than 256 MB and was not read.")
        return
    try:
        content = file.path.read_bytes()
    except OSError as error:  # gone, or its disk fails
        yield read_error(file, error)
        return
    if why := too_large_to_parse(file, content, "the document"):
        yield Lost(rows=1, bytes=file.size, note=f"{file.rel}: {why}; it was not read.")
        return
    count_halves(file, content)
    text = content.decode("utf-8", "replace")
    del content
    try:
        found = well_formed(json.loads(text.removeprefix("\ufeff")), text)
    except (ValueError, RecursionError):  # cut while being written, or damaged
        found, lost = _salvage(text, file)
        yield lost
    states = _states(found)
    if not states:
        yield Lost(bytes=file.size, note=f"{file.rel} has no list `log_history`, so no metrics.")
        return
    state = max(states, key=lambda state: len(state["log_history"]))
    if len(states) > 1:
        yield Lost(note=f"{file.rel} contains {len(states)} log histories; only the longest was read.")
    history = state["log_history"]
    yield from _rows(history, file)
    facts: dict[str, Any] = {key: value for key in FACTS if type(value := state.get(key)) is int}
    runtimes = (as_number(row.get("train_runtime")) for row in reversed(history) if isinstance(row, dict))
    runtime = next((seconds for seconds in runtimes if seconds is not None), None)
    facts |= {} if runtime is None else {"train_runtime": runtime}
    yield Context(facts=facts | {"framework": _framework(history)})


def _states(found: Any, depth: int = 1) -> list[dict[str, Any]]:
    """Return the states in a document's first levels."""
    if not isinstance(found, dict):
        return []
    if isinstance(found.get("log_history"), list):
        return [found]
    inner = found.values() if depth < MAX_NESTING else ()
    return [state for value in inner for state in _states(value, depth + 1)]


def _rows(history: list[Any], file: RunFile) -> Iterator[Piece]:
    columns = MetricColumns(file)
    bad = 0
    for seq, row in enumerate(history):
        step = as_step(row.get("step")) if isinstance(row, dict) else None
        if step is None:
            bad += 1
            continue
        for name, value in metric_values(flatten(row)).items():
            if name != "step":
                columns.add(step, name, value, None, seq)
        yield from columns.flush()
    yield from columns.pieces()
    yield from lost_notes(file, {STEPLESS: bad})


def _salvage(text: str, file: RunFile) -> tuple[dict[str, Any], Lost]:
    """Recover the complete rows of a file that is not valid JSON as a whole."""
    rows: list[Any] = []
    state: dict[str, Any] = {key: int(value) for key, value in FACT.findall(text) if len(value) < 19}
    start = HISTORY.search(text)
    if start is None:
        note = f"{file.rel} is cut or damaged before its log history begins; no metrics were recovered."
        return state | {"log_history": rows}, Lost(bytes=file.size, note=note)
    decoder = json.JSONDecoder()
    at, lost, bad = start.end(), 0, 0
    base, window = at, text[at : at + 2 * MAX_ROW]  # to give an error's line, the decoder counts all lines before it
    patience = FAILED_SHARE * len(text)
    while at < len(text) and patience > 0:
        gap = SEPARATOR.match(text, at)
        at = gap.end() if gap else at
        if text.startswith("]", at):
            at = len(text)  # after the history come only the trainer's own settings
            break
        if at - base > MAX_ROW:
            base, window = at, text[at : at + 2 * MAX_ROW]
        try:
            row, end = decoder.raw_decode(window, at - base)
            if not (isinstance(row, dict) and "step" in row):
                break  # rows are flat, so this is no row: the damage took the end of the list
            rows.append(well_formed(row, text[at : base + end]))
            at = base + end
        except (ValueError, RecursionError) as error:  # this row is the damaged one: go on at the next
            bad += 1
            patience -= FAILURE_COST + max(0, getattr(error, "pos", 0) - (at - base))
            following = text.find("{", at + 1)
            lost += (following if following > 0 else len(text)) - at
            at = following if following > 0 else len(text)
    note = f"{file.rel} is cut or damaged; {counted(len(rows), 'complete row(s)')} of its log history recovered."
    return state | {"log_history": rows}, Lost(rows=bad, bytes=max(1, lost + len(text) - at), note=note)


def _framework(history: list[Any]) -> str:
    """Name TRL where a name is logged that only its trainers log; Hugging Face's own names alone tell no more."""
    names: set[str] = set().union(*(row for row in history if isinstance(row, dict)))
    return "trl" if names & TRL_NAMES else "transformers"


STATE = Parser(
    name="trl_state",
    describes="trainer_state.json of TRL, Unsloth and other Hugging Face trainers, under any name: all logged metrics.",
    held_against="real: TRL 1.16 runs (GRPO, DPO, SFT)",
    priority=10,
    recognises=recognises_state,
    read=read_state,
)
