"""OpenAI's interfaces: answers of engines that carry log-probabilities, and logs of Responses and of batches.

Answers (vLLM, SGLang, gateways in front of them) are one JSON document or JSON lines: `choices[].logprobs.content[]` of
chat, `.token_logprobs` of completions, records of {request, response}, and SGLang's own
`meta_info.output_token_logprobs`. vLLM's additions: prompt_token_ids, choices[].token_ids, tokens spelt `token_id:123`
(vllm-project/vllm, vllm/entrypoints/openai/protocol.py).

A record of the Responses interface is a response (`object: response`, with `output` items), a request and its response,
a list of input items, or a line of a batch's output file: `custom_id` and `response.body`, a response or a chat
completion (openai/openai-python at 0444895, src/openai/types/responses/, and the Batch guide's example of an output
file). What the model reasons, says and calls between two inputs is one turn; what a request holds before its answer
belongs to the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ptt.diagnostics.parsers.io.calls import (
    RESPELT,
    Array,
    Call,
    Joined,
    SequenceRows,
    Sessions,
    TokenRow,
    joined_row,
    logp_array,
    step_in,
    token_array,
)
from ptt.diagnostics.parsers.io.conversations import opening
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile, count_notes
from ptt.diagnostics.parsers.io.json_documents import whole_document
from ptt.diagnostics.parsers.io.lines import SUFFIXES, first_objects, line_objects
from ptt.diagnostics.parsers.io.message_shapes import common_messages
from ptt.diagnostics.parsers.io.record_files import first_records, holds, layout, records, splits
from ptt.diagnostics.parsers.io.record_labels import labels_of, split_of, step_of, told_by, tools_of
from ptt.diagnostics.parsers.io.response_items import answers, is_item, is_own_item, messages_of_items
from ptt.diagnostics.parsers.io.trajectories import Sample, Samples, read_samples
from ptt.diagnostics.parsers.io.values import (
    as_hash,
    as_id,
    as_int64,
    as_json,
    as_label,
    as_name,
    as_number,
    dict_of,
    dicts_in,
    nested,
)

FILE_BYTES: Final = 256 << 20  # one document; longer logs come as lines
ID_SPELT: Final = re.compile(r"token_id:(\d{1,10})", re.ASCII)
SESSIONS: Final = ("session_id", "conversation_id", "thread_id", "trajectory_id", "user")
STEPS: Final = ("training_step", "global_step", "step")
VERSIONS: Final = ("weight_version", "policy_version", "model_version")
BEGINS: Final = re.compile(
    rb'^\s*(?:\[\s*)?\{\s*"(?:id|object|created|model|choices|usage|request|response|custom_id|step|session_id|'
    rb'text|output_ids|meta_info|prompt|prompt_token_ids|messages|timestamp|metadata)"'
)
UNUSABLE: Final = "record(s) or choice(s) skipped: no token log-probabilities."
VERSIONED: Final = "sequence(s) without a training step; the weights version is used instead."
UNDATED: Final = "sequence(s) skipped: no training step; write it beside each record as `step`."


def recognises_logprobs(file: RunFile) -> bool:
    """Recognise lines whose first objects are such answers, and documents that begin like one."""
    if file.name.lower().endswith(SUFFIXES):
        answers = [_answer(record) for record in first_objects(file)]
        return any(_sampled(choice, answer)[1] is not None for answer in answers for choice in _choices(answer))
    head = file.readable_head if file.name.lower().endswith(".json") else b""
    chat = b'"choices"' in head and b'"logprobs"' in head and (b'"content"' in head or b'"token_logprobs"' in head)
    return BEGINS.match(head) is not None and (chat or b'"output_token_logprobs"' in head)


def read_logprobs(file: RunFile) -> Iterator[Piece]:
    """Yield a sequence for each answer, or for each session where its prompts grow by its answers."""
    if file.name.lower().endswith(SUFFIXES):
        records: Any = line_objects(file)
    else:
        records = whole_document(
            file,
            FILE_BYTES,
            too_large=f"a document of {file.size >> 20} MB was not read; write logs of this size as JSON lines.",
            damaged="is cut or damaged: not a JSON document.",
        )
        records = records if isinstance(records, list) else [records]
    reader = _Reader(file)
    for record in records:
        if isinstance(record, Lost):
            yield record
        else:
            yield from reader.add(record)
    yield from reader.close()


def _answer(record: Any) -> dict[str, Any]:
    """Find the answer in a record: itself, under `response`, or in its `body` (OpenAI's batch files)."""
    for envelope in (record, nested(record, "response"), nested(record, "output")):
        for answer in (envelope, nested(envelope, "body")):
            if isinstance(nested(answer, "choices"), list) or isinstance(nested(answer, "meta_info"), dict):
                result: dict[str, Any] = answer
                return result
    return {}


def _choices(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the sampled answers; SGLang's own interface gives one, as a whole."""
    return [answer] if isinstance(answer.get("meta_info"), dict) else dicts_in(answer.get("choices"))


def _sampled(choice: dict[str, Any], answer: dict[str, Any]) -> tuple[Array | None, Array | None]:
    """Return token ids, where recorded, and log-probabilities of one sampled answer."""
    meta, logprobs = choice.get("meta_info"), choice.get("logprobs")
    if isinstance(meta, dict):
        return _sglang(meta.get("output_token_logprobs"))
    tokens, values, content = (nested(logprobs, name) for name in ("tokens", "token_logprobs", "content"))
    if isinstance(content, list):
        tokens, values = ([nested(entry, name) for entry in content] for name in ("token", "logprob"))
    if not isinstance(values, list) or not values:
        return None, None
    ids = token_array(choice.get("token_ids"))
    ids = ids if ids is not None and len(ids) == len(values) else _spelt(tokens)
    # A completion that was asked to repeat its prompt begins with a token without a log-probability.
    prompt = as_int64(nested(answer, "usage", "prompt_tokens"))
    echoed = prompt if values[0] is None and prompt is not None and 0 < prompt < len(values) else 0
    logps = logp_array(values[echoed:], len(values) - echoed)
    return None if ids is None or len(ids) != len(values) else ids[echoed:], logps


def _sglang(listed: Any) -> tuple[Array | None, Array | None]:
    entries = listed if isinstance(listed, list) else []
    if not entries or not all(isinstance(entry, list) and len(entry) >= 2 for entry in entries):
        return None, None
    return token_array([entry[1] for entry in entries]), logp_array([entry[0] for entry in entries], len(entries))


def _spelt(tokens: Any) -> Array | None:
    """Read ids that the engine was asked to write in place of texts."""
    texts = tokens if isinstance(tokens, list) else [None]
    ids = [int(match[1]) for text in texts if isinstance(text, str) and (match := ID_SPELT.fullmatch(text))]
    return token_array(ids) if len(ids) == len(texts) else None


class _Reader:
    """Turns answers into sequences."""

    def __init__(self, file: RunFile) -> None:
        self._file, self._step = file, step_in(file.rel)
        self._sessions, self._rows = Sessions(), SequenceRows()
        self._counts = dict.fromkeys((UNUSABLE, RESPELT, VERSIONED, UNDATED), 0)
        self._choices = 0

    def add(self, record: Any) -> Iterator[Piece]:
        """Take one record."""
        answer = _answer(record)
        choices = _choices(answer)
        if not choices:
            self._counts[UNUSABLE] += 1
            return
        asked = record.get("request")
        request = next((candidate for candidate in (nested(asked, "body"), asked) if isinstance(candidate, dict)), {})
        metadata = (record.get("metadata"), request.get("metadata"), answer, answer.get("meta_info"))
        sources = [record, request, *(source for source in metadata if isinstance(source, dict))]
        shared = {
            "step": _first(sources, STEPS, as_int64),
            "version": _first(sources, VERSIONS, as_int64),
            "temperature": _first([request, record], ("temperature",), as_number),
            "top_p": _first([request, record], ("top_p",), as_number),
            "session": _first(sources[:-1], SESSIONS, as_id),
        }
        for at, choice in enumerate(choices):
            self._choices += 1
            ids, logps = _sampled(choice, answer)
            if logps is None or not len(logps):
                self._counts[UNUSABLE] += 1
                continue
            answered = {**shared, "name": f"{as_id(answer.get('id')) or self._file.rel}#{self._choices}.{at}"}
            prompt = token_array(answer.get("prompt_token_ids") or choice.get("prompt_token_ids"))
            if ids is None or prompt is None:
                mask = np.ones(len(logps), bool)
                row = TokenRow(token_ids=ids, model_mask=mask, rollout_logp=logps, told=self._columns(answered))
                yield from self._rows.add(row)
                continue
            session = shared["session"] or _opening(request, record)
            call = Call(prompt=prompt, completion=ids, logps=logps, told=answered)
            for joined in self._sessions.add(session, call):
                yield from self._put(joined)

    def _put(self, joined: Joined) -> Iterator[Piece]:
        self._counts[RESPELT] += joined.retokenised
        yield from self._rows.add(joined_row(joined, self._columns(joined.told[0])))

    def _columns(self, answered: dict[str, Any]) -> dict[str, Any]:
        step, version = self._step if answered["step"] is None else answered["step"], answered["version"]
        if step is None:
            self._counts[UNDATED if version is None else VERSIONED] += 1
        return {
            "step": version if step is None else step,
            "sample_id": answered["name"],
            "trajectory_id": answered["session"],
            "policy_version": version,
            "temperature": answered["temperature"],
            "top_p": answered["top_p"],
        }

    def close(self) -> Iterator[Piece]:
        """Yield the rest, and what could not be used."""
        for joined in self._sessions.close():
            yield from self._put(joined)
        yield from self._rows.take()
        yield from count_notes(self._file, self._counts, lost=(UNUSABLE,))


def _first(sources: list[dict[str, Any]], keys: tuple[str, ...], read_as: Any) -> Any:
    values = (read_as(source[key]) for key in keys for source in sources if key in source)
    return next((value for value in values if value is not None), None)


def _opening(request: dict[str, Any], record: dict[str, Any]) -> int:
    """Hash how a conversation without an id begins: answers to one question may continue each other."""
    messages = request.get("messages") or record.get("messages")
    begins = messages[:2] if isinstance(messages, list) else [request.get("prompt")]
    return as_hash(as_json(begins))


LOGPROBS = Parser(
    name="openai_logprobs",
    describes="Answers with log-probabilities as vLLM, SGLang and gateways log them (JSON, JSON lines): rollout_logp.",
    held_against="source: OpenAI's API reference, vLLM and SGLang",
    priority=30,
    recognises=recognises_logprobs,
    read=read_logprobs,
)


REQUESTS: Final = ("request", "request_body", "body", "payload", "params")
ANSWERS: Final = ("response", "response_body")
NO_ITEMS: Final = "record(s) skipped: no items of input or output."


def recognises_responses(file: RunFile) -> bool:
    """Recognise records by their items or as lines of a batch, and one list of items by its elements."""
    return holds(file, _is_record) or _is_one(file)


def _is_one(file: RunFile) -> bool:
    return layout(file) == "list" and _is_items(first_records(file))


def _is_items(found: Any) -> bool:
    """Return whether a list holds items, one of them of a kind that only this interface has."""
    rows = found[: max(1, min(len(found) - 1, 20))] if isinstance(found, list) and found else []
    return bool(rows) and all(map(is_item, rows)) and any(map(is_own_item, rows))


def _is_record(found: Any) -> bool:
    if not isinstance(found, dict):
        return False
    return _is_batch(found) or any(_is_response(place) or _is_items(_input(place)) for place in _places(found))


def _is_batch(record: dict[str, Any]) -> bool:
    body = nested(record, "response", "body")
    return "custom_id" in record and isinstance(body, dict)


def _is_response(found: dict[str, Any]) -> bool:
    return found.get("object") == "response" or _is_items(found.get("output"))


def _input(place: dict[str, Any]) -> Any:
    return place.get("input", place.get("items"))


def _places(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [record, *(record[key] for key in (*REQUESTS, *ANSWERS) if isinstance(record.get(key), dict))]


def read_responses(file: RunFile) -> Iterator[Piece]:
    """Yield one trajectory a record, or one of the whole list."""
    yield from read_samples(
        Samples(file, RESPONSES.name), _one(file) if _is_one(file) else records(file, _is_record), _add, NO_ITEMS
    )


def _one(file: RunFile) -> Iterator[Any]:
    items = []
    for item in records(file, is_item):
        if isinstance(item, Lost):
            yield item
        else:
            items.append(item)
    yield {"input": items}


def _add(record: dict[str, Any], samples: Samples) -> bool:
    request = next((record[key] for key in REQUESTS if isinstance(record.get(key), dict)), record)
    response = next((dict_of(record[key]) for key in ANSWERS if isinstance(record.get(key), dict)), record)
    response = response["body"] if isinstance(response.get("body"), dict) else response
    given, output = _input(request), response.get("output")
    asked = _asked(given, request.get("instructions") or response.get("instructions"))
    said = messages_of_items(samples.objects(output)) if isinstance(output, list) else answers(response)
    if not said and not _is_items(given):
        return False
    about = {"model": request.get("model"), **response, **_given(record), **told_by(response)}
    labels = labels_of(about)
    columns = labels.columns | _named(record)
    samples.add(
        Sample(
            step=step_of(record),
            split=split_of(samples.file, record),
            completion=[*asked, *said],
            identity=[columns["sample_id"], asked, said],
            prompt=opening(asked),
            reward=labels.reward,
            components=labels.components,
            tools=tools_of([response, request, record]),
            columns=columns,
        )
    )
    return True


def _given(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if value is not None}


def _named(record: dict[str, Any]) -> dict[str, Any]:
    """Return what a batch line says about its request: the name its user gave it, and why it failed."""
    name, error = as_label(record.get("custom_id")), as_name(nested(record, "error", "code"))
    return ({"sample_id": name} if name else {}) | ({"error_type": error} if error else {})


def _asked(found: Any, system: Any) -> list[dict[str, Any]]:
    if isinstance(found, str):
        messages = [{"role": "user", "content": found}]
    else:
        items = dicts_in(found)
        messages = messages_of_items(items) if _is_items(items) else common_messages(items)
    return [{"role": "system", "content": system}, *messages] if isinstance(system, str) and system else messages


RESPONSES = Parser(
    name="openai_responses",
    describes="OpenAI's Responses, with or without requests, and Batch output files: trajectories, turns, tool calls.",
    held_against="source: openai/openai-python `types/responses`",
    priority=90,
    general=True,
    of_training=False,
    splits=splits,
    recognises=recognises_responses,
    read=read_responses,
)
