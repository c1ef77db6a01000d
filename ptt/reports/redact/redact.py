"""Makes of a diagnosis one that can be shown outside: the run's own names and texts out, numbers and our words kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any, Final

import polars as pl

from ptt.diagnostics.model import CUSTOM, Diagnosis, Finding, Healthy, JsonScalar, NotJudged
from ptt.diagnostics.traces.model import Example, Message, Parting, TraceDiagnosis, as_run, with_records
from ptt.reports.redact.masking import LEFT_OUT, OF_A_RULE, Hasher, Masker, is_number
from ptt.reports.redact.sharing import FIELDS, HOLDERS, HOLDERS_OF, ITEMS, KEYS, NAMES, SETTINGS, TABLES, Treat
from ptt.reports.run.view import FILES, SAMPLES

RECORDED: Final = "recorded, and left out here"
RECORDS: Final = ("run", "verdict", "outcome", "signature")
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
    **dict.fromkeys(("causes", "confirm", "next", "missing"), ()),
    **dict.fromkeys(("unit", "enable"), ""),
    "evidence": {},
    "slice": None,
}


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
    frame = diagnosis.tables.get("attribution")
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
    "by": {"name": Treat.GROUP},
    "tools": {"name": Treat.TOOL},
    "error_classes": {"tool": Treat.TOOL, "error_class": S, "example": Treat.DROP},
    "turn_counts": {},
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
        yield Treat.SAMPLE, example.trajectory_id
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
        trajectory_id=masker.value(Treat.SAMPLE, example.trajectory_id),
        finding=masker.value(Treat.RULE, example.finding) if example.finding else "",
        title=masker.sentence(example.title),
        source=masker.value(Treat.FILE, example.source),
        messages=tuple(_message(message, masker) for message in example.messages),
    )


def _message(message: Message, masker: Masker) -> Message:
    """Keep who speaks, which tools are called and what failed; what is said is left out."""
    calls = (masker.value(Treat.TOOL, call.partition("(")[0].strip()) for call in message.calls)
    return replace(
        message,
        role=message.role if message.role in ROLES else "other",
        text=LEFT_OUT if message.text else "",
        calls=tuple(f"{call}({LEFT_OUT})" for call in calls),
    )


def _parting(parting: Parting, masker: Masker) -> Parting:
    return replace(
        parting,
        group=masker.value(Treat.GROUP, parting.group),
        success=_example(parting.success, masker),
        failure=_example(parting.failure, masker),
        why=masker.sentence(parting.why),
    )
