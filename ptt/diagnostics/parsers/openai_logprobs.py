"""Answers of engines with OpenAI's interface (vLLM, SGLang, gateways in front of them) that carry log-probabilities.

One JSON document or JSON lines: answers (`choices[].logprobs.content[]` of chat, `.token_logprobs` of completions),
records of {request, response}, and SGLang's own `meta_info.output_token_logprobs`. vLLM's additions: prompt_token_ids,
choices[].token_ids, tokens spelt `token_id:123` (vllm-project/vllm, vllm/entrypoints/openai/protocol.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ptt.diagnostics.parsers.io.calls import (
    Array,
    Call,
    Joined,
    SequenceRows,
    Sessions,
    TokenRow,
    logp_array,
    lost_rows,
    respelt,
    step_in,
    token_array,
)
from ptt.diagnostics.parsers.io.interface import Lost, Parser, Piece, RunFile
from ptt.diagnostics.parsers.io.lines import (
    SUFFIXES,
    blocks,
    first_objects,
    is_torn,
    json_object,
    torn_line,
    well_formed,
)
from ptt.diagnostics.parsers.io.values import as_hash, as_id, as_int64, as_json, as_number

ID_SPELT: Final = "token_id:"


def response_of(found: dict[str, Any]) -> dict[str, Any]:
    """Find the answer in a record: itself, under `response`, or in its `body` (OpenAI's batch files)."""
    for candidate in (found, found.get("response"), found.get("output")):
        if isinstance(candidate, dict):
            body = candidate.get("body")
            for answer in (candidate, body if isinstance(body, dict) else {}):
                if isinstance(answer.get("choices"), list) or isinstance(answer.get("meta_info"), dict):
                    return answer
    return {}


def request_of(found: dict[str, Any]) -> dict[str, Any]:
    """Find the request in a record; empty if there is none."""
    asked = found.get("request")
    asked = asked if isinstance(asked, dict) else {}
    body = asked.get("body")
    return body if isinstance(body, dict) else asked


def holds_answers(found: dict[str, Any]) -> bool:
    """Whether a record holds a sampled answer with log-probabilities."""
    answer = response_of(found)
    return any(sampled_of(choice, answer)[1] is not None for choice in choices_of(answer))


def choices_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Give the sampled answers; SGLang's own interface gives one, as a whole."""
    if isinstance(answer.get("meta_info"), dict):
        return [answer]
    listed = answer.get("choices")
    return [choice for choice in listed if isinstance(choice, dict)] if isinstance(listed, list) else []


def sampled_of(choice: dict[str, Any], answer: dict[str, Any]) -> tuple[Array | None, Array | None]:
    """Give token ids, where told, and log-probabilities of one sampled answer."""
    meta = choice.get("meta_info")
    if isinstance(meta, dict):
        return _sglang(meta.get("output_token_logprobs"))
    told = choice.get("logprobs")
    if not isinstance(told, dict):
        return None, None
    content = told.get("content")
    tokens, values = told.get("tokens"), told.get("token_logprobs")
    if isinstance(content, list):
        entries = [entry if isinstance(entry, dict) else {} for entry in content]
        tokens, values = ([entry.get(name) for entry in entries] for name in ("token", "logprob"))
    if not isinstance(values, list) or not values:
        return None, None
    ids = token_array(choice.get("token_ids"))
    ids = ids if ids is not None and len(ids) == len(values) else _spelt(tokens)
    echoed = _echoed(values, answer)
    logps = logp_array(values[echoed:], len(values) - echoed)
    return None if ids is None or len(ids) != len(values) else ids[echoed:], logps


def _sglang(listed: Any) -> tuple[Array | None, Array | None]:
    entries = listed if isinstance(listed, list) else []
    if not entries or not all(isinstance(entry, list) and len(entry) >= 2 for entry in entries):
        return None, None
    return token_array([entry[1] for entry in entries]), logp_array([entry[0] for entry in entries], len(entries))


def _spelt(tokens: Any) -> Array | None:
    """Read ids that the engine was asked to write in place of texts."""
    if not isinstance(tokens, list) or not all(
        isinstance(token, str) and token.startswith(ID_SPELT) for token in tokens
    ):
        return None
    digits = [token[len(ID_SPELT) :] for token in tokens]
    return token_array([int(one) for one in digits]) if all(_is_id(one) for one in digits) else None


def _is_id(digits: str) -> bool:
    return digits.isascii() and digits.isdecimal() and len(digits) < 11


def _echoed(values: list[Any], answer: dict[str, Any]) -> int:
    """Count the prompt's tokens that a completion was asked to repeat; its first then has no log-probability."""
    usage = answer.get("usage")
    prompt = as_int64(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    return prompt if values[0] is None and prompt is not None and 0 < prompt < len(values) else 0


FILE_BYTES: Final = 256 << 20  # one document; longer logs come as lines
SESSIONS: Final = ("session_id", "conversation_id", "thread_id", "trajectory_id", "user")
STEPS: Final = ("training_step", "global_step", "step")
BEGINS: Final = re.compile(
    rb'^\s*(?:\[\s*)?\{\s*"(?:id|object|created|model|choices|usage|request|response|custom_id|step|session_id|'
    rb'text|output_ids|meta_info|prompt|prompt_token_ids|messages|timestamp|metadata)"'
)
VERSIONS: Final = ("weight_version", "policy_version", "model_version")


def recognises(file: RunFile) -> bool:
    """Say yes to lines whose first objects are such answers, and to documents that begin as one."""
    if file.name.lower().endswith(SUFFIXES):
        return any(holds_answers(found) for found in first_objects(file))
    if not file.name.lower().endswith(".json"):
        return False
    try:
        head = file.head
    except OSError:  # unreadable: nobody's
        return False
    chat = b'"choices"' in head and b'"logprobs"' in head and (b'"content"' in head or b'"token_logprobs"' in head)
    return BEGINS.match(head) is not None and (chat or b'"output_token_logprobs"' in head)


def read(file: RunFile) -> Iterator[Piece]:
    """Yield a sequence for each answer, or for each session where its prompts grow by its answers."""
    reader = _Reader(file)
    if file.name.lower().endswith(SUFFIXES):
        for block in blocks(file):
            if isinstance(block, Lost):
                yield block
                continue
            for line in filter(bytes.strip, block.split(b"\n")):
                found = json_object(line)
                if found is None and is_torn(block):
                    yield torn_line(file, line)
                else:
                    yield from reader.add(found)
    else:
        document = _document(file)
        if isinstance(document, Lost):
            yield document
            return
        for found in document:
            yield from reader.add(found)
    yield from reader.close()


def _document(file: RunFile) -> list[Any] | Lost:
    if file.size > FILE_BYTES:
        note = f"{file.rel}: a document of {file.size >> 20} MB was not read; logs of this size come as JSON lines."
        return Lost(rows=1, bytes=file.size, note=note)
    try:
        text = file.path.read_bytes().decode("utf-8", "replace")
        found = well_formed(json.loads(text), text)
    except OSError as error:
        return Lost(bytes=file.size, note=f"{file.rel} could not be read: {error.strerror}.")
    except (ValueError, RecursionError):  # cut, damaged, or nested deeper than any answer
        return Lost(rows=1, bytes=file.size, note=f"{file.rel} is cut or damaged: it is no JSON document.")
    return found if isinstance(found, list) else [found]


class _Reader:
    """Turns answers into sequences."""

    def __init__(self, file: RunFile) -> None:
        self._file = file
        self._step = step_in(file.rel)
        self._sessions, self._rows = Sessions(), SequenceRows()
        self._seen = self._bad = self._stepless = self._stand_ins = self._respelt = 0

    def add(self, found: Any) -> Iterator[Piece]:
        """Take one record."""
        answer = response_of(found) if isinstance(found, dict) else {}
        choices = choices_of(answer)
        if not choices:
            self._bad += 1
            return
        request = request_of(found)
        places = [
            found,
            request,
            *(m for m in (found.get("metadata"), request.get("metadata")) if isinstance(m, dict)),
            answer,
        ]
        meta = answer.get("meta_info")
        places += [meta] if isinstance(meta, dict) else []
        told = {
            "step": _first(places, STEPS, as_int64),
            "version": _first(places, VERSIONS, as_int64),
            "temperature": as_number(_first([request, found], ("temperature",), as_number)),
            "top_p": as_number(_first([request, found], ("top_p",), as_number)),
            "session": _first(places[:-1], SESSIONS, as_id),
        }
        for at, choice in enumerate(choices):
            self._seen += 1
            ids, logps = sampled_of(choice, answer)
            if logps is None or not len(logps):
                self._bad += 1
                continue
            name = f"{as_id(answer.get('id')) or self._file.rel}#{self._seen}.{at}"
            prompt = token_array(answer.get("prompt_token_ids") or choice.get("prompt_token_ids"))
            if ids is None or prompt is None:
                alone = Joined(
                    key="", token_ids=np.zeros(len(logps), np.int32), model_mask=np.ones(len(logps), bool),
                    rollout_logp=logps, told=({**told, "name": name},), grown=(), retokenised=0,
                )  # fmt: skip
                yield from self._give(alone, ids)
                continue
            call = Call(prompt=prompt, completion=ids, logps=logps, told={**told, "name": name})
            for joined in self._sessions.add(told["session"] or _opening(request, found), call):
                yield from self._give(joined, joined.token_ids)

    def _give(self, joined: Joined, ids: Array | None) -> Iterator[Piece]:
        first = joined.told[0]
        step = self._step if first["step"] is None else first["step"]
        self._stand_ins += step is None and first["version"] is not None
        step = first["version"] if step is None else step
        self._stepless += step is None
        self._respelt += joined.retokenised
        yield from self._rows.add(
            TokenRow(
                token_ids=ids,
                model_mask=joined.model_mask,
                rollout_logp=joined.rollout_logp,
                told={
                    "step": step,
                    "sample_id": first["name"],
                    "trajectory_id": first["session"],
                    "policy_version": first["version"],
                    "temperature": first["temperature"],
                    "top_p": first["top_p"],
                },
            )
        )

    def close(self) -> Iterator[Piece]:
        """Yield the rest, and what could not be used."""
        for joined in self._sessions.close():
            yield from self._give(joined, joined.token_ids)
        yield from self._rows.take()
        rel = self._file.rel
        yield from lost_rows(
            self._bad, f"{rel}: {self._bad} record(s) or choice(s) hold no log-probabilities of tokens."
        )
        yield from respelt(rel, self._respelt)
        if self._stand_ins:
            note = (
                f"{rel}: {self._stand_ins} sequence(s) name no training step; the version of the weights stands for it."
            )
            yield Lost(note=note)
        if self._stepless:
            note = f"{rel}: {self._stepless} sequence(s) name no training step; write it beside each record as `step`."
            yield Lost(note=note)


def _first(places: list[dict[str, Any]], keys: tuple[str, ...], read_as: Any) -> Any:
    found = (read_as(place[key]) for key in keys for place in places if key in place)
    return next((value for value in found if value is not None), None)


def _opening(request: dict[str, Any], found: dict[str, Any]) -> int:
    """Tell conversations apart by how they begin, where no id does: answers to one question may continue each other."""
    messages = request.get("messages") or found.get("messages")
    begins = messages[:2] if isinstance(messages, list) else [request.get("prompt")]
    return as_hash(as_json(begins))


PARSER = Parser(
    name="openai_logprobs",
    describes="Answers with log-probabilities as vLLM, SGLang and gateways log them (JSON, JSON lines): rollout_logp.",
    priority=30,
    recognises=recognises,
    read=read,
)
