"""Reads findings.json back into a diagnosis, as far as it holds one; whatever else the file holds is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final, NoReturn

from ptt.diagnostics.errors import InputError
from ptt.diagnostics.model import (
    Aggregates,
    Answer,
    Diagnosis,
    Finding,
    Link,
    NotJudged,
    RuleCrash,
    Run,
    RunVerdict,
    Severity,
    Signature,
    Source,
    Status,
    TailGrowth,
)
from ptt.diagnostics.store.untrusted_json import Field, FieldError

SCHEMA_VERSION: Final = 1
MAX_BYTES: Final = 64 << 20  # a run of a hundred thousand files lists them in some 15 MB
MAX_FINDINGS: Final = 1000  # there are some 150 rules, and few find their failure in more than two slices
MAX_ENTRIES: Final = 1000  # in a list or mapping of one finding
MAX_SOURCES: Final = 1_000_000
DEEPEST: Final = 40  # findings between a first cause and a last consequence: no page could fold a longer chain
NOT_ASKED: Final = "does not apply to "
"""How every rule begins its reason where its question makes no sense for a kind of training."""


def read_findings(path: Path) -> Diagnosis:
    """Read a findings.json; InputError says which field is wrong. There are no tables in it, and no healthy checks."""
    document = _document(path)
    try:
        _right_version(document)
        diagnosis = _diagnosis(document)
        not_too_deep(diagnosis.findings)
    except FieldError as error:
        raise InputError(
            f"{path}: is not a findings.json that can be read: {error}. Give the findings.json, or better the store, "
            "that `ptt diagnose` wrote."
        ) from error
    return diagnosis


def _document(path: Path) -> Field:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}.") from error
    if len(content) > MAX_BYTES:
        raise InputError(
            f"{path}: has more than {MAX_BYTES >> 20} MiB, more than any findings.json; give the store that "
            "`ptt diagnose` wrote."
        )
    try:
        return Field(json.loads(content.decode("utf-8"), parse_constant=_refused))
    except (ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError as well
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(f"{path}: is not JSON ({why[:200]}); write it anew with `ptt diagnose`.") from error


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _right_version(document: Field) -> None:
    found = document["schema_version"].whole()
    if found != SCHEMA_VERSION:
        raise FieldError(f"schema_version is {found}, and this version of ptt reads {SCHEMA_VERSION}")


def _diagnosis(document: Field) -> Diagnosis:
    crashes = document.get("crashes")
    return Diagnosis(
        run=_run(document["run"]),
        verdict=_verdict(document["verdict"]),
        signature=_signature(document["signature"]),
        findings=tuple(_finding(item) for item in document["findings"].items(at_most=MAX_FINDINGS)),
        healthy=(),
        not_judged=tuple(_not_judged(item) for item in document["not_judged"].items(at_most=MAX_FINDINGS)),
        crashes=tuple(
            RuleCrash(id=item["id"].text(), error=item["error"].text())
            for item in (crashes.items(at_most=MAX_FINDINGS) if crashes else ())
        ),
        sources=tuple(_source(item) for item in document["sources"].items(at_most=MAX_SOURCES)),
        tables={},
        from_findings=True,
    )


def _run(run: Field) -> Run:
    steps = run["steps"]
    return Run(
        name=run["name"].text(),
        framework=run["framework"].maybe(Field.text),
        algorithm=run["algorithm"].maybe(Field.text),
        first_step=steps["first"].maybe(Field.whole),
        last_step=steps["last"].maybe(Field.whole),
        step_count=steps["count"].whole(least=0),
        sequences=run["sequences"].whole(least=0),
        model_tokens=run["model_tokens"].whole(least=0),
    )


def _verdict(verdict: Field) -> RunVerdict:
    return RunVerdict(
        status=verdict["status"].one_of(Status),
        headline=verdict["headline"].text(),
        first_broken_link=verdict["first_broken_link"].maybe(lambda link: link.one_of(Link)),
        next=_texts(verdict["next"]),
    )


def _signature(signature: Field) -> Signature:
    aggregates = signature["aggregates"]
    lead = signature.get("lead_interval")
    return Signature(
        status=signature["status"].one_of(Answer),
        reason=signature["reason"].text(),
        pair=signature["pair"].maybe(Field.text),
        aggregates=Aggregates(
            status=aggregates["status"].word("quiet", "alarming", "cannot_say"),
            metrics={
                name: item.word("flat", "rose", "fell", "cannot_say")
                for name, item in aggregates["metrics"].members(at_most=MAX_ENTRIES)
            },
            alarms={},
        ),
        onset_step=signature["onset_step"].maybe(Field.whole),
        onset_interval=_steps(signature["onset_interval"]),
        lead_steps=signature["lead_steps"].maybe(Field.whole),
        lead_is_lower_bound=signature["lead_is_lower_bound"].truth(),
        lead_interval=lead.maybe(_lead) if lead else None,
        growth={name: _growth(item) for name, item in signature["growth"].members(at_most=MAX_ENTRIES)},
        p_value=signature["p_value"].maybe(Field.number),
        false_alarm_rate=signature["false_alarm_rate"].maybe(Field.number),
    )


def _lead(interval: Field) -> tuple[int, int | None]:
    low, high = interval.pair(lambda end: end)
    return low.whole(), high.maybe(Field.whole)


def _growth(growth: Field) -> TailGrowth:
    return TailGrowth(
        p95=growth["p95"].maybe(Field.number),
        p99=growth["p99"].maybe(Field.number),
        interval_p95=None,
        interval_p99=growth["interval_p99"].maybe(lambda ends: ends.pair(Field.number)),
    )


def _finding(finding: Field) -> Finding:
    return Finding(
        id=finding["id"].text(),
        severity=finding["severity"].one_of(Severity),
        link=finding["link"].one_of(Link),
        slice=finding["slice"].maybe(Field.text),
        onset_step=finding["onset_step"].maybe(Field.whole),
        onset_interval=_steps(finding["onset_interval"]),
        claim=finding["claim"].text(),
        observed=finding["observed"].maybe(Field.number),
        limit=finding["limit"].maybe(Field.number),
        unit=finding["unit"].text(),
        evidence={name: item.scalar() for name, item in finding["evidence"].members(at_most=MAX_ENTRIES)},
        causes=_texts(finding["causes"]),
        next=_texts(finding["next"]),  # what confirms it comes first there, and cannot be told from the rest
        consequence_of=finding["consequence_of"].maybe(Field.text),
    )


def _not_judged(item: Field) -> NotJudged:
    reason, missing, enable = item["reason"].text(), _texts(item["missing"]), item["enable"].text()
    return NotJudged(
        id=item["id"].text(),
        link=item["link"].one_of(Link),
        reason=reason,
        missing=missing,
        enable=enable,
        applies=bool(missing or enable) or not reason.startswith(NOT_ASKED),
    )


def _source(source: Field) -> Source:
    return Source(
        path=source["path"].text(),
        kind=source["kind"].text(),
        bytes=0,  # findings.json does not tell, and no report shows it
        rows_ok=source["rows_ok"].whole(least=0),
        rows_bad=source["rows_bad"].whole(least=0),
        bytes_lost=source["bytes_lost"].whole(least=0),
        note=source["note"].maybe(Field.text),
    )


def _texts(field: Field) -> tuple[str, ...]:
    return tuple(item.text() for item in field.items(at_most=MAX_ENTRIES))


def _steps(field: Field) -> tuple[int, int] | None:
    return field.maybe(lambda ends: ends.pair(Field.whole))


def not_too_deep(findings: tuple[Finding, ...]) -> None:
    """Refuse long chains: each link of one but its ends is a finding that both follows and is followed."""
    causes = {finding.consequence_of for finding in findings}
    known = {finding.id for finding in findings}
    between = [finding for finding in findings if finding.id in causes and finding.consequence_of in known]
    if len(between) > DEEPEST:
        raise FieldError(f"findings: more than {DEEPEST} of them both follow from another and are followed by one")
