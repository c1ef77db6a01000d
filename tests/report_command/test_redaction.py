"""What is redacted can be shared: nothing of the run's own is left in any file, and numbers are what they were."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import growing
from html_structure import page_with
from hypothesis import given, settings
from hypothesis import strategies as st

from ptt import Settings, api
from ptt.diagnostics import model
from ptt.diagnostics.store.findings_file import read_findings
from ptt.reports.figures.drawing import write_figures
from ptt.reports.redact.redact import default_salt, redacted, vocabulary
from ptt.reports.redact.sharing import FIELDS, LEFT_OUT, TABLES, Treat
from ptt.reports.run.findings_json import findings_json
from ptt.reports.run.html import render_html
from ptt.reports.run.postmortem import postmortem
from ptt.reports.run.terminal import print_diagnosis
from ptt.version import __version__

MARK = "zqorblat"
STRANGE = (
    "", " Acme Corp", "'s \"quoted words of it\"", "@acme.example", "/home/jo/acme.parquet", "-reward", " 10.0.0.17",
)  # fmt: skip


def shared(diagnosis: model.Diagnosis, folder: Path) -> str:
    """Give everything that a redacted report is made of, as one text."""
    import io

    from rich.console import Console

    out = io.StringIO()
    print_diagnosis(diagnosis, Console(file=out, width=120), "report.html")
    drawn = write_figures(diagnosis, folder)
    pictures = [path.read_text(encoding="utf-8") for path in drawn if path.suffix == ".svg"]
    names = [path.name for path in drawn]
    pages = [render_html(diagnosis), findings_json(diagnosis, __version__), postmortem(diagnosis, {})]
    return "\n".join([*pages, out.getvalue(), *pictures, *names])


def records(value: Any) -> list[type]:
    """Give the kinds of record that a diagnosis is made of."""
    kinds = [type(value)]
    for field in dataclasses.fields(value):
        held = getattr(value, field.name)
        for item in held if isinstance(held, tuple) else (held,):
            kinds += records(item) if dataclasses.is_dataclass(item) else []
    return kinds


def test_every_field_is_classified(judged: dict[str, api.Diagnosis]) -> None:
    seen = {kind for diagnosis in judged.values() for kind in records(diagnosis)}
    assert seen - set(FIELDS) == {api.Diagnosis}
    for kind, table in FIELDS.items():
        assert list(table) == [field.name for field in dataclasses.fields(kind)] or set(table) == {
            field.name for field in dataclasses.fields(kind)
        }, kind
    parts = {field.name for field in dataclasses.fields(model.Diagnosis)}
    told = {
        "run",
        "verdict",
        "outcome",
        "signature",
        "audit",
        "ledger",
        "support",
        "advisories",
        "stop_replay",
        "cost",
        "findings",
        "healthy",
        "not_judged",
        "crashes",
        "sources",
        "tables",
    }
    assert parts == told | {
        "from_findings",
        "redacted",
        "guessable",
        "judged_with",
    }  # a new part: redact it in redact.py, then name it here


def test_every_table_and_column_is_classified(judged: dict[str, api.Diagnosis]) -> None:
    """A new table or column is shared by nobody before somebody says in sharing.py how it may be."""
    for name, diagnosis in judged.items():
        assert set(diagnosis.tables) <= set(TABLES) | LEFT_OUT, name
        for table in set(diagnosis.tables) & set(TABLES):
            assert set(diagnosis.tables[table].columns) <= set(TABLES[table]), (name, table)


def test_columns_of_text_are_not_taken_for_numbers(judged: dict[str, api.Diagnosis]) -> None:
    """A column that is kept as it is holds words of ours alone."""
    own = vocabulary()
    strange = set()
    for diagnosis in judged.values():
        for table, columns in TABLES.items():
            frame = diagnosis.tables.get(table)
            for column, treat in columns.items() if frame is not None else ():
                if treat is Treat.KEEP and frame is not None and frame.schema.get(column) == pl.String:
                    for text in frame[column].drop_nulls().unique():
                        if not all(own.harmless(word.strip(",")) for word in text.split()):
                            strange.add((table, column, text))
    assert strange == set()


def poisoned(value: Any, number: list[int]) -> Any:
    """Put a marker into every text of a value, whatever it is."""
    match value:
        case Enum() | None | bool() | int() | float():
            return value
        case str():
            number[0] += 1
            place = number[0] % (len(STRANGE) + 1)
            mark = f"{MARK}{number[0]}"
            return f"{mark}{STRANGE[place - 1]}" if place else f"{value} {mark}"
        case tuple():
            return tuple(poisoned(item, number) for item in value)
        case Mapping():
            return {poisoned(key, number): poisoned(item, number) for key, item in value.items()}
        case pl.DataFrame():
            texts = [name for name, kind in value.schema.items() if kind == pl.String]
            half = [pl.Series(n, [poisoned(t, number) if i % 2 else t for i, t in enumerate(value[n])]) for n in texts]
            return value.with_columns(half)
    held = {field.name: poisoned(getattr(value, field.name), number) for field in dataclasses.fields(value)}
    return dataclasses.replace(value, **held)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rules"),  # every id a stranger's, or every rule one of the user's own
    [("tool_tail_growth", ""), ("reward_hacking", model.CUSTOM), ("trl_dpo_rejected_collapse", "")],
)
def test_a_marker_in_every_text_is_in_no_file(
    name: str, rules: str, judged: dict[str, api.Diagnosis], tmp_path: Path
) -> None:
    whole = judged[name]
    tables = {key: poisoned(frame.head(200), [0]) for key, frame in whole.tables.items()}
    plain = {field.name: poisoned(getattr(whole, field.name), [0]) for field in dataclasses.fields(whole)
             if field.name not in {"tables", "from_findings", "redacted", "guessable", "judged_with"}}  # fmt: skip
    findings = tuple(dataclasses.replace(finding, id=rules + finding.id) for finding in plain["findings"])
    spoilt = dataclasses.replace(whole, **{**plain, "findings": findings, "tables": tables})
    text = shared(redacted(spoilt, salt="s"), tmp_path)
    for secret in (MARK, "acme", "Corp", "10.0.0.17", "/home"):
        assert secret.lower() not in text.lower(), secret


CONFIG = {
    "model_name": "zqorblat/private-model", "dataset": "zqorblat-tickets", "hostname": "node7.zqorblat.example",
    "user": "zqorblatjo", "learning_rate": 1e-5, "beta": 0.04, "seed": 3, "wandb_run_id": 991199,
}  # fmt: skip
RULE = """
[[rule]]
id = "zqorblat-watch"
severity = "high"
link = "reward"
metric = "zqorblat/bonus"
is = "> 0.5"
claim = "the zqorblat bonus for Acme Corp is paid too often"
next = ["ask Jo Zqorblat of Acme Corp"]
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write a run that says `zqorblat` wherever a run can say something, and a rule that does."""
    run = tmp_path_factory.mktemp("runs") / "zqorblat-prod-run"
    tokens = run / "zqorblat_tokens"
    tokens.mkdir(parents=True)
    frame = growing().drop("seq", strict=False).with_row_index("i").with_columns(
        sample_id=pl.format("zqorblat-s{}", "i"),
        group_id=pl.format("Acme Corp zqorblat {}", pl.col("i") // 4),
        trajectory_id=pl.format("zqorblat-t{}", "i"),
        env=pl.when(pl.col("i") % 2 == 0).then(pl.lit("zqorblat env")).otherwise(pl.lit("Acme Corp desk")),
        tool_names=pl.when(pl.col("model_mask").list.all())
        .then(pl.lit([], pl.List(pl.String)))
        .when(pl.col("i") % 3 == 0)
        .then(pl.lit(["zqorblat_pay"]))
        .otherwise(pl.lit(["search"])),
    )  # fmt: skip
    frame.drop("i").write_parquet(tokens / "step_zqorblat.parquet")
    lines = [
        {"step": s, "zqorblat/bonus": s / 60, "reward": 1 - s / 70,
         "tools/zqorblat_pay/failure": s / 60,
         "reward/zqorblat_style": s / 60, "tool/zqorblat_pay/latency": 1 + s, "eval/slice_zqorblat": 1 - s / 60}
        for s in range(1, 61)
    ]  # fmt: skip
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "config.json").write_text(json.dumps(CONFIG))
    log = "step 3 loss 0.2\nTraceback\ntorch.OutOfMemoryError: CUDA out of memory, asked by zqorblat of Acme Corp\n"
    (run / "train_zqorblat.log").write_text(log)
    turns = [{"role": "user", "content": "zqorblat prompt"}, {"role": "assistant", "content": "Acme Corp zqorblat"}]
    rows = [
        {"step": s, "prompt": turns[:1], "completion": turns[1:], "reward": 0.1, "env": "zqorblat env"} for s in (1, 2)
    ]
    (run / "zqorblat_samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / "torn_zqorblat.jsonl").write_text('{"step": 1, "zqorblat": "Acme Corp')
    rule = tmp_path_factory.mktemp("rules") / "zqorblat.toml"
    rule.write_text(RULE)
    return run, rule


@pytest.mark.slow
def test_a_run_full_of_secrets_gives_none_away(planted: tuple[Path, Path], tmp_path: Path) -> None:
    run, rule = planted
    opened = api.open_run(run, out=tmp_path / "o", settings=Settings(keep_text=True), rules=[rule])
    whole = opened.diagnosis
    before = shared(whole, tmp_path / "before")
    assert before.lower().count(MARK) > 100  # else nothing was planted
    assert {"custom:zqorblat-watch", "tool-tail-growth"} <= {finding.id for finding in whole.findings}
    salt = default_salt(opened.source, findings_json(whole, __version__))
    after = shared(redacted(whole, salt=salt), tmp_path / "after")
    for secret in (MARK, "acme", "991199", "Jo "):
        assert secret.lower() not in after.lower(), secret
    assert "Redacted" in after
    alone = tmp_path / "findings.json"
    alone.write_text(findings_json(whole, __version__), encoding="utf-8")
    assert MARK not in shared(redacted(read_findings(alone), salt="s"), tmp_path / "alone").lower()


def test_what_was_redacted_is_read_back_and_redacted_again(judged: dict[str, api.Diagnosis], tmp_path: Path) -> None:
    place = tmp_path / "findings.json"
    once = redacted(judged["reward_hacking"], salt="s")
    place.write_text(findings_json(once, __version__), encoding="utf-8")
    again = read_findings(place)
    assert findings_json(again, __version__) == place.read_text(encoding="utf-8")
    assert redacted(again, salt="t").verdict.status is once.verdict.status


@pytest.mark.parametrize("name", ["tool_tail_growth", "reward_hacking", "trl_sft_overfit", "verl_ppo_healthy"])
def test_numbers_steps_and_rules_stay(name: str, judged: dict[str, api.Diagnosis]) -> None:
    whole = judged[name]
    made = redacted(whole, salt="s")
    assert made.run == dataclasses.replace(whole.run, name=made.run.name, context=made.run.context)
    assert [f.id for f in made.findings] == [f.id for f in whole.findings]
    for before, after in zip(whole.findings, made.findings, strict=True):
        for field in (
            "severity",
            "link",
            "observed",
            "limit",
            "onset_step",
            "onset_interval",
            "unit",
            "consequence_of",
        ):
            assert getattr(after, field) == getattr(before, field)
        counts = [value for value in before.evidence.values() if isinstance(value, float)]
        assert [value for value in after.evidence.values() if isinstance(value, float)] == counts
    assert made.signature == whole.signature
    assert [n.reason for n in made.not_judged] == [n.reason for n in whole.not_judged]
    for table in set(TABLES) & set(whole.tables):
        numbers = [n for n, kind in whole.tables[table].schema.items() if kind.is_numeric() or kind == pl.Boolean]
        assert made.tables[table].select(numbers).equals(whole.tables[table].select(numbers)), table


def test_the_figures_of_a_redacted_run_are_those_of_the_run(judged: dict[str, api.Diagnosis]) -> None:
    from ptt.reports.figures import FIGURES

    whole = judged["tool_tail_growth"]
    made = redacted(whole, salt="s")
    for kind in FIGURES:
        assert kind.data(made) == kind.data(whole), kind.name


def test_hashes_follow_the_salt_and_tell_equal_names(judged: dict[str, api.Diagnosis]) -> None:
    whole = judged["reward_hacking"]
    one, same, other = (findings_json(redacted(whole, salt=salt), "1") for salt in ("a", "a", "b"))
    assert one == same != other
    hashes = re.findall(r"name-[0-9a-f]{8}", one)
    assert 1 < len(set(hashes)) < len(hashes)
    assert default_salt("x", "y") != default_salt("x", "z") != default_salt("xy", "")


def test_tool_names_stay_on_request_alone(judged: dict[str, api.Diagnosis]) -> None:
    whole = judged["tool_tail_growth"]
    finding = dataclasses.replace(
        whole.findings[0], id="tool-failures", slice="tool:calc", claim="calls of calc fail 30% of the time",
        evidence={"tool": "calc", "failed_share": 0.3},
    )  # fmt: skip
    told = dataclasses.replace(whole, findings=(finding,))
    hidden = redacted(told, salt="s").findings[0]
    assert re.fullmatch(r"tool:tool-[0-9a-f]{8}", hidden.slice or "")
    named = (hidden.slice or "").removeprefix("tool:")
    assert hidden.claim == f"calls of {named} fail 30% of the time"
    assert hidden.evidence == {"tool": named, "failed_share": 0.3}
    assert redacted(told, salt="s", keep_tool_names=True).findings[0] == finding


@pytest.mark.parametrize(
    ("attribute", "value", "where"),
    [
        ("tool", "search", "after `search` calls"),
        ("environment", "secret shop", "in environment `secret shop`"),
        ("customer", "acme", "where `customer` is `acme`"),
    ],
)
def test_who_holds_a_tail_is_hidden(attribute: str, value: str, where: str, judged: dict[str, api.Diagnosis]) -> None:
    whole = judged["healthy"]
    finding = dataclasses.replace(
        whole.findings[0],
        claim=f"Tails grew, most of all {where}: p95",
        next=(f"read the samples {where}",),
        evidence={"holder_attribute": attribute, "holder_value": value, "holder_share": 0.9},
    )
    made = redacted(dataclasses.replace(whole, findings=(finding,)), salt="s").findings[0]
    told = f"{made.claim} {made.next} {dict(made.evidence)}"
    assert not any(word in told for word in (*value.split(), "customer"))
    assert made.evidence["holder_share"] == 0.9


def test_a_rank_that_holds_a_tail_is_a_number(judged: dict[str, api.Diagnosis]) -> None:
    whole = judged["healthy"]
    finding = dataclasses.replace(
        whole.findings[0], claim="on rank 3", evidence={"holder_attribute": "rank", "holder_value": "3"}
    )
    made = redacted(dataclasses.replace(whole, findings=(finding,)), salt="s").findings[0]
    assert (made.claim, made.evidence["holder_value"]) == ("on rank 3", "3")


def test_a_tool_called_like_one_of_our_words_is_hidden_all_the_same(judged: dict[str, api.Diagnosis]) -> None:
    whole = judged["healthy"]
    assert vocabulary().knows("entropy")
    finding = dataclasses.replace(
        whole.findings[0], claim="calls of entropy fail", slice="tool:entropy", evidence={"tool": "entropy"}
    )
    made = redacted(dataclasses.replace(whole, findings=(finding,)), salt="s").findings[0]
    assert "entropy" not in f"{made.claim} {made.slice} {dict(made.evidence)}"


@settings(max_examples=200, deadline=None)
@given(word=st.text(st.characters(codec="utf-8"), min_size=3, max_size=30))
def test_a_word_that_is_not_ours_leaves_no_sentence(word: str) -> None:
    """Whatever a run calls something: it is ours, a number, or gone."""
    run = model.Run(name="r", framework=None, algorithm=None, first_step=1, last_step=2, step_count=2, sequences=0,
                    model_tokens=0)  # fmt: skip
    quiet = model.Aggregates(status="quiet", metrics={}, alarms={})
    finding = model.Finding(id="reward-fell", severity=model.Severity.HIGH, link=model.Link.REWARD,
                            claim=f"the reward of {word} fell", observed=None, limit=None, unit="")  # fmt: skip
    diagnosis = model.Diagnosis(
        run=run,
        verdict=model.RunVerdict(status=model.Status.SUSPECT, headline="x", first_broken_link=None, next=()),
        signature=model.Signature(status=model.Answer.CANNOT_SAY, reason="", pair=None, aggregates=quiet),
        findings=(finding,), healthy=(), not_judged=(), crashes=(), sources=(), tables={},
    )  # fmt: skip
    claim = redacted(diagnosis, salt="s").findings[0].claim
    own = vocabulary()
    for piece in word.split():
        letters = re.findall(r"[^\W\d_]{4,}", piece)
        if letters and not any(map(own.knows, (piece, *letters))):  # "Metadata.json" is ours, "Metadata" is not
            assert piece not in claim


def test_dates_addresses_and_long_numbers_are_no_numbers() -> None:
    for text in ("10.0.0.17", "2026-11-21", "4111111111111111", "12:30:01", "a1b2", "0x1f", "1.2.3"):
        assert not vocabulary().harmless(text), text
    for text in ("3", "-2.5", "×1.9", "30%", "1e-5", "0.5", "12\u202f345", "20-step", "10⁻⁴", "→", "8.95", "2s"):
        assert vocabulary().harmless(text), text


def test_signs_and_digits_of_other_scripts_are_no_words_of_ours() -> None:
    for text in (
        "🦄🦄",
        "★",
        "☎",
        "١٢٣٤",
        "\u200b",
        "\ue000",
        "1763750000",
        "491701234567",
        "rеward",
        "ｌｏｓｓ",
        "ﬁndings",
    ):
        assert not vocabulary().harmless(text), text
    for text in ("→", "...", "(", "—", "|r|", "1,234,567", "1\u202f763\u202f750\u202f000"):
        assert vocabulary().harmless(text) or vocabulary().harmless(text.strip("()|")), text


@pytest.mark.parametrize("tool", ["entropy", "loss", "reward"])
def test_a_name_that_is_a_word_of_ours_is_hidden_in_compounds_too(tool: str, judged: dict[str, api.Diagnosis]) -> None:
    finding = dataclasses.replace(
        judged["healthy"].findings[0], slice=f"tool:{tool}", evidence={"tool": tool, "share": 0.5},
        claim=f"calls of {tool}-3 fail, {tool}@2 too, ({tool}), {tool}: and 3-{tool}",
    )  # fmt: skip
    made = redacted(dataclasses.replace(judged["healthy"], findings=(finding,)), salt="s").findings[0]
    assert tool not in f"{made.claim} {made.slice} {dict(made.evidence)}"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reward loss", "policy update", "🦄 run", "2026-11-21", "17", "the", "node-17"])
def test_a_runs_name_is_hidden_whatever_it_is(name: str, judged: dict[str, api.Diagnosis], tmp_path: Path) -> None:
    whole = judged["tool_tail_growth"]
    named = dataclasses.replace(
        whole, run=dataclasses.replace(whole.run, name=name),
        sources=(*whole.sources, model.Source(path=f"{name}/log.txt", kind="console", bytes=1, rows_ok=1, rows_bad=0,
                                              bytes_lost=0, note=f"{name} is torn")),
    )  # fmt: skip
    made = redacted(named, salt="s")
    assert re.fullmatch(r"redacted-[0-9a-f]{8}", made.run.name)
    assert re.fullmatch(r"file-[0-9a-f]{8}\.txt", made.sources[-1].path)
    assert made.sources[-1].note is None
    page = page_with(made)
    title = re.search(r"<title>(.*?)</title>", page)
    assert title is not None
    assert made.run.name in title[1]
    if not name.isascii():
        assert "🦄" not in page


def test_crashes_tell_their_kind_and_our_line_alone(judged: dict[str, api.Diagnosis]) -> None:
    errors = (
        "ValueError: could not read 'Acme Corp' (tools.py:12)",
        "SecretError: zqorblat (tools.py:12)",
        "zqorblat",
        "KeyError: 'x' (zqorblat.py:3)",
    )
    crashes = tuple(model.RuleCrash(id="tool-failures", error=error) for error in errors)
    made = redacted(dataclasses.replace(judged["healthy"], crashes=crashes), salt="s")
    assert [crash.error for crash in made.crashes] == [
        "ValueError [left out] (tools.py:12)",
        "an error [left out] (tools.py:12)",
        "[left out]",
        "[left out]",
    ]


@pytest.mark.slow
def test_the_report_says_that_it_is_redacted(judged: dict[str, api.Diagnosis]) -> None:
    made = redacted(judged["healthy"], salt="s")
    assert page_with(made).count("Redacted. Texts of the run are left out") == 1
    assert "> Redacted. Texts of the run are left out" in postmortem(made, {})
    assert re.fullmatch(r"redacted-[0-9a-f]{8}", made.run.name)
    assert "Redacted." not in page_with(judged["healthy"])


def test_our_own_sentences_are_ours(judged: dict[str, api.Diagnosis]) -> None:
    """Without names of the run's own in them, sentences stay to the letter: what is shared can be read."""
    changed = total = 0
    for diagnosis in judged.values():
        made = redacted(diagnosis, salt="s")
        before = [text for item in diagnosis.not_judged for text in (item.reason, item.enable)]
        after = [text for item in made.not_judged for text in (item.reason, item.enable)]
        changed += sum(one != other for one, other in zip(before, after, strict=True))
        total += len(before)
    assert total > 1000
    assert changed == 0
