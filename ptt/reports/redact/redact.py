"""Make of a diagnosis one that can be shown outside: the run's own names and texts out, numbers and our words kept."""

from __future__ import annotations

import builtins
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import cache
from importlib import resources
from itertools import chain
from pathlib import PurePosixPath
from typing import Any, Final

import polars as pl

from ptt.diagnostics.advisories.advisory import shipped
from ptt.diagnostics.model import (
    CUSTOM,
    AdvisoryMatch,
    Diagnosis,
    Finding,
    Healthy,
    JsonScalar,
    LedgerShare,
    NotJudged,
)
from ptt.diagnostics.traces.model import Call, Example, Message, Parting, TraceDiagnosis, as_run, with_records
from ptt.reports.redact.sharing import FIELDS, HOLDERS, HOLDERS_OF, ITEMS, KEYS, NAMES, SETTINGS, TABLES, Treat
from ptt.reports.run.view import FILES, SAMPLES

MIN_PLURAL: Final = 4  # letters: below, too much is one
EDGES: Final = "()[]{}<>.,;:!?'\"`“”‘’«»…*|"
_NUMBER: Final = re.compile(
    r"[<>≤≥~≈±+−-]*[×x]?[0-9]{1,9}(?:[,\u202f\u2009][0-9]{3})*(?:\.[0-9]{1,12})?(?:e[+−-]?[0-9]{1,3})?"
    r"(?:%|‰|x|×|k|M|s|ms|h|min|B|[KMG]i?B)?"
)
RELEASE: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6}){0,3}(?:(?:a|b|rc|\.post|\.dev)[0-9]{1,4})?")
DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
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
    """Read the program's own texts, which `make docs` collects from its sources."""
    texts = json.loads(resources.files(__package__).joinpath("own_texts.json").read_bytes())
    words = {piece for text in texts for word in text.split() for piece in (word, word.strip(EDGES)) if piece}
    return Vocabulary(frozenset(words), "\n".join(texts))


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
            Treat.PARTS: self._parts,
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

    def _parts(self, text: str) -> str:
        return "/".join(map(self.word, text.split("/")))

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


RECORDED: Final = "recorded, and left out here"
RECORDS: Final = (
    "run", "verdict", "outcome", "signature", "audit", "ledger", "support", "advisories", "stop_replay",
    "cost",
)  # fmt: skip
LISTS: Final = ("findings", "healthy", "not_judged", "crashes", "sources")
HOLDER_ATTRIBUTE, HOLDER_VALUE = "holder_attribute", "holder_value"  # of a finding on who holds a tail
BEFORE_ANY: Final = "none"  # of the tail's holders: no tool came before


def default_salt(source: str, findings: str) -> str:
    """Return a salt that only those know who have the run or its findings.json: hashes cannot be undone by guessing."""
    return Hasher.digest(source, findings)


def redacted(diagnosis: Diagnosis, *, salt: str, keep_tool_names: bool = False, guessable: bool = False) -> Diagnosis:
    """Return the diagnosis without what its run is called, says and holds; `salt` keys the hashes that stand for it.

    `guessable`: the salt is no secret to those who have the result, which then says so.
    """
    masker = Masker(Hasher(salt), keep_tool_names=keep_tool_names)
    masker.learn(names_of(diagnosis), _custom_texts(diagnosis), diagnosis.run.name)
    return replace(Redactor(masker).whole(diagnosis), guessable=guessable)


