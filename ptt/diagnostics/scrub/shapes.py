"""Keys and tokens that their own shape tells: gitleaks' patterns, some of ours, and long random strings."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from itertools import pairwise
from typing import Any, Final

Replace = Callable[[str, str], str]
"""Returns the replacement for a secret, given its kind and its text."""


@dataclass(frozen=True)
class Shape:
    """A pattern that is searched for where one of its keywords occurs, in that spelling."""

    id: str
    keywords: tuple[str, ...]
    pattern: str
    entropy: float  # bits a character: a match below it is a word or an example
    cut: bool = True  # it may be shorter than the provider makes it: then it must look made at random

    @property
    def regex(self) -> re.Pattern[str]:
        """The pattern, compiled when it is first needed: a run without its keyword never pays for it."""
        return _compiled(self.pattern)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_TAIL: Final = r"[A-Za-z0-9_-]{12,}"
OWN: Final = (  # of providers that gitleaks looks for by name alone, or with another length; from their documentation
    Shape("openai-key", ("sk-",), rf"(?<![A-Za-z0-9])sk-{_TAIL}", 3.0),
    Shape("huggingface-token", ("hf_",), r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{12,}", 3.0),
    Shape("wandb-key", ("wandb_v1_",), rf"(?<![A-Za-z0-9])wandb_v1_{_TAIL}", 3.0),
    Shape("google-token", ("ya29.", "1//0"), r"(?<![A-Za-z0-9])(?:ya29\.|1//0)[\w-]{12,}", 3.0),
    Shape("google-key", ("AIza",), r"(?<![A-Za-z0-9])AIza[\w-]{20,}", 3.0),
    Shape("aws-key-id", ("AKIA", "ASIA"), r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{12,}", 2.5),
    Shape(
        # Groq, xAI, Replicate, Together, Fireworks, NVIDIA, RunPod, Cerebras, Tavily, E2B, LangSmith
        "model-service-key",
        ("gsk_", "xai-", "r8_", "tgp_v1_", "fw_", "nvapi-", "rpa_", "csk-", "tvly-", "e2b_", "lsv2_"),
        rf"(?<![A-Za-z0-9])(?:gsk_|xai-|r8_|tgp_v1_|fw_|nvapi-|rpa_|csk-|tvly-|e2b_|lsv2_){_TAIL}",
        3.0,
    ),
    Shape("docker-token", ("dckr_pat_",), rf"dckr_pat_{_TAIL}", 3.0),
    Shape("tailscale-key", ("tskey-",), rf"tskey-{_TAIL}", 3.0),
    Shape("atlassian-token", ("ATATT3", "ATCTT3"), r"(?:ATATT3|ATCTT3)[\w=-]{12,}", 3.0),
    Shape("vault-token", ("hvs.",), r"(?<![A-Za-z0-9])hvs\.[\w-]{12,}", 3.0),
    Shape("pypi-token", ("pypi-",), r"(?<![A-Za-z0-9])pypi-[A-Za-z0-9_-]{16,}", 3.0),
    Shape("github-token", ("ghs_", "ghu_"), r"(?<![A-Za-z0-9])gh[su]_[A-Za-z0-9]{12,}", 3.0),
    Shape("gitlab-token", ("glpat-",), rf"glpat-{_TAIL}", 2.5),
    Shape("slack-token", ("xox",), r"(?<![A-Za-z0-9])xox[a-z]-[A-Za-z0-9-]{12,}", 2.0),
    Shape("slack-webhook", ("hooks.slack.com",), r"hooks\.slack\.com/[a-z]+/[A-Za-z0-9/_-]{8,}", 2.0),
    Shape("discord-webhook", ("/api/webhooks/",), r"/api/webhooks/\d{5,}/[\w-]{12,}", 2.0),
    Shape("telegram-token", (":AA",), r"(?<!\d)\d{8,10}:AA[\w-]{20,}", 3.0),
    Shape("mailgun-key", ("key-",), r"(?<![A-Za-z0-9])key-[0-9a-f]{32}(?!\w)", 3.0),
    Shape("mailchimp-key", ("-us",), r"(?<![A-Za-z0-9])[0-9a-f]{32}-us\d{1,2}(?!\w)", 3.0),
    Shape("sendgrid-key", ("SG.",), r"(?<![A-Za-z0-9])SG\.[\w-]{10,}(?:\.[\w-]{10,})?", 3.0),
    Shape("jwt", ("eyJ",), r"(?<![A-Za-z0-9])eyJ[\w-]{10,}(?:\.[\w-]{4,}){0,2}", 3.0),
    Shape("ssh-key", ("AAAA",), r"(?<![A-Za-z0-9])AAAA[A-Z0-9][A-Za-z0-9+/]{20,}={0,2}", 3.0),
    Shape(
        "private-key",
        ("PRIVATE KEY",),
        r"-----BEGIN[ A-Z0-9_-]{0,60}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]|-(?!----)){0,20000}(?:-----END[ A-Z0-9_-]{0,60}-----)?",
        0.0,
    ),
)
WORDS: Final = frozenset({"sk-", "fw_", "hf_", "r8_", "rpa_", "xai-", "e2b_"})
"""Prefixes that names begin with as well: what follows must look made at random."""


@cache
def _table() -> dict[str, Any]:
    """Return gitleaks' patterns; of the formats of the standard library JSON is read in a hundredth of TOML's time."""
    table: dict[str, Any] = json.loads(resources.files(__package__).joinpath("patterns.json").read_bytes())
    return table


@cache
def shapes() -> tuple[Shape, ...]:
    """Return all shapes: private keys first, which hold others, then gitleaks' ones, then ours."""
    vendored = [Shape(**entry | {"keywords": tuple(entry["keywords"])}) for entry in _table()["shapes"]]
    return (OWN[-1], *vendored, *OWN[:-1])


