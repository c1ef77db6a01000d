"""verifiers and prime-rl: traces of episodes, and up to 0.3 results of an evaluation with the metadata beside them.

`traces.jsonl`, also below prime-rl's `rollouts/`, has one episode a line, each message with its tokens. Written by
`write_episode` (PrimeIntellect-ai/verifiers, verifiers/v1/utils/trace_store.py; fields in episode.py, trace.py and
graph.py). prime-rl keeps the episodes of a step twice: `all` as they ended and `effective` as they were trained on
(prime-rl, monitors/file.py). From 0.4 on floats have four decimals.

`results.jsonl` and prime-rl's `train_rollouts.jsonl` have one rollout a line: texts, rewards and how it ended. The
tokens that some columns hold come with the engine's log-probabilities alone, which make no pair, and are passed over.
Fields as in `RolloutOutput` (verifiers/legacy/types.py and legacy/utils/save_utils.py at a60a606), and as vf-eval of
0.1 wrote them, where the example is `id` and each reward function is a column (willccbb/verifiers at 39f0675,
environments/math_python/outputs/evals/math-python--gpt-4.1-mini/dbaac595/results.jsonl).

`metadata.json` names the model and the metrics of the evaluation: fields as in `GenerateMetadata` (verifiers/types.py
before 0.4).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from ptt.diagnostics.flat_lists import as_lists
from ptt.diagnostics.parsers.io.answer_texts import success_of
from ptt.diagnostics.parsers.io.interface import Context, Lost, Parser, Piece, Rows, RunFile, count_notes
from ptt.diagnostics.parsers.io.json_documents import members
from ptt.diagnostics.parsers.io.lines import (
    WHITE,
    count_halves,
    first_objects,
    json_object,
    line_objects,
    object_blocks,
    parse_json,
    text_head,
)
from ptt.diagnostics.parsers.io.message_graphs import (
    COMPACT,
    BadGraphError,
    call_rows,
    message_of,
    paths,
    sequences,
    step_of_folder,
    turn_rows,
)
from ptt.diagnostics.parsers.io.text_calls import chat_in
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, messages_of, read_samples, tool_names
from ptt.diagnostics.parsers.io.values import (
    as_count,
    as_flag,
    as_hash,
    as_id,
    as_json,
    as_label,
    as_name,
    as_plain_number,
    as_step,
    dict_of,
    dicts_in,
    nested,
)
from ptt.diagnostics.schema import EVALS, SEQUENCES
from ptt.diagnostics.wording import counted

TWICE: Final = {"all": "effective", "effective": "all"}
ROUNDED: Final = "rounded4"  # logp_kind
ROUNDS_SINCE: Final = (0, 4)
FLOATS: Final = tuple(COMPACT.values())
SHARED: Final = ("step", "trajectory_id", "group_id", "env", "reward", "policy_version")  # of sequence and trajectory
SET: Final = ("trajectory_id", "step", "split", "prompt_hash", "reward")  # of a chat, by `Samples.add`
EVERY_ARRIVAL: Final = "/all/"  # prime-rl: what failed is among these, and is not trained on
NO_EPISODE: Final = "line(s) skipped: not an episode."


def recognises_traces(file: RunFile) -> bool:
    """Recognise a file by the first row: an episode with traces of nodes."""
    return any(_traces(record) or _chats(record) for record in first_objects(file, 1))


def _traces(episode: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the traces of an episode that hold nodes."""
    return [trace for trace in dicts_in(episode.get("traces")) if isinstance(trace.get("nodes"), list)]


