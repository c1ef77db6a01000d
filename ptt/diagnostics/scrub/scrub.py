"""Scrubs texts and columns: each secret becomes a mask that says what it was, numbered in the order they are met."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import PurePosixPath
from typing import Final

import polars as pl

from ptt.diagnostics.scrub.certain_shapes import beginnings, mask_certain
from ptt.diagnostics.scrub.credentials import kind_of, mask_credentials, mask_setting
from ptt.diagnostics.scrub.identities import ENDINGS, HOME_FOLDER, mask_hosts, mask_people
from ptt.diagnostics.scrub.shapes import keywords, mask_random, mask_shapes

Value = str | int | float | bool | None
MASK: Final = re.compile(r"\[[a-z0-9-]+-\d+\]")


class Sort(Enum):
    """What a text is, which says how much of it may be anything else than a name."""

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
