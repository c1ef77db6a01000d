"""Takes the run's own names out of words and sentences: what is not known to be the program's own is hashed."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterable
from enum import Enum
from pathlib import PurePosixPath
from typing import Any, Final

from ptt.diagnostics.model import CUSTOM
from ptt.reports.classified import Treat
from ptt.reports.hashing import Hasher
from ptt.reports.own_words import EDGES, vocabulary

PREFIXES: Final = {
    Treat.SAMPLE: "sample",
    Treat.GROUP: "group",
    Treat.TOOL: "tool",
    Treat.ENVIRONMENT: "env",
    Treat.RUN: "redacted",
    Treat.FILE: "file",
    Treat.KEEP: "name",
    Treat.RULE: f"{CUSTOM}rule",
}
ENDINGS: Final = frozenset(
    {
        ".parquet", ".jsonl", ".json", ".csv", ".log", ".txt", ".out", ".yaml", ".yml", ".toml", ".db", ".pt", ".pkl",
        ".gz", ".zst", ".xz", ".wandb", ".eval",
    }
)  # fmt: skip
REMARKS: Final = re.compile(r"\(run dir\)|\d+ more files")  # what stands for no single file
LEFT_OUT: Final = "[left out]"
OF_A_RULE: Final = "what a rule of the user's own says is left out"
TOOL: Final = "tool:"  # begins a slice that is one tool's
QUOTED: Final = re.compile(r"([\"“«`])(.*?)([\"”»`])|(?<![\w])(')(?=\S)(.*?)(?<=\S)(')(?!\w)", re.DOTALL)
CRASH: Final = re.compile(r"(\w+): .*\((\w+\.py):(\d{1,6})\)", re.DOTALL)
JOINTS: Final = re.compile(r"[-@–→/:=]")
SHORT: Final = 6  # a number of fewer digits is no id that could be told from a count


class Masker:
    """Masks the texts of one diagnosis alike: equal names have equal hashes everywhere."""

    def __init__(self, hasher: Hasher, *, keep_tool_names: bool) -> None:
        self._hash, self._own, self._keep_tools = hasher, vocabulary(), keep_tool_names
        self._custom: list[str] = []
        self._known: dict[str, str] = {}
        self._spaced: re.Pattern[str] | None = None

    def learn(self, names: Iterable[tuple[Treat, Any]], told: Iterable[str], run: str) -> None:
        """Learn the run's own names, which are masked even where they look like words of ours; `told` are sentences."""
        self._custom = sorted(set(told), key=len, reverse=True)
        held = [(treat, name) for treat, name in names if isinstance(name, str) and name]
        if not self._own.knows(run):  # no sentence names the run, so a common word stays what it is
            held.append((Treat.RUN, run))
        for treat, name in held:
            if treat is Treat.DROP:
                self._known[name] = LEFT_OUT
            elif treat is not Treat.KEEP and treat in PREFIXES and not (name.isdigit() and len(name) < SHORT):
                self._known[name] = self.value(treat, name)
        spaced = sorted((name for name in self._known if len(name.split()) > 1), key=len, reverse=True)
        self._spaced = re.compile("|".join(map(re.escape, spaced))) if spaced else None

    def value(self, treat: Treat, value: Any) -> Any:
        """Give a single value as it may be shared; numbers and members of our enumerations are where they are kept."""
        if value is None or treat is Treat.DROP:
            return None
        if treat is Treat.KEEP and (isinstance(value, Enum) or not isinstance(value, str)):
            return value
        text = str(value)
        masks = {
            Treat.KEEP: self.word,
            Treat.SENTENCE: self.sentence,
            Treat.FILE: self._file,
            Treat.RULE: self._rule,
            Treat.SLICE: self._slice,
            Treat.ERROR: self._error,
        }
        if treat in masks:
            return masks[treat](text)
        return text if treat is Treat.TOOL and self._keep_tools else self._hash.name(PREFIXES[treat], text)

    def word(self, text: str) -> str:
        """Keep a text all of whose words are ours; hash any other as a whole."""
        ours = all(self._own.harmless(word) or self._own.harmless(word.strip(EDGES)) for word in text.split())
        return text if ours else self._hash.name("name", text)

    def sentence(self, text: str) -> str:
        """Keep our words and all numbers; hash every other word, and leave out what is quoted."""
        for told in self._custom:  # the longest first
            text = text.replace(told, OF_A_RULE)
        if self._spaced is not None:
            text = self._spaced.sub(lambda found: self._known[found[0]], text)
        text = QUOTED.sub(self._quoted, text)
        return self.words(text)

    def words(self, text: str) -> str:
        """Hash every word that is not ours."""
        return " ".join(map(self._token, text.split()))

    def _quoted(self, found: re.Match[str]) -> str:
        """Keep what we quote of ourselves, such as a line of configuration, and single words, looked at next."""
        inner = found[2] if found[2] is not None else found[5]
        alone = len(inner.split()) <= 1
        return found[0] if alone or inner in self._own.text else LEFT_OUT

    def _token(self, word: str) -> str:
        core = word.strip(EDGES)
        for whole in (word, core):
            if whole in self._known:
                return word.replace(whole, self._known[whole])
        if core.startswith(TOOL) and core != TOOL:
            return word.replace(core, self._slice(core))
        ours = not core or ((self._own.harmless(core) or self._own.knows(word)) and not self._named(core))
        if ours or word in LEFT_OUT.split() or self._hash.made(core):
            return word
        return word.replace(core, self._hash.name("name", core))

    def _named(self, word: str) -> bool:
        """Tell whether a name of the run's own is joined to a number or a word of ours here."""
        return any(part in self._known for part in JOINTS.split(word))

    def _file(self, path: str) -> str:
        if REMARKS.fullmatch(path):
            return path
        ending = PurePosixPath(path).suffix.lower()
        return self._hash.name("file", path) + (ending if ending in ENDINGS else "")

    def _rule(self, rule: str) -> str:
        if rule.startswith(CUSTOM):
            return self._hash.name(PREFIXES[Treat.RULE], rule)
        return rule if self._own.knows(rule) else self._hash.name("rule", rule)

    def _error(self, text: str) -> str:
        found = CRASH.fullmatch(text)
        kind = getattr(builtins, found[1], None) if found else None
        if found is None or not self._own.knows(found[2]):
            return LEFT_OUT
        named = found[1] if isinstance(kind, type) and issubclass(kind, Exception) else "an error"
        return f"{named} {LEFT_OUT} ({found[2]}:{found[3]})"

    def _slice(self, name: str) -> str:
        if not name.startswith(TOOL):
            return self.word(name)
        tool = name.removeprefix(TOOL)
        return TOOL + (tool if self._keep_tools else self._hash.name(PREFIXES[Treat.TOOL], tool))