def _chats(episode: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the traces of an episode whose messages are spelt out: an export without tokens."""
    return [trace for trace in dicts_in(episode.get("traces")) if isinstance(trace.get("messages"), list)]


def read_traces(file: RunFile) -> Iterator[Piece]:
    """Yield trajectories with turns, calls and rewards, and sequences of those that were trained on."""
    if other := _better(file):
        yield Lost(note=f"{file.rel} was skipped: {other} contains the same episodes.")
        return
    reader = _Reader(file)
    bad = broken = 0
    for block in object_blocks(file):
        for episode in block:
            if isinstance(episode, Lost):
                yield episode
            elif episode is None or not isinstance(episode.get("traces"), list):
                bad += 1
            else:
                broken += sum(not reader.add(episode, trace) for trace in _traces(episode))
                for trace in _chats(episode):
                    reader.add_chat(episode, trace)
        yield from reader.take()
    yield from count_notes(file, {NO_EPISODE: bad}, lost=(NO_EPISODE,))
    if broken:
        yield Lost(rows=broken, note=f"{file.rel}: {counted(broken, 'trace(s)')} skipped: inconsistent message graph.")
    yield Context(facts={"framework": "prime-rl" if _of_prime(file) else "verifiers"})


def _better(file: RunFile) -> str | None:
    """Name the file with the same episodes that is read instead: for training those trained on, else all."""
    kind, split = file.path.parent.name, file.path.parent.parent.name
    if not _of_prime(file) or kind == ("all" if split == "eval" else "effective"):
        return None
    other = file.path.parent.parent / TWICE[kind] / file.name
    return "/".join(other.parts[-4:]) if other.is_file() and not other.is_symlink() else None


def _of_prime(file: RunFile) -> bool:
    folder = file.path.parent
    return folder.name in TWICE and folder.parent.name in ("train", "eval")


class _Reader:
    """Turns traces into the tables."""

    def __init__(self, file: RunFile) -> None:
        self._samples = Samples(file, TRACES.name)
        self._sequences: list[dict[str, Any]] = []

    def add(self, episode: dict[str, Any], trace: dict[str, Any]) -> bool:
        """Add a trace; False where its nodes do not fit together."""
        nodes, file = trace["nodes"], self._samples.file
        if not all(isinstance(node, dict) for node in nodes):
            return False
        columns = _columns(episode, trace, file)
        key = columns["trajectory_id"]
        calls = call_rows(nodes)  # names results in place, so before the turns are spelt out
        trained = columns["split"] == "train" and nested(trace, "agent", "trainable") is not False
        try:
            paths = list(sequences(nodes)) if columns["step"] is not None and trained else []
        except BadGraphError:
            return False
        shared = {name: columns[name] for name in SHARED} | ({"logp_kind": ROUNDED} if _rounds(trace) else {})
        self._sequences += [
            {**shared, **row, "sample_id": key if len(paths) == 1 else f"{key}/{at}"} for at, row in enumerate(paths)
        ]
        columns |= {
            "sample_id": key,
            "token_hash": paths[0]["token_hash"] if paths else None,
            "n_turns": sum(node.get("sampled") is True for node in nodes),
        }
        turns = turn_rows(nodes, keep_text=file.keep_text)
        self._samples.put(key, columns, turns=turns, calls=calls, rewards=_rewards(trace))
        self._keep_conversation(key, trace)
        return True

    def add_chat(self, episode: dict[str, Any], trace: dict[str, Any]) -> None:
        """Add a trace without nodes, by its messages."""
        columns = _columns(episode, trace, self._samples.file)
        task = dict_of(episode.get("task"))
        named = {
            "group_id": columns["group_id"] or as_label(task.get("idx")),
            "env": columns["env"] or as_name(episode.get("env")),
            "n_turns": as_count(trace.get("num_turns")),
            "truncated": as_flag(trace.get("is_truncated")),
            "duration_s": as_plain_number(nested(trace, "timing", "total")),
        }
        reward = as_plain_number(trace.get("reward"))
        self._samples.add(
            Sample(
                step=columns["step"],
                split=columns["split"],
                completion=self._samples.objects(trace["messages"]),
                identity=[columns["step"], episode.get("id"), trace],
                prompt=task or None,
                reward=columns["reward"] if reward is None else reward,
                columns={
                    key: value for key, value in (columns | named).items() if value is not None and key not in SET
                },
                expected=task.get("answer"),
            )
        )

    def _keep_conversation(self, key: str, trace: dict[str, Any]) -> None:
        """Keep the messages of the last path: an agent that cleared its context begins another."""
        nodes = trace["nodes"]
        if self._samples.file.keep_messages and nodes:
            try:
                path = max(paths(nodes), key=lambda path: path[-1])
            except BadGraphError:
                return
            messages = [message_of(nodes[at]) for at in path]
            self._samples.keep_conversation(key, messages, tools=dicts_in(trace.get("tools")))

    def take(self) -> Iterator[Piece]:
        """Yield what was added, as frames, and start again empty."""
        if self._sequences:
            yield Rows(table="sequences", frame=_sequence_frame(self._sequences))
        self._sequences = []
        yield from self._samples.take()


def _columns(episode: dict[str, Any], trace: dict[str, Any], file: RunFile) -> dict[str, Any]:
    """Return the columns of a trace: which step and policy made it, how it ended, what it earned."""
    work, info = dict_of(nested(episode, "run", "work")), dict_of(trace.get("info"))
    policy = dict_of(work.get("policy"))
    scores = [row["score"] * row["weight"] for row in _rewards(trace) if row["score"] is not None]
    usage, tools = _usage(trace), dicts_in(trace.get("tools"))
    errors = [errors for errors in (trace.get("errors"), episode.get("errors")) if isinstance(errors, list) and errors]
    return {
        "trajectory_id": as_name(trace.get("id")) or f"{as_hash(as_json(trace)):016x}",
        "step": _step(file, work, info),
        "split": _split(file, nested(episode, "run", "type"), work),
        "prompt_hash": as_hash(as_json(nested(trace, "task", "data"))),
        "reward": sum(scores) if scores else None,
        "advantage": as_plain_number(info.get("advantage")),
        "group_id": as_name(nested(episode, "group", "id")),
        "env": as_name(nested(episode, "env", "name")) or as_name(nested(episode, "env", "id")),
        "policy_version": as_step(policy.get("start", info.get("policy_version"))),
        "task": _task(dict_of(trace.get("task"))),
        "tools_offered": tool_names(tools) if tools else None,
        "success": success_of({row["name"]: row["score"] for row in _rewards(trace)}),
        **usage,
        "truncated": True if trace.get("is_timeout") is True else _cut(trace),
        "stop_reason": as_name(trace.get("stop_condition")),
        "error_type": as_name(nested(errors[0][-1], "type")) if errors else None,
        "masked": True if errors and EVERY_ARRIVAL in f"/{file.rel}" else None,
    }


def _task(task: dict[str, Any]) -> str | None:
    """Return what identifies a task: its name, else its number or key."""
    data = dict_of(task.get("data"))
    return as_name(data.get("name")) or as_label(data.get("idx")) or as_name(task.get("key"))


def _usage(trace: dict[str, Any]) -> dict[str, Any]:
    """Return the model of the calls that were recorded, their tokens and costs together."""
    calls = dicts_in(trace.get("calls"))
    used = [dict_of(call.get("usage")) for call in calls]
    read_traces, cached, written = (
        [count for usage in used if (count := as_count(usage.get(key))) is not None]
        for key in ("prompt_tokens", "cached_input_tokens", "completion_tokens")
    )
    costs = [cost for usage in used if (cost := as_plain_number(usage.get("cost"))) is not None]
    return {
        "model": next((name for call in calls if (name := as_name(call.get("model")))), None),
        "tokens_in": sum(read_traces) + sum(cached) if read_traces else None,
        "tokens_out": sum(written) if written else None,
        "cost_usd": sum(costs) if costs else None,
    }


def _step(file: RunFile, work: dict[str, Any], info: dict[str, Any]) -> int | None:
    """Return the step: the folder's, which is that of training; an episode's own is that of its dispatch."""
    step = step_of_folder(file)
    return as_step(work.get("step", info.get("step"))) if step is None else step


def _split(file: RunFile, run_type: Any, work: dict[str, Any]) -> str:
    if _of_prime(file):
        return file.path.parent.parent.name
    return "eval" if run_type == "eval" or work.get("type") == "eval" else "train"


def _cut(trace: dict[str, Any]) -> bool | None:
    """Return whether the last call ended by length, where calls are recorded."""
    calls = trace.get("calls")
    reason = nested(calls[-1], "finish_reason") if isinstance(calls, list) and calls else None
    return reason == "length" if isinstance(reason, str) else None


def _rewards(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the components of the reward; one that was never scored has no score."""
    rows = []
    for name, reward in dict_of(trace.get("rewards")).items():
        weight = as_plain_number(dict_of(reward).get("weight", 1.0))
        score = as_plain_number(reward if isinstance(reward, int | float) else nested(reward, "score"))
        rows.append({"name": name, "score": score, "weight": 1.0 if weight is None else weight})
    return rows


def _rounds(trace: dict[str, Any]) -> bool:
    """Return whether this version of the writer keeps four decimals of a float."""
    version = as_name(nested(trace, "verifiers", "version")) or ""
    parts = re.match(r"(\d{1,6})\.(\d{1,6})", version, re.ASCII)
    return parts is not None and (int(parts[1]), int(parts[2])) >= ROUNDS_SINCE


def _sequence_frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """Put sequences into columns; lists go in as arrays end to end, and what is no number is null."""
    columns: dict[str, pl.Series] = {}
    offsets = np.cumsum([0, *(len(row["token_ids"]) for row in rows)])
    for name, kind in SEQUENCES.items():
        if all(row.get(name) is None for row in rows):
            continue
        if name not in (*FLOATS, "token_ids", "model_mask", "train_mask"):
            columns[name] = pl.Series(name, [row.get(name) for row in rows], dtype=kind)
            continue
        blank = np.full(int(max(np.diff(offsets))), np.nan, np.float32)
        parts = [blank[: len(row["token_ids"])] if row.get(name) is None else row[name] for row in rows]
        columns[name] = as_lists(np.concatenate(parts), offsets).alias(name).cast(kind)
        if name in FLOATS:
            columns[name] = columns[name].list.eval(pl.element().fill_nan(None))
    return pl.DataFrame(columns)


TRACES = Parser(
    name="verifiers_traces",
    describes="verifiers' traces.jsonl, also of prime-rl: log-probabilities, tools, turns, calls, rewards, versions.",
    held_against="real: verifiers 0.4, replaying a recorded run",
    priority=12,
    recognises=recognises_traces,
    read=read_traces,
)


RESULTS_KEYS: Final = frozenset({"prompt", "completion", "reward"})
EXAMPLE: Final = "example_id"
EARLIER: Final = frozenset({"info", "answer", "generation_ms"})  # one of them, and `task`, where there is no example
OWN: Final = frozenset(
    {"id", EXAMPLE, "reward", "generation_ms", "scoring_ms", "total_ms", "is_completed", "is_truncated", "advantage"}
)
DOCUMENT: Final = re.compile(rb"\s*+\{\s*+\"(?:metadata|outputs)\"\s*+:")
DOCUMENT_KEYS: Final = (b'"completion"', b'"prompt"', b'"reward"')
TRAINING: Final = "train_rollouts.jsonl"
NO_ROLLOUT: Final = "line(s) skipped: no rollout."


def recognises_results(file: RunFile) -> bool:
    """Recognise a file by the keys of the first row, or a document by those in its head."""
    return _is_document(file) or any(_is_rollout(record.keys()) for record in first_objects(file, 1))


def _is_document(file: RunFile) -> bool:
    """Return whether this is a single document of `metadata` and `outputs`, as later versions write."""
    head = text_head(file)
    return DOCUMENT.match(head) is not None and all(key in head for key in DOCUMENT_KEYS)


def _rollouts(file: RunFile) -> Iterator[dict[str, Any] | Piece | None]:
    """Yield the rollouts of a document."""
    for member in members(file, frozenset({"outputs"})):
        if isinstance(member, Lost):
            yield member
        elif member[0] == "outputs":
            yield member[1] if isinstance(member[1], dict) else None


def _is_rollout(keys: Any) -> bool:
    return keys >= RESULTS_KEYS and (EXAMPLE in keys or ("task" in keys and not EARLIER.isdisjoint(keys)))


def read_results(file: RunFile) -> Iterator[Piece]:
    """Yield trajectories, turns, tool calls and reward components."""
    rows = _rollouts(file) if _is_document(file) else line_objects(file)
    yield from read_samples(Samples(file, RESULTS.name), rows, _add, NO_ROLLOUT)
    yield Context(facts={"framework": "prime-rl" if file.name == TRAINING else "verifiers"})


def _add(record: dict[str, Any], samples: Samples) -> bool:
    """Add one rollout to the tables; False where it holds no messages."""
    prompt, completion = _messages(record.get("prompt"), "user"), _messages(record.get("completion"), "assistant")
    if prompt is None or completion is None:
        return False
    example = record.get(EXAMPLE, record.get("id"))
    error, step = record.get("error"), step_of_folder(samples.file)
    scores = _scores(record)
    tools = dicts_in(record.get("tool_defs")) or dicts_in(record.get("oai_tools"))
    tools = tools or dicts_in(nested(record, "info", "oai_tools"))
    usage = dict_of(record.get("token_usage"))
    samples.add(
        Sample(
            step=step,
            split="train" if samples.file.name == TRAINING else "eval",
            completion=[*prompt, *completion],
            identity=[example, prompt, completion, record.get("reward"), step],
            prompt=prompt,
            reward=as_plain_number(record.get("reward")),
            components=scores,
            tools=tools,
            columns={
                "n_turns": sum(message.get("role") == "assistant" for message in completion),
                "group_id": as_id(example),
                "task": as_id(example),
                "env": as_name(record.get("task")) or as_name(record.get("env_id")),
                "model": as_name(record.get("model")),
                "advantage": as_plain_number(record.get("advantage")),
                "success": success_of(scores),
                "tokens_in": as_count(usage.get("input_tokens")),
                "tokens_out": as_count(usage.get("output_tokens")),
                "truncated": as_flag(record.get("is_truncated")),
                "stop_reason": as_name(record.get("stop_condition")),
                "error_type": as_name(error.get("error") if isinstance(error, dict) else error),
            },
            expected=record.get("answer"),
        )
    )
    return True


def _scores(record: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the reward functions' scores: `metrics`, or all number columns other than the rollout's own."""
    if metrics := dict_of(record.get("metrics")):
        return {name: as_plain_number(score) for name, score in metrics.items()}
    numbers = ((name, as_plain_number(score)) for name, score in record.items() if name not in OWN)
    return {name: score for name, score in numbers if score is not None}


def _messages(content: Any, role: str) -> list[dict[str, Any]] | None:
    """Return messages, also of a text that spells them, with calls that were written as texts of JSON unpacked."""
    content = chat_in(content)
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    messages = messages_of([] if content is None else content)
    for message in messages or ():
        if isinstance(calls := message.get("tool_calls"), list):
            message["tool_calls"] = [_unpacked(call) for call in calls]
    return messages


def _unpacked(call: Any) -> Any:
    if not isinstance(call, str):
        return call
    found = parse_json(call)  # a text of some other kind: no call that could be named
    return found if isinstance(found, dict) else {}


def _between_rollouts(before: bytes, after: bytes) -> bool:
    """Let a file be cut between two rollouts, and a document nowhere."""
    return before.startswith(b"{") and after.startswith(b"{")


RESULTS = Parser(
    name="verifiers_results",
    describes="verifiers' results.jsonl (up to 0.3): trajectories, turns, tool calls, rewards; texts on request.",
    held_against="real: vf-eval 0.1 results; source: PrimeIntellect-ai/verifiers, legacy types",
    priority=12,
    of_training=False,
    splits=_between_rollouts,
    recognises=recognises_results,
    read=read_results,
)


NAME: Final = "metadata.json"
METADATA_KEYS: Final = (b'"env_id"', b'"num_examples"', b'"rollouts_per_example"')
MAX_BYTES: Final = 64 << 20  # it holds settings and means


def recognises_metadata(file: RunFile) -> bool:
    """Recognise a file by name and keys."""
    head = file.readable_head if file.name == NAME and file.size <= MAX_BYTES else b""
    return head.lstrip(WHITE).startswith(b"{") and all(key in head for key in METADATA_KEYS)


def read_metadata(file: RunFile) -> Iterator[Piece]:
    """Yield one evaluation row a measure: the mean reward, the mean of each metric, pass@k."""
    try:
        with file.path.open("rb") as handle:
            content = handle.read(MAX_BYTES)
        count_halves(file, content)
        record = json_object(content)
    except OSError:  # gone
        record = None
    if record is None:
        yield Lost(bytes=file.size, note=f"{file.rel} is not a complete JSON object; its measurements are lost.")
        return
    values: dict[str, Any] = {"reward": record.get("avg_reward"), "error": record.get("avg_error")}
    values |= dict_of(record.get("avg_metrics"))
    values |= {f"pass@{k}": value for k, value in dict_of(record.get("pass_at_k")).items()}
    examples, each = as_step(record.get("num_examples")), as_step(record.get("rollouts_per_example"))
    shared = {
        "suite": as_name(record.get("env_id")),
        "step": step_of_folder(file),
        "model": as_name(record.get("model")),
        "n": examples * each if examples is not None and each is not None and examples * each < 1 << 62 else None,
        "temperature": as_plain_number(nested(record, "sampling_args", "temperature")),
        "max_tokens": as_step(nested(record, "sampling_args", "max_tokens")),
        "source": file.rel,
    }
    rows = [
        {**shared, "metric": name, "value": value}
        for name, raw in values.items()
        if (value := as_plain_number(raw)) is not None
    ]
    if rows:
        yield Rows(table="evals", frame=pl.DataFrame(rows, schema=EVALS, orient="row"))
    yield Context(facts={"framework": "verifiers"})


METADATA = Parser(
    name="verifiers_metadata",
    describes="verifiers' metadata.json (up to 0.3): mean reward and metrics of an evaluation, model, sampling.",
    held_against="source: PrimeIntellect-ai/verifiers, legacy types",
    priority=12,
    of_training=False,
    recognises=recognises_metadata,
    read=read_metadata,
)