class Redactor:
    """Redacts a diagnosis field by field and column by column, as the table of both says."""

    def __init__(self, masker: Masker) -> None:
        self._mask = masker

    def whole(self, diagnosis: Diagnosis) -> Diagnosis:
        """Redact everything a diagnosis holds."""
        records: dict[str, Any] = {name: self._field(Treat.EACH, getattr(diagnosis, name)) for name in RECORDS}
        records |= {name: tuple(map(self._record, getattr(diagnosis, name))) for name in LISTS}
        tables = {name: self._table(name, diagnosis.tables[name]) for name in diagnosis.tables if name in TABLES}
        return replace(diagnosis, **records, tables=tables, redacted=True)

    def _record(self, value: Any) -> Any:
        treats = FIELDS[type(value)]
        shared = {name: self._field(treats[name], getattr(value, name)) for name in (f.name for f in fields(value))}
        if isinstance(value, Finding | Healthy | NotJudged) and value.id.startswith(CUSTOM):
            shared |= {name: silence for name, silence in SILENCE.items() if name in shared}
        if isinstance(value, LedgerShare):
            shared["value"] = self._holder(value.by, value.value)
        if isinstance(value, AdvisoryMatch):
            shared |= {"settings": _told_settings(value)} if _is_shipped(value) else OWN_ADVISORY
        return replace(value, **shared)

    def _field(self, treat: Treat, value: Any) -> Any:
        match treat, value:
            case Treat.EACH, None:
                return None
            case Treat.EACH, tuple():
                return tuple(map(self._record, value))
            case Treat.EACH, _:
                return self._record(value)
            case Treat.NAMED, Mapping():
                return {self._mask.word(name): self._mask.value(Treat.KEEP, item) for name, item in value.items()}
            case Treat.VERSIONS, Mapping():
                named = {package.name for one in shipped().advisories for package in one.affected.packages}
                return {name: item if RELEASE.fullmatch(item) else "" for name, item in value.items() if name in named}
            case Treat.VERSION, str():
                return value if RELEASE.fullmatch(value) or DATE.fullmatch(value) else ""
            case Treat.PUBLIC, _:
                return value
            case Treat.SETTINGS, Mapping():
                return {name: self._mask.value(Treat.KEEP, item) for name, item in value.items() if name in SETTINGS}
            case Treat.EVIDENCE, Mapping():
                return dict(self._evidence(key, item, value) for key, item in value.items())
            case _, tuple():
                return tuple(self._mask.value(treat, item) for item in value)
        return self._mask.value(treat, value)

    def _evidence(self, key: str, value: JsonScalar, of: Mapping[str, JsonScalar]) -> tuple[str, JsonScalar]:
        treat = _kind_of(key, Treat.SENTENCE if isinstance(value, str) else Treat.KEEP, of)
        named = self._mask.words(key)
        if treat is Treat.DROP:
            return named, LEFT_OUT if isinstance(value, str) else value
        shared: JsonScalar = value if isinstance(value, bool) else self._mask.value(treat, value)
        return named, shared

    def _table(self, table: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Redact the columns that are classified; others are not taken along."""
        columns = []
        for name, treat in TABLES[table].items():
            if name not in frame.columns:
                continue
            column = frame[name]
            if treat is Treat.DROP:
                column = pl.Series(name, [None] * len(column), dtype=column.dtype)
            elif treat in (Treat.HOLDER, Treat.ITEM):
                key, mask = ("by", self._holder) if treat is Treat.HOLDER else ("item", self._item)
                column = pl.Series(name, [mask(*row) for row in frame.select(key, name).iter_rows()], dtype=pl.String)
            elif column.dtype == pl.String:
                masked = {value: self._mask.value(treat, value) for value in column.drop_nulls().unique().to_list()}
                column = pl.Series(name, [masked.get(value) for value in column.to_list()], dtype=pl.String)
            elif not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null)):
                continue
            columns.append(column)
        return pl.DataFrame(columns)

    def _holder(self, by: str, value: str | None) -> str | None:
        if value is None or (value == BEFORE_ANY and by.startswith("tool")):
            return value
        found: str | None = self._mask.value(HOLDERS.get(by, Treat.KEEP), value)
        return found

    def _item(self, item: str, value: str | None) -> str | None:
        if not value:
            return value
        return self._mask.sentence(value) if item in ITEMS else RECORDED


def _kind_of(key: str, otherwise: Treat, of: Mapping[str, JsonScalar]) -> Treat:
    """Classify a value of the evidence by its key; that of who holds a tail by what it is a value of."""
    if key in KEYS:
        return KEYS[key]
    if key == HOLDER_VALUE:
        return Treat.KEEP if is_number(str(of[key])) else HOLDERS_OF.get(str(of.get(HOLDER_ATTRIBUTE)), Treat.GROUP)
    if FILES.search(key):
        return Treat.FILE
    return Treat.SAMPLE if SAMPLES.search(key) else otherwise


# what stands in a record of a rule of the user's own for everything that it says
SILENCE: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("claim", "reason"), OF_A_RULE),
    **dict.fromkeys(("context", "causes", "confirm", "next", "missing"), ()),
    **dict.fromkeys(("unit", "enable"), ""),
    "evidence": {},
    "slice": None,
}


def _is_shipped(match: AdvisoryMatch) -> bool:
    return not match.source and any(
        advisory.id == match.id and advisory.summary == match.summary for advisory in shipped().advisories
    )


def _told_settings(match: AdvisoryMatch) -> dict[str, JsonScalar]:
    """Return the settings of a match: of words only those that the advisory itself names."""
    (advisory,) = (one for one in shipped().advisories if one.id == match.id)
    named = {key: condition.options for key, condition in advisory.conditions().items()}
    return {
        key: LEFT_OUT if isinstance(value, str) and value.lower() not in named.get(key, ()) else value
        for key, value in match.settings.items()
    }


OWN_ADVISORY: Final[Mapping[str, Any]] = {
    "settings": {},
    "packages": {},
    **dict.fromkeys(("by_default", "unsure", "would_show", "references"), ()),
    **dict.fromkeys(("change", "where", "upgrade", "workaround", "effect"), ""),
    "id": "an-own-advisory",
    "summary": "what an advisory of the user's own says is left out",
}
"""What stands in a match of an advisory that does not come with ptt."""


def names_of(diagnosis: Diagnosis) -> Iterator[tuple[Treat, Any]]:
    """Yield every name of the run's own that is known as one."""
    yield from ((Treat.FILE, source.path) for source in diagnosis.sources)
    for records in (_findings(diagnosis), diagnosis.healthy, diagnosis.not_judged):
        yield from ((Treat.RULE, record.id) for record in records)
    for finding in _findings(diagnosis):
        evidence = finding.evidence
        yield from ((_kind_of(key, Treat.KEEP, evidence), value) for key, value in evidence.items())
        if finding.slice is not None and finding.slice.startswith("tool:"):
            yield Treat.TOOL, finding.slice.removeprefix("tool:")
    for (table, column), treat in NAMES.items():
        frame = diagnosis.tables.get(table)
        if frame is not None and column in frame.columns:
            yield from ((treat, value) for value in frame[column].cast(pl.String).drop_nulls().unique().to_list())
    for share in diagnosis.ledger.shares if diagnosis.ledger is not None else ():
        yield HOLDERS.get(share.by, Treat.KEEP), share.value
    for frame in (diagnosis.tables.get("attribution"), diagnosis.tables.get("ledger")):
        if frame is not None:
            yield from ((HOLDERS.get(by, Treat.KEEP), value) for by, value in frame.select("by", "value").iter_rows())


def _findings(diagnosis: Diagnosis) -> list[Finding]:
    return [*diagnosis.findings, *(note for check in diagnosis.healthy for note in check.notes)]


def _custom_texts(diagnosis: Diagnosis) -> list[str]:
    """Return the sentences of rules of the user's own, which others may repeat; single words are looked at anyway."""
    custom = [finding for finding in _findings(diagnosis) if finding.id.startswith(CUSTOM)]
    texts = [text for f in custom for text in (f.claim, *f.causes, *f.confirm, *f.next)]
    texts += [check.reason for check in diagnosis.healthy if check.id.startswith(CUSTOM)]
    texts += [text for n in diagnosis.not_judged if n.id.startswith(CUSTOM) for text in (n.reason, n.enable)]
    return [text for text in texts if len(text.split()) > 1]


K, S = Treat.KEEP, Treat.SENTENCE
TRACE_TABLES: Final[Mapping[str, Mapping[str, Treat]]] = {
    "over_order": {},
    "failing_tools": {"tool": Treat.TOOL, "first_episode": Treat.SAMPLE},
    "failures_over_order": {"tool": Treat.TOOL},
    "by": {"name": Treat.GROUP},
    "tools": {"name": Treat.TOOL},
    "error_classes": {"tool": Treat.TOOL, "error_class": S, "example": Treat.DROP},
    "turn_counts": {},
    "changes": {"rate": S, "label": S, "scale": K},
    "cost": {"part": K, "name": Treat.TOOL},
    "token_tail": {"name": S},
    "groups": {"group": Treat.GROUP},
    "partings": {"group": Treat.GROUP, "success_id": Treat.SAMPLE, "failure_id": Treat.SAMPLE, "why": S},
}
"""How the texts of each table may be shared; a table or a column of texts that is not here is left out."""
OWN: Final = frozenset({"kind", "bucket"})  # columns of our own words
OF_KIND: Final = {"env": Treat.ENVIRONMENT, "tool": Treat.TOOL, "step": K, "turn": K, "error class": S}
"""Of `by` and `token_tail`; of other kinds of `by` a group."""
ROLES: Final = frozenset({"system", "developer", "user", "assistant", "tool"})


def redacted_traces(diagnosis: TraceDiagnosis, *, salt: str, keep_tool_names: bool = False) -> TraceDiagnosis:
    """Return the diagnosis without what its files are called, say and hold; `salt` keys the hashes."""
    masker = Masker(Hasher(salt), keep_tool_names=keep_tool_names)
    run = as_run(diagnosis)
    masker.learn([*names_of(run), *_trace_names(diagnosis)], [], diagnosis.traces.name)
    shared = with_records(diagnosis, Redactor(masker).whole(run))
    return replace(
        shared,
        tables={
            name: _trace_table(frame, TRACE_TABLES[name], masker)
            for name, frame in diagnosis.tables.items()
            if name in TRACE_TABLES
        },
        examples=tuple(_example(example, masker) for example in diagnosis.examples),
        partings=tuple(_parting(parting, masker) for parting in diagnosis.partings),
    )


def _trace_names(diagnosis: TraceDiagnosis) -> Iterator[tuple[Treat, Any]]:
    """Yield every name that the tables and the examples hold."""
    for table, columns in TRACE_TABLES.items():
        frame = diagnosis.tables.get(table)
        for column, treat in columns.items() if frame is not None else ():
            if frame is None or column not in frame.columns or (treat in (K, S, Treat.DROP) and table != "token_tail"):
                continue
            kinds = frame["kind"].to_list() if "kind" in frame.columns else [""] * frame.height
            for kind, value in zip(kinds, frame[column].cast(pl.String).to_list(), strict=True):
                if (own := OF_KIND.get(kind, treat)) is not S:
                    yield own, value
    for example in (
        *diagnosis.examples,
        *(side for pair in diagnosis.partings for side in (pair.success, pair.failure)),
    ):
        yield Treat.SAMPLE, example.name
        yield Treat.FILE, example.source


def _trace_table(frame: pl.DataFrame, treats: Mapping[str, Treat], masker: Masker) -> pl.DataFrame:
    columns = []
    kinds = frame["kind"].to_list() if "kind" in frame.columns else [""] * frame.height
    for column in frame.get_columns():
        if column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.Null) or column.name in OWN:
            columns.append(column)
        elif column.name in treats:
            treat, by_kind = treats[column.name], column.name == "name" and "kind" in frame.columns
            values = [
                masker.value(OF_KIND.get(kind, treat) if by_kind else treat, value)
                for kind, value in zip(kinds, column.to_list(), strict=True)
            ]
            columns.append(pl.Series(column.name, values, dtype=pl.String))
    return pl.DataFrame(columns)


def _example(example: Example, masker: Masker) -> Example:
    return replace(
        example,
        name=masker.value(Treat.SAMPLE, example.name),
        source=masker.value(Treat.FILE, example.source),
        messages=tuple(_message(message, masker) for message in example.messages),
    )


def _message(message: Message, masker: Masker) -> Message:
    """Keep who speaks, which tools are called and what failed; what is said is left out."""
    return replace(
        message,
        role=message.role if message.role in ROLES else "other",
        text=LEFT_OUT if message.text else "",
        calls=tuple(
            Call(
                name=masker.value(Treat.TOOL, call.name),
                arguments=LEFT_OUT if call.arguments else "",
                failed=call.failed,
                known_by=call.known_by,
                error=LEFT_OUT if call.error else "",
            )
            for call in message.calls
        ),
        mark=masker.sentence(message.mark),
    )


def _parting(parting: Parting, masker: Masker) -> Parting:
    return replace(
        parting,
        group=masker.value(Treat.GROUP, parting.group),
        success=_example(parting.success, masker),
        failure=_example(parting.failure, masker),
        why=masker.sentence(parting.why),
    )
