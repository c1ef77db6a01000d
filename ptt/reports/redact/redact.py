"""Makes of a diagnosis one that can be shown outside: the run's own names and texts out, numbers and our words kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

import polars as pl

from ptt.diagnostics.model import CUSTOM, Diagnosis, Finding, Healthy, JsonScalar, NotJudged
from ptt.reports.redact.masking import LEFT_OUT, OF_A_RULE, Hasher, Masker
from ptt.reports.redact.sharing import FIELDS, HOLDERS, ITEMS, KEYS, NAMES, SETTINGS, TABLES, Treat
from ptt.reports.run.where_to_look import FILES, SAMPLES

RECORDED: Final = "recorded, and left out here"
BEFORE_ANY: Final = "none"  # of the tail's holders: no tool came before


def default_salt(source: str, findings: str) -> str:
    """Give a salt that only those know who have the run or its findings.json: hashes cannot be undone by guessing."""
    return Hasher.digest(source, findings)


def redacted(diagnosis: Diagnosis, *, salt: str, keep_tool_names: bool = False, guessable: bool = False) -> Diagnosis:
    """Give the diagnosis without what its run is called, says and holds; `salt` keys the hashes that stand for it.

    `guessable`: the salt is no secret to those who have the result, which then says so.
    """
    masker = Masker(Hasher(salt), keep_tool_names=keep_tool_names)
    masker.learn(_names(diagnosis), _custom_texts(diagnosis), diagnosis.run.name)
    return replace(_Redactor(masker).whole(diagnosis), guessable=guessable)


class _Redactor:
    """Redacts a diagnosis field by field and column by column, as the table of both says."""

    def __init__(self, masker: Masker) -> None:
        self._mask = masker

    def whole(self, diagnosis: Diagnosis) -> Diagnosis:
        """Redact everything a diagnosis holds."""
        return replace(
            diagnosis,
            run=self._record(diagnosis.run),
            verdict=self._record(diagnosis.verdict),
            signature=self._record(diagnosis.signature),
            findings=tuple(map(self._record, diagnosis.findings)),
            healthy=tuple(map(self._record, diagnosis.healthy)),
            not_judged=tuple(map(self._record, diagnosis.not_judged)),
            crashes=tuple(map(self._record, diagnosis.crashes)),
            sources=tuple(map(self._record, diagnosis.sources)),
            tables={
                name: self._table(name, frame) for name in TABLES if (frame := diagnosis.tables.get(name)) is not None
            },
            redacted=True,
        )

    def _record(self, value: Any) -> Any:
        table = FIELDS[type(value)]
        held = {field.name: self._field(table[field.name], getattr(value, field.name)) for field in fields(value)}
        if isinstance(value, Finding | Healthy | NotJudged) and value.id.startswith(CUSTOM):
            held |= _silenced(held)
        return replace(value, **held)

    def _field(self, treat: Treat, value: Any) -> Any:
        match treat, value:
            case Treat.EACH, tuple():
                return tuple(map(self._record, value))
            case Treat.EACH, _:
                return self._record(value)
            case Treat.NAMED, Mapping():
                return {self._mask.word(name): self._mask.value(Treat.KEEP, item) for name, item in value.items()}
            case Treat.SETTINGS, Mapping():
                return {name: self._mask.value(Treat.KEEP, item) for name, item in value.items() if name in SETTINGS}
            case Treat.EVIDENCE, Mapping():
                return dict(self._evidence(key, item) for key, item in value.items())
            case _, tuple():
                return tuple(self._mask.value(treat, item) for item in value)
        return self._mask.value(treat, value)

    def _evidence(self, key: str, value: JsonScalar) -> tuple[str, JsonScalar]:
        treat = _kind_of(key, Treat.SENTENCE if isinstance(value, str) else Treat.KEEP)
        named = self._mask.words(key)
        if treat is Treat.DROP:
            return named, LEFT_OUT if isinstance(value, str) else value
        shared: JsonScalar = value if isinstance(value, bool) else self._mask.value(treat, value)
        return named, shared

    def _table(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Redact the columns that are classified; others are not taken along."""
        made = []
        for column, treat in TABLES[name].items():
            if column not in frame.columns:
                continue
            held = frame[column]
            if treat is Treat.DROP:
                held = pl.Series(column, [None] * len(held), dtype=held.dtype)
            elif treat is Treat.HOLDER:
                pairs = frame.select("by", column).iter_rows()
                held = pl.Series(column, [self._holder(by, value) for by, value in pairs], dtype=pl.String)
            elif treat is Treat.ITEM:
                rows = frame.select("item", column).iter_rows()
                held = pl.Series(column, [self._item(item, value) for item, value in rows], dtype=pl.String)
            elif held.dtype == pl.String:
                told = {value: self._mask.value(treat, value) for value in held.drop_nulls().unique().to_list()}
                held = pl.Series(column, [told.get(value) for value in held.to_list()], dtype=pl.String)
            elif not (held.dtype.is_numeric() or held.dtype in (pl.Boolean, pl.Null)):
                continue
            made.append(held)
        return pl.DataFrame(made)

    def _holder(self, by: str, value: str | None) -> str | None:
        if value is None or (value == BEFORE_ANY and by.startswith("tool")):
            return value
        found: str | None = self._mask.value(HOLDERS.get(by, Treat.KEEP), value)
        return found

    def _item(self, item: str, value: str | None) -> str | None:
        if not value:
            return value
        return self._mask.sentence(value) if item in ITEMS else RECORDED