def source() -> str:
    """Return which patterns these are, and of what version."""
    return f"{_table()['source']} {_table()['version']}"


@cache
def keywords() -> list[str]:
    """Return what stands in any text that holds a key of these shapes."""
    return sorted({keyword for shape in shapes() for keyword in shape.keywords})


def mask_shapes(text: str, replace: Replace) -> str:
    """Mask all keys and tokens of known shape."""
    return mask_keys(text, shapes(), keywords(), _is_key, replace)


def mask_keys(
    text: str,
    shapes: Sequence[Shape],
    keywords: Collection[str],
    is_key: Callable[[Shape, str], bool],
    replace: Replace,
) -> str:
    """Mask what matches one of the shapes, is found to be a key, and stands in a text with one of its keywords."""
    present = {keyword for keyword in keywords if keyword in text}
    for shape in shapes if present else ():
        if not present.isdisjoint(shape.keywords):
            text = shape.regex.sub(partial(_masked_key, shape, is_key, replace), text)
    return text


def _masked_key(shape: Shape, is_key: Callable[[Shape, str], bool], replace: Replace, match: re.Match[str]) -> str:
    return replace(shape.id, match[0]) if is_key(shape, match[0]) else match[0]


def with_value(match: re.Match[str], masked: str) -> str:
    """Return a match with something else in place of its value."""
    (start, end), at = match.span("value"), match.start()
    return match[0][: start - at] + masked + match[0][end - at :]


def _is_key(shape: Shape, found: str) -> bool:
    """Return whether a match was made at random, as keys are: no name, and no placeholder such as `hf_xxxxxxxx`."""
    if entropy(found) < min(shape.entropy, 3.0):
        return False
    if not shape.cut or not shape.entropy:
        return True
    prefix = next((prefix for prefix in WORDS if found.startswith(prefix)), None)
    rest = found if prefix is None else found[len(prefix) :]
    upper, lower, digits = (sum(map(test, rest)) for test in (str.isupper, str.islower, str.isdigit))
    if prefix is None:
        return (upper > 0) + (lower > 0) + (digits > 0) > 1
    parts = re.split(r"[-_]", rest)
    return digits + upper > 1 and lower + upper > 0 and max(map(len, parts)) >= 12 and digits + min(upper, lower) > 2


LONG: Final = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9+/]{24,}={0,2}")
LONG_URL: Final = re.compile(r"(?<![A-Za-z0-9+/=_-])[A-Za-z0-9_-]{32,}")
OF_AN_ID: Final = re.compile(
    r"(?:chatcmpl|cmpl|call|toolu|msg|resp|req|run|gen|batch|thread|asst|file|ft|ftjob|rollout|traj|sample|trace|span|"
    r"step|ckpt|checkpoint|job|task|session|actor|worker|artifact|version|rev|sha\d*|md5|hash|id)[-_:=/]?$",
    re.IGNORECASE,
)
"""Before what an API or a tracker numbers its objects with: no secrets, and what a reader looks a run up by."""
MIN_CHANGES: Final = 0.35
"""Changes between small letters, capitals and digits, a character: of letters and digits drawn at random 0.6; of names
such as Qwen2VLForConditionalGeneration below 0.3."""
MIN_ENTROPY: Final = 4.0  # bits a character, of detect-secrets' limit of 4.5 for base64, where short strings have less
MIN_OF_EACH: Final = 2  # capitals, small letters and digits
MIN_PART: Final = 12  # characters without a joint: names of models and runs have shorter ones


def mask_random(text: str, replace: Replace) -> str:
    """Mask long strings that only a generator makes; hashes in hexadecimal and numbered objects are left alone."""
    for pattern in (LONG, LONG_URL):
        text = pattern.sub(lambda match: _long(match, replace), text)
    return text


def _long(match: re.Match[str], replace: Replace) -> str:
    found = match[0]
    if not looks_random(found) or OF_AN_ID.search(match.string[max(0, match.start() - 12) : match.start()]):
        return found
    first = re.split("[-_]", found, maxsplit=1)[0]
    if len(first) < len(found) and OF_AN_ID.fullmatch(first):
        return found
    return replace("random-string", found)


def looks_random(text: str) -> bool:
    """Return whether letters and digits change as often as no name does, in the longest part without a joint."""
    part = max(re.split(r"[-_]", text), key=len)
    kinds = [_kind(character) for character in part]
    counts = Counter(kinds)
    if len(part) < MIN_PART or any(counts[kind] < MIN_OF_EACH for kind in "aA0"):
        return False
    changes = sum(before != after for before, after in pairwise(kinds))
    return changes >= MIN_CHANGES * len(part) and entropy(text) >= MIN_ENTROPY


def _kind(character: str) -> str:
    return "0" if character.isdigit() else "A" if character.isupper() else "a" if character.islower() else "-"


def entropy(text: str) -> float:
    """Return Shannon's entropy of the characters, in bits a character."""
    total = len(text)
    return -sum(count / total * math.log2(count / total) for count in Counter(text).values()) if total else 0.0


def words(name: str) -> frozenset[str]:
    """Return one list."""
    return frozenset(_lists()[name].split())


@cache
def _lists() -> dict[str, str]:
    return tomllib.loads(resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8"))
