"""Takes the run's own names out of words and sentences: what is not known to be the program's own is hashed."""

from __future__ import annotations

import ast
import builtins
import hashlib
import hmac
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, Final

from ptt.diagnostics import model
from ptt.diagnostics.metrics.catalogue import document, metrics
from ptt.diagnostics.model import CUSTOM
from ptt.diagnostics.parsers import PARSERS
from ptt.reports.redact.sharing import Treat
from ptt.reports.text.names import BY, GUARDS, METRICS, SIDES, SLICES

ROOMS: Final = ("model.py", "schema.py", "evidence", "verdict", "rules", "statistics", "engines", "traces")
"""Whose texts can stand in a diagnosis: every sentence of one is put together from the literals of these."""
MIN_PLURAL: Final = 4  # letters: below, too much is one
EDGES: Final = "()[]{}<>.,;:!?'\"`“”‘’«»…*|"
_NUMBER: Final = re.compile(
    r"[<>≤≥~≈±+−-]*[×x]?[0-9]{1,9}(?:[,\u202f\u2009][0-9]{3})*(?:\.[0-9]{1,12})?(?:e[+−-]?[0-9]{1,3})?"
    r"(?:%|‰|x|×|k|M|s|ms|h|min|B|[KMG]i?B)?"
)
_POWER: Final = re.compile(r"[0-9]*[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_SPLIT: Final = re.compile(r"^(?:train|eval|val|test)[/_]")  # before the name of a metric
_SIGNS: Final = re.compile(r"[!-/:-@\[-`{-~…–—−→←≤≥×±·≈“”‘’«»≠∞]+")  # no emoji: a name may be one


@dataclass(frozen=True)
class Vocabulary:
    """The program's own words, and its texts as they stand, to look up what is quoted."""

    words: frozenset[str]
    text: str

    def knows(self, word: str) -> bool:
        """Return whether this is a word of ours, with any case of its first letter, in capitals, or a plural."""
        small = _SPLIT.sub("", word[:1].lower() + word[1:])
        singular = small.removesuffix("s") if len(small) > MIN_PLURAL else small
        return not self.words.isdisjoint((word, small, singular, word.lower() if word.isupper() else word))

    def harmless(self, word: str) -> bool:
        """Return whether this is a number, a sign, a word of ours, or a number joined to one."""
        if is_number(word) or _SIGNS.fullmatch(word) or self.knows(word):
            return True
        parts = re.split(r"[-@–→]", word)
        rest = [part for part in parts if part and not is_number(part)]
        return len(rest) == 1 and len(parts) > 1 and self.knows(rest[0])


def is_number(word: str) -> bool:
    """Return whether this is a number with its unit; addresses, dates, times since 1970 and long ids are not."""
    return bool(_NUMBER.fullmatch(word) or _POWER.fullmatch(word))


@cache
def vocabulary() -> Vocabulary:
    """Collect the words from the program's own literals; where its sources are not at hand, no word is known."""
    home = Path(model.__file__).parent
    texts = [parser.name for parser in PARSERS]
    texts += [*GUARDS, *BY, *SLICES, *METRICS, *(f"{above}/{below}" for above in SIDES for below in SIDES)]
    for room in ROOMS:
        for source in sorted(home.glob(room if room.endswith(".py") else f"{room}/**/*.py")):
            texts += [source.name, *_literals(source.read_bytes())]
    for table in ("metrics/switches.toml", "verdict/causes.toml"):
        texts += _strings(tomllib.loads(home.joinpath(table).read_text(encoding="utf-8")))
    texts += _strings({name: dict(metric.aliases) for name, metric in metrics().items()})
    texts += _strings({name: document()[name] for name in ("reporters", "splits", "frameworks")})
    words = {piece for text in texts for word in text.split() for piece in (word, word.strip(EDGES)) if piece}
    return Vocabulary(frozenset(words), "\n".join(texts))


def _literals(source: bytes) -> Iterator[str]:
    """Yield the literals of a module, the fixed parts of f-strings and names of evidence among them; no docstrings."""
    tree = ast.parse(source)
    documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value
        elif isinstance(node, ast.keyword) and node.arg:
            yield node.arg


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        yield from value if isinstance(value, dict) else ()
        yield from chain.from_iterable(map(_strings, value.values() if isinstance(value, dict) else value))


DIGITS: Final = 8  # hexadecimal: two of ten thousand names fall together in one report of a hundred
_MADE: Final = re.compile(rf"[a-z:]+-[0-9a-f]{{{DIGITS}}}(?:\.[a-z]+)?")


class Hasher:
    """Hashes names under one key."""

    def __init__(self, salt: str) -> None:
        self._key = hashlib.sha256(salt.encode("utf-8", "surrogatepass")).digest()
        self._digits: set[str] = set()

    def name(self, prefix: str, text: str) -> str:
        """Return what stands for a name; the prefix says what it was, and the digits depend on the name alone."""
        digits = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:DIGITS]
        self._digits.add(digits)
        return f"{prefix}-{digits}"

    def made(self, word: str) -> bool:
        """Return whether a word is a hash that was made here."""
        return bool(_MADE.fullmatch(word)) and word.rsplit("-", 1)[1].split(".")[0] in self._digits

    @staticmethod
    def digest(*texts: str) -> str:
        """Return one text for several, from which none of them can be recovered."""
        return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


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
MIN_ID: Final = 6  # digits: a shorter number may as well be a count


