"""Scrub texts and columns: a secret becomes a mask that says what it was, numbered in the order they are met."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Final

import polars as pl

from ptt.diagnostics.definitions import compiled
from ptt.diagnostics.scrub.identities import ENDINGS, HOME_FOLDER, mask_hosts, mask_people
from ptt.diagnostics.scrub.shapes import (
    OF_AN_ID,
    Replace,
    Shape,
    entropy,
    keywords,
    mask_keys,
    mask_random,
    mask_shapes,
    shapes,
    with_value,
    words,
)

NAMED: Final = compiled(
    r"(?<![A-Za-z0-9_.-])(?P<option>--?)?(?P<name>[A-Za-z_][\w.-]{0,79}(?: (?:keys?|tokens?|secret|id))?)\\?[\"'`]?"
    r"(?:\s{0,3}(?:=>|:=|=|:)\s{0,3}|(?(option)\s{1,3}|(?!)))"
)
JUDGED: Final = 256  # characters of a value that tell what it is
VALUE_OF: Final = r"""(?P<quote>\\?["'`])?(?P<value>(?(quote)[^"'`\\\n]{{1,{most}}}|[^\s"'`]{{1,{most}}}))"""
VALUE: Final = compiled(VALUE_OF.format(most=4096))
BEGINNING: Final = compiled(VALUE_OF.format(most=JUDGED))
USER_OPTION: Final = compiled(
    r"(?<=\s)(?:-u|--(?:proxy-)?user)[ =]{1,3}[\"']?(?P<value>[^\s:\"'/]{1,80}:[^\s\"']{3,200})"
)
SPOKEN: Final = compiled(
    r"(?i)\b(?:password|passphrase|passwd)\s+(?:(?:is|was|set to|for [\w.@-]{1,60} is)\s+[\"'`]?|[\"'`])"
    r"(?P<value>[^\s\"'`]{4,200})"
)
LOGIN: Final = compiled(r"(?i)\blogin\s+(?P<value>\S{1,100}\s+password\s+\S{1,200})")  # of a netrc file
HEADER: Final = compiled(
    r"(?i)\bauthorization\\?[\"']?\s{0,3}[:=]\s{0,3}\\?[\"']?(?P<value>(?:[a-z]{3,20} )?[^\s\"',;}\\]{6,4096})"
)
SCHEME: Final = compiled(r"(?i)\b(?:bearer|basic|token|digest|apikey)\s{1,3}(?P<value>[A-Za-z0-9._~+/=-]{8,4096})")
COOKIE: Final = compiled(r"(?i)\bcookie\\?[\"']?\s{0,3}:\s{0,3}\\?[\"']?(?P<value>[^\"'\n\\]{6,4096})")
USERINFO: Final = compiled(r"[A-Za-z][A-Za-z0-9+.-]{1,30}://(?P<value>[^\s/\"'<>\[\]]{1,300})@(?=[^\s/@])")

PASSWORDS: Final = words("passwords")
SECRETS: Final = words("secrets")
KEYS_OF: Final = words("keys_of")
TOKENS_OF: Final = words("tokens_of")
WEAK: Final = words("weak")
OF_A_MODEL: Final = words("of_a_model")
FUSED: Final = ("connection_string", "conn_str", "webhook_url", "sas_url", "amz_credential", "access_key_id")
ENDING: Final = compiled(r"(?:_(?:base64|b64|hex|value|str|string|plain|env|\d{1,2}))+$")
WORD: Final = compiled(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+[a-z]?")
PLACEHOLDER: Final = compiled(
    r"none|null|nil|true|false|yes|no|unset|not[_ -]?set|missing|empty|invalid|expired|required|redacted|hidden|"
    r"optional|default|auto|str|string|int|bytes|env|environ|os\.environ.*|os\.getenv.*|your[_-].*|change_?me|x{3,}|"
    r"\.{2,}|…+|-+|_+|file|path|self|args?|kwargs?|object|authentication|auth|provided|error|failed",
    re.IGNORECASE,
)
OPENERS: Final = ("<", "[", "{", "(", "$", "*", "%", "|")
"""Begin what is filled in elsewhere, what is no literal, and what is masked already."""
PATH: Final = compiled(r"(?:~|\.{0,2})/|[A-Za-z]:\\|.*\.(?:json|pem|key|ya?ml|toml|txt|env|crt|safetensors|jsonl?)$")
HEX: Final = compiled(r"[0-9a-f]+", re.IGNORECASE)
NUMBER: Final = compiled(r"[-+]?\d[\d.,]*(?:e[-+]?\d+)?%?", re.IGNORECASE)
TRAILING: Final = ",;)]}>&"
MIN_PASSWORD, MIN_KEY, MIN_WEAK, MIN_BITS = 3, 8, 16, 3.0
"""Characters of a value, and its entropy: a shorter `token` is a word, a number or a token of the model."""

DOUBTFUL: Final = frozenset(
    {
        "1password-secret-key",  # `A3-` and short groups, as in numbers of products
        "artifactory-reference-token",  # any base64 of a text that begins with `ref`
        "clickhouse-cloud-api-secret-key",  # begins as one hexadecimal number in 65,536 does
        "flutterwave-public-key",
        "google-token",
        "grafana-api-key",  # base64 of any object whose first key is `k`
        "huggingface-access-token",  # names of Python; `huggingface-token` has those that are none
        "huggingface-organization-api-token",
        "jwt",
        "jwt-base64",
        "mailchimp-key",  # a hash and a region
        "mailgun-key",  # `key-` and a hash
        "octopus-deploy-api-key",  # `API-` and capitals
        "private-key",
        "sendgrid-api-token",
        "sendgrid-key",
        "square-access-token",  # `EAAA` begins base64 of any number
        "ssh-key",  # a public one
    }
)
"""Shapes that program text has too; some are defined below in the form that they have when not cut off."""

_GAP: Final = r"[\s\"'`,+\\]{1,40}"  # between the lines of a key: also as a program or JSON spells them
_LINE: Final = r"[A-Za-z0-9+/=]"
STRICT: Final = (
    Shape(
        "private-key",
        ("PRIVATE KEY",),
        rf"-----BEGIN[ A-Z0-9_-]{{0,60}}PRIVATE KEY(?: BLOCK)?-----"
        rf"(?:{_GAP}[A-Za-z][A-Za-z-]{{2,20}}: [^\n\\]{{1,200}}){{0,4}}(?:{_GAP}{_LINE}{{16,}}){{1,2000}}"
        rf"(?:(?:{_GAP}{_LINE}{{1,76}})?{_GAP}-----END[ A-Z0-9_-]{{0,60}}-----)?",
        3.0,
    ),
    Shape("jwt", ("eyJ",), r"(?<![\w-])eyJ[\w-]{10,}\.ey[IJ][\w-]{10,}\.[\w-]{20,}", 3.0),
    Shape("sendgrid-key", ("SG.",), r"(?<![A-Za-z0-9])SG\.(?:[\w-]{16,32}\.[\w-]{30,64}|[\w-]{60,70})(?![\w-])", 3.0),
    Shape("google-token", ("ya29.",), r"(?<![A-Za-z0-9])ya29\.[\w-]{20,}", 3.0),
)
BEGINNINGS: Final = {
    "SK": "SK[0-9a-fA-F]{32}",
    "sk-": "sk-[A-Za-z0-9_-]{12}",
    "pat.": r"pat\.[A-Za-z0-9_-]{22}",
    "sat.": r"sat\.[A-Za-z0-9_-]{22}",
    "hf_": "hf_[A-Za-z0-9]{12}",
    "fw_": "fw_[A-Za-z0-9_-]{12}",
    "eyJ": r"eyJ[\w-]{10,}\.ey",
}
"""What follows keywords that words also end in (task-, that.): so that most conversations are not looked at further."""
EXAMPLE: Final = compiled(r"example|x{6}|0{8}|1234567890ab|abcdef123456|your[-_]", re.IGNORECASE)
MIN_PART: Final = 12  # characters made at random behind a prefix, of keys that the pattern does not give the length of

Value = str | int | float | bool | None
MASK: Final = compiled(r"\[[a-z0-9-]+-\d+\]")


@lru_cache(maxsize=4096)
def kind_of(name: str) -> str | None:
    """Return which credential a setting of this name holds: password, secret, weak (it may be none), or None."""
    joined = ENDING.sub("", "_".join(WORD.findall(name)).lower())
    before, _, last = joined.rpartition("_")
    before = before.rpartition("_")[2]
    if last in PASSWORDS or (last == "pass" and before in ("db", "user", "ssh", "smtp", "admin", "root", "redis")):
        return "password"
    if last in SECRETS or joined.endswith(FUSED):
        return "secret"
    if (last in ("key", "keys") and before in KEYS_OF) or (last in ("token", "tokens") and before in TOKENS_OF):
        return "secret"
    if before == "amz" and last in ("signature", "token"):
        return "secret"
    return "weak" if last in WEAK and before not in OF_A_MODEL else None


def is_credential(name: str, kind: str, value: str) -> bool:
    """Return whether a value is what a setting of this name and kind keeps secret."""
    value = value[:JUDGED]
    if value.startswith(OPENERS) or PLACEHOLDER.fullmatch(value.rstrip(".,;:!")):
        return False
    if NUMBER.fullmatch(value) and not value.isdigit():  # of a metric
        return False
    if kind == "password":
        return len(value) >= MIN_PASSWORD and not (name.lower().endswith("pwd") and PATH.match(value))
    if PATH.match(value) or (value.startswith("http") and "webhook" not in name.lower()):
        return False
    letters, digits = any(map(str.isalpha, value)), any(map(str.isdigit, value))
    if kind == "secret":
        return len(value) >= MIN_KEY and (digits or len(value) >= MIN_WEAK or value.lower() != value)
    if len(value) < MIN_WEAK or not (letters and digits) or entropy(value) < MIN_BITS or OF_AN_ID.match(value):
        return False
    of_table = name.lower().endswith(("key", "keys", "signature", "sig"))  # whose keys are hashes and numbers
    return not (of_table and (HEX.fullmatch(value) or "/" in value or "." in value or " " in value))


def mask_credentials(text: str, replace: Replace) -> str:
    """Mask what stands where a credential does."""
    lowered = text.lower()
    if "://" in text and "@" in text:
        text = _inside(USERINFO, text, "login", replace)
    if "cookie" in lowered:
        text = _inside(COOKIE, text, "cookie", replace)
    if "authorization" in lowered:
        text = _inside(HEADER, text, "authorization", replace)
    if any(scheme in lowered for scheme in ("bearer", "basic", "digest", "token", "apikey")):
        text = SCHEME.sub(lambda match: _scheme(match, replace), text)
    if "login" in lowered and "password" in lowered:
        text = _inside(LOGIN, text, "login", replace)
    text = _named(text, replace)
    if "user" in lowered or "-u" in lowered:
        text = _inside(USER_OPTION, text, "login", replace)
    return _inside(SPOKEN, text, "password", replace) if "pass" in lowered else text


def _inside(pattern: re.Pattern[str], text: str, kind: str, replace: Replace) -> str:
    """Mask the value of each match, unless it is masked already."""
    return pattern.sub(lambda match: _with_value(match, kind, replace), text)


def _with_value(match: re.Match[str], kind: str, replace: Replace) -> str:
    value = match["value"]
    if value.startswith(OPENERS) or PLACEHOLDER.fullmatch(value) or (kind != "password" and "[" in value):
        return match[0]
    return with_value(match, replace(kind, value))


def _scheme(match: re.Match[str], replace: Replace) -> str:
    """Mask what follows `Bearer` or `Basic`, where it is no word of a sentence."""
    value = match["value"]
    mixed = any(map(str.isdigit, value)) or (value.lower() != value and value[1:].lower() != value[1:]) or "=" in value
    if not mixed or (match[0].lower().startswith("token") and len(value) < MIN_WEAK) or OF_AN_ID.match(value):
        return match[0]
    return _with_value(match, "authorization", replace)


def _named(text: str, replace: Replace) -> str:
    """Mask the values of settings and options whose names tell that they are secret."""
    parts, done = [], 0
    for match in NAMED.finditer(text):
        kind = kind_of(match["name"])
        if kind is None or match.end() < done:
            continue
        begins = BEGINNING.match(text, match.end())  # what is none is not read to its end: names stand in it as well
        if begins is None or not is_credential(match["name"], kind, _value(begins, kind)):
            continue
        found = VALUE.match(text, match.end()) or begins
        start, value = found.start("value"), _value(found, kind)
        parts += [text[done:start], replace(_spelt(kind, match["name"]), value)]
        done = start + len(value)
    return "".join((*parts, text[done:])) if parts else text


def _value(found: re.Match[str], kind: str) -> str:
    """Return the value of a setting without what ends it in a list or a sentence."""
    if found["quote"]:
        return found["value"]
    value = found["value"].rstrip(TRAILING)
    return value if kind == "password" else re.split("[,;&]", value, maxsplit=1)[0]


def _spelt(kind: str, name: str) -> str:
    return "password" if kind == "password" else "token" if "token" in name.lower() else "key"


def mask_setting(name: str, value: str, replace: Replace) -> str | None:
    """Mask a setting's whole value where its name tells that it is secret; None where it does not."""
    kind = kind_of(name)
    if kind is None or not is_credential(name, kind, value):
        return None
    return replace(_spelt(kind, name), value)


@cache
def certain_shapes() -> tuple[Shape, ...]:
    """Return all shapes that leave no doubt; private keys first, which may hold others."""
    return (*STRICT, *(shape for shape in shapes() if shape.id not in DOUBTFUL))


@cache
def _certain_keywords() -> frozenset[str]:
    return frozenset(keyword for shape in certain_shapes() for keyword in shape.keywords)


@cache
def beginnings() -> str:
    """Return a pattern, in Rust's syntax, of what stands in any text that holds such a key."""
    return "|".join(BEGINNINGS.get(keyword, re.escape(keyword)) for keyword in sorted(_certain_keywords()))


def mask_certain(text: str, replace: Replace) -> str:
    """Mask all keys and tokens whose shape leaves no doubt."""
    return mask_keys(text, certain_shapes(), _certain_keywords(), _is_certain, replace)


def _is_certain(shape: Shape, found: str) -> bool:
    drawn = entropy(found) >= min(shape.entropy, 3.0) and (not shape.cut or _has_drawn_part(found))
    return drawn and not EXAMPLE.search(found)


def _has_drawn_part(found: str) -> bool:
    """Return whether the longest part without a joint is as a generator makes it: with digits, and no word."""
    part = max(re.split(r"[^A-Za-z0-9]", found), key=len)
    upper, lower, digits = (sum(map(test, part)) for test in (str.isupper, str.islower, str.isdigit))
    return len(part) >= MIN_PART and digits > 0 and upper + lower > 0 and digits + min(upper, lower) > 2


class Sort(Enum):
    """The kind of a text, which says how much of it may be something other than a name."""

    TEXT = "text"  # lines of a console, messages of exceptions, arguments, settings
    NAME = "name"  # of metrics, tools, environments, models
    ID = "id"  # of samples and groups, and paths: made at random by design


class Look(Enum):
    """What a text is looked through for."""

    SHAPES = "shapes"
    CREDENTIALS = "credentials"
    PEOPLE = "people"
    HOSTS = "hosts"
    RANDOM = "random"


EVERYTHING: Final = frozenset(Look)
BEFORE_VALUE: Final = r"""[\"'`\\]{0,3}\s{0,8}(?:=|:)"""
PREFILTERS: Final[Mapping[Look, str]] = {
    Look.CREDENTIALS: (
        r"(?i-u)://[!-~]{1,300}@|authorization|bearer |basic |digest |apikey |cookie|"
        r"token [a-z0-9._~+/=-]{8}|login |--?user |-u |"
        r"(?:password|passphrase|passwd) |--[a-z0-9_.-]{0,40}(?:pass|pwd|secret|key|token|cred|auth)|"
        r"(?:pass|pwd|passw[a-z]{1,6}|passphrase|passcode|secret|cred[a-z]{0,8}|dsn|auth[a-z]{0,9}|keys?|key_?id|tokens?|"
        r"signature|sig|otp|jwt|sas|url|string|conn_?str|credential|pat|pw|bearer|[a-z]+secret)(?:_[a-z0-9]{1,7}| id)?"
        + BEFORE_VALUE
    ),
    Look.PEOPLE: (
        r"(?i)@[a-z0-9]|/home/|users[/\\]|~[a-z]|logged in|(?:run|started) by |wandb\.ai/|"
        r"(?:for|by|as|of) user|user name |"
        r"user [\"'`]|(?:user[a-z_]{0,5}|login[a-z_]{0,5}|log_?name|account_?name|owner|author|_by|entity)"
        + BEFORE_VALUE
    ),
    Look.HOSTS: (
        r"(?i)://|\bip-\d|DESKTOP-|EC2AMAZ-|\d ON [a-z]|\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]|"
        r":[0-9a-f]{1,4}:[0-9a-f]{0,4}:|::[0-9a-f]|-[0-9a-f]{2}-[0-9a-f]{2}-[0-9a-f]{2}-|"
        r"(?:host|machine|node|server) [\"'`]?[a-z][a-z0-9.]{0,60}[0-9-]|hostname |"
        rf"(?:host|node|machine|server|addr|fqdn|computer)[a-z_]{{0,6}}{BEFORE_VALUE}|[a-z0-9-]\.(?:{ENDINGS})\b"
    ),
    Look.RANDOM: r"[A-Za-z0-9+/]{24}|[A-Za-z0-9_-]{32}",
}
"""Rust's syntax: what stands in any text that something is masked in, so that most texts are looked at only once."""


@cache
def _patterns(sort: Sort) -> dict[Look, str]:
    """Return what to look for in texts of a sort: ids and paths are made of random strings, and of hosts."""
    known = "|".join(map(re.escape, keywords()))
    spared = {Look.HOSTS, Look.RANDOM} if sort is Sort.ID else set()
    return {Look.SHAPES: known} | {look: pattern for look, pattern in PREFILTERS.items() if look not in spared}


def _suspicious(column: pl.Series, sort: Sort) -> list[tuple[str, frozenset[Look]]]:
    """Return the distinct texts that may hold something, in their order, each with what that may be."""
    patterns = _patterns(sort)
    any_of_them = "|".join(f"(?:{pattern})" for pattern in patterns.values())
    column = column.filter(column.str.contains(any_of_them).fill_null(value=False)).unique(maintain_order=True)
    if not len(column):
        return []
    flags = zip(*(column.str.contains(pattern).to_list() for pattern in patterns.values()), strict=True)
    return [
        (text, frozenset(look for look, flag in zip(patterns, of_text, strict=True) if flag))
        for text, of_text in zip(column.to_list(), flags, strict=True)
    ]


class Scrubber:
    """Scrubs the texts of one run: the same secret has the same mask everywhere in it."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._clean: set[str] = set()  # settings without anything to mask

    def text(self, text: str, sort: Sort = Sort.TEXT, looks: frozenset[Look] = EVERYTHING) -> str:
        """Return a text without secrets, and without names of people and machines."""
        if Look.SHAPES in looks:
            text = mask_shapes(text, self._mask)
        if Look.CREDENTIALS in looks:
            text = mask_credentials(text, self._mask)
        if Look.PEOPLE in looks:
            text = mask_people(text, self._mask, spoken=sort is Sort.TEXT)
        if Look.HOSTS in looks and sort is not Sort.ID:
            text = mask_hosts(text, self._mask, spoken=sort is Sort.TEXT)
        return mask_random(text, self._mask) if Look.RANDOM in looks and sort is not Sort.ID else text

    def path(self, path: str) -> str:
        """Return a file's path below the run: its names are those that its reader looks it up by."""
        return self.text(path, Sort.ID)

    def paths(self, paths: Sequence[str]) -> list[str]:
        """Return the paths of all files of a run: no two are called alike, though one is called as a mask is."""
        masks = self.masks(pl.Series(paths, dtype=pl.String), Sort.ID)
        taken = set(paths) - masks.keys()
        for path in (path for path in paths if path in masks):
            while masks[path] in taken:
                name = PurePosixPath(masks[path])
                masks[path] = str(name.with_stem(f"{name.stem}'"))
            taken.add(masks[path])
        return [masks.get(path, path) for path in paths]

    def names(self, names: Sequence[str]) -> list[str]:
        """Return many names; those that come with every row are looked at once."""
        if fresh := [name for name in names if name not in self._names]:
            masks = self.masks(pl.Series(fresh, dtype=pl.String), Sort.NAME)
            self._names.update({name: masks.get(name, name) for name in fresh})
        return [self._names[name] for name in names]

    def settings(self, settings: Mapping[str, Value]) -> dict[str, Value]:
        """Return settings; a value that its name calls secret is masked whole."""
        names = self.names(list(settings))
        lines = {f"{name}: {value}" for name, value in settings.items() if isinstance(value, str)}
        fresh = sorted(lines - self._clean)  # each checkpoint repeats them
        masks = self.masks(pl.Series(fresh, dtype=pl.String), Sort.TEXT) if fresh else {}
        self._clean |= set(fresh) - set(masks)
        return {
            name: self.setting(raw, value) if f"{raw}: {value}" in masks or kind_of(raw) else value
            for name, (raw, value) in zip(names, settings.items(), strict=True)
        }

    def setting(self, name: str, value: Value) -> Value:
        """Return the value of one setting."""
        if value is None or isinstance(value, bool | float):
            return value
        masked = mask_setting(name, str(value), self._mask)
        if masked is not None or not isinstance(value, str):
            return value if masked is None else masked
        lead = f"{name}: "
        scrubbed = self.text(lead + value)
        return scrubbed.removeprefix(lead) if scrubbed.startswith(lead) else self.text(value)

    def series(self, column: pl.Series, sort: Sort = Sort.TEXT) -> pl.Series:
        """Return a column of texts scrubbed; one without anything to mask is returned as it is."""
        masks = self.masks(column, sort)
        return column.replace(masks) if masks else column

    def masks(self, column: pl.Series, sort: Sort) -> dict[str, str]:
        """Return the texts of a column that hold something to mask, each with what stands for it."""
        found = {}
        for text, looks in _suspicious(column, sort):
            if (scrubbed := self.text(text, sort, looks)) != text:
                found[text] = scrubbed
        return found

    def may_hold_keys(self, column: pl.Series) -> list[str]:
        """Return the distinct texts of a column, of which JSON too, that may hold a key of certain shape."""
        suspicious = column.str.contains(beginnings()).fill_null(value=False)
        return column.filter(suspicious).unique(maintain_order=True).to_list()

    def key_masks(self, texts: Iterable[str]) -> dict[str, str]:
        """Return the texts that hold a key of certain shape, each with what stands for it."""
        masked = {text: mask_certain(text, self._mask) for text in texts}
        return {text: mask for text, mask in masked.items() if mask != text}

    def _mask(self, kind: str, secret: str) -> str:
        number = self._numbers.get((kind, secret))
        if number is None:
            self._counts[kind] = number = self._counts.get(kind, 0) + 1
            self._numbers[kind, secret] = number
        if kind == HOME_FOLDER:  # of one user in most runs
            return HOME_FOLDER if number == 1 else f"{HOME_FOLDER}{number}"
        return f"[{kind}-{number}]"