def _kind_of(key: str, otherwise: Treat) -> Treat:
    """Say what a value of the evidence is by its key."""
    if key in KEYS:
        return KEYS[key]
    if FILES.search(key):
        return Treat.FILE
    return Treat.SAMPLE if SAMPLES.search(key) else otherwise


def _silenced(held: Mapping[str, Any]) -> dict[str, Any]:
    """Give a record of a rule of the user's own without anything that it says."""
    silence: dict[str, Any] = {"evidence": {}, "unit": "", "causes": (), "confirm": (), "next": (), "enable": ""}
    silence |= {"claim": OF_A_RULE, "reason": OF_A_RULE, "missing": (), "slice": None}
    return {name: silence[name] for name in held if name in silence}


def _names(diagnosis: Diagnosis) -> Iterator[tuple[Treat, Any]]:
    """Give every name of the run's own that is known as one."""
    yield from ((Treat.FILE, source.path) for source in diagnosis.sources)
    records: tuple[Finding | Healthy | NotJudged, ...] = (
        *_findings(diagnosis),
        *diagnosis.healthy,
        *diagnosis.not_judged,
    )
    yield from ((Treat.RULE, record.id) for record in records)
    for finding in _findings(diagnosis):
        yield from ((_kind_of(key, Treat.KEEP), value) for key, value in finding.evidence.items())
        if finding.slice is not None and finding.slice.startswith("tool:"):
            yield Treat.TOOL, finding.slice.removeprefix("tool:")
    for (table, column), treat in NAMES.items():
        frame = diagnosis.tables.get(table)
        if frame is not None and column in frame.columns:
            yield from ((treat, value) for value in frame[column].cast(pl.String).drop_nulls().unique().to_list())
    frame = diagnosis.tables.get("attribution")
    if frame is not None:
        yield from ((HOLDERS.get(by, Treat.KEEP), value) for by, value in frame.select("by", "value").iter_rows())


def _findings(diagnosis: Diagnosis) -> list[Finding]:
    return [*diagnosis.findings, *(note for check in diagnosis.healthy for note in check.notes)]


def _custom_texts(diagnosis: Diagnosis) -> Iterable[str]:
    """Give the sentences of rules of the user's own, which others may repeat; single words are looked at anyway."""
    told: list[str] = []
    for finding in _findings(diagnosis):
        if finding.id.startswith(CUSTOM):
            told += [finding.claim, *finding.causes, *finding.confirm, *finding.next]
    told += [check.reason for check in diagnosis.healthy if check.id.startswith(CUSTOM)]
    for item in diagnosis.not_judged:
        if item.id.startswith(CUSTOM):
            told += [item.reason, item.enable]
    return (text for text in told if len(text.split()) > 1)
