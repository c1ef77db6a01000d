"""Where an answer by OpenAI's interface, or SGLang's own, holds token ids and log-probabilities of what was sampled."""

from __future__ import annotations

from typing import Any, Final

from ptt.diagnostics.parsers.call_rows import Array, logp_array, token_array, whole

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
    prompt = whole(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    return prompt if values[0] is None and prompt is not None and 0 < prompt < len(values) else 0