class Masker:
    """Masks the texts of one diagnosis: equal names have equal hashes everywhere."""

    def __init__(self, hasher: Hasher, *, keep_tool_names: bool) -> None:
        self._hash, self._own, self._keep_tools = hasher, vocabulary(), keep_tool_names
        self._custom: list[str] = []
        self._known: dict[str, str] = {}
        self._spaced: re.Pattern[str] | None = None

    def learn(self, names: Iterable[tuple[Treat, Any]], sentences: Iterable[str], run: str) -> None:
        """Learn the run's own names, which are masked even where they look like words of ours."""
        self._custom = sorted(set(sentences), key=len, reverse=True)
        # no sentence names the run, so a common word stays what it is
        for treat, name in chain(names, () if self._own.knows(run) else [(Treat.RUN, run)]):
            if not isinstance(name, str) or not name:
                continue
            if treat is Treat.DROP:
                self._known[name] = LEFT_OUT
            elif treat is not Treat.KEEP and treat in PREFIXES and not (name.isdigit() and len(name) < MIN_ID):
                self._known[name] = self.value(treat, name)
        spaced = sorted((name for name in self._known if len(name.split()) > 1), key=len, reverse=True)
        self._spaced = re.compile("|".join(map(re.escape, spaced))) if spaced else None

    def value(self, treat: Treat, value: Any) -> Any:
        """Return a value as it may be shared: where texts are kept, so are numbers and members of our enumerations."""
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
        for custom in self._custom:  # the longest first
            text = text.replace(custom, OF_A_RULE)
        if self._spaced is not None:
            text = self._spaced.sub(lambda match: self._known[match[0]], text)
        text = QUOTED.sub(self._quoted, text)
        return self.words(text)

    def words(self, text: str) -> str:
        """Hash every word that is not ours."""
        return " ".join(map(self._token, text.split()))

    def _quoted(self, quote: re.Match[str]) -> str:
        """Keep what we quote of ourselves, such as a line of configuration, and single words, looked at next."""
        inner = quote[2] if quote[2] is not None else quote[5]
        return quote[0] if len(inner.split()) <= 1 or inner in self._own.text else LEFT_OUT

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
        """Return whether a name of the run's own is joined to a number or a word of ours here."""
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
        crash = CRASH.fullmatch(text)
        if crash is None or not self._own.knows(crash[2]):
            return LEFT_OUT
        kind = getattr(builtins, crash[1], None)
        known = isinstance(kind, type) and issubclass(kind, Exception)
        return f"{crash[1] if known else 'an error'} {LEFT_OUT} ({crash[2]}:{crash[3]})"

    def _slice(self, name: str) -> str:
        if not name.startswith(TOOL):
            return self.word(name)
        tool = name.removeprefix(TOOL)
        return TOOL + (tool if self._keep_tools else self._hash.name(PREFIXES[Treat.TOOL], tool))
