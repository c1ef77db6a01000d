"""Pages made from code are current, and what the README shows is what the program does."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from judged_runs import judged_run, judged_runs
from shared_folder import shared_folder
from trace_stories import ask, call, end, say
from trace_stories import judge as judge_traces

from ptt import api
from ptt.cli.exits import Exit

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/make_pages.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def listed_tables() -> dict[str, dict[str, str]]:
    """Return the tables of docs/tables.md by heading: their columns with the types."""
    text = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
    listed: dict[str, dict[str, str]] = {}
    like: dict[str, str] = {}
    for section in re.split(r"^### ", text, flags=re.MULTILINE)[1:]:
        heading = section.partition("\n")[0]
        rows = re.findall(r"^\| (`.+?`) \| (\w[^|]*) \|", section, flags=re.MULTILINE)
        listed[heading] = {name: kind for names, kind in rows for name in re.findall(r"`(\w+)`", names)}
        if store := re.search(r"^The columns of \[(Store: \w+)\]", section, flags=re.MULTILINE):
            like[heading] = store[1]
    return {heading: {**listed.get(like.get(heading, ""), {}), **columns} for heading, columns in listed.items()}


def columns_of(frame: pl.DataFrame) -> dict[str, str]:
    return {name: str(kind) for name, kind in frame.schema.items()}


def test_every_table_of_a_run_is_listed_as_it_is() -> None:
    listed = listed_tables()
    for name, diagnosis in judged_runs().items():
        for table, frame in {**diagnosis.tables, "findings_frame": diagnosis.findings_frame}.items():
            assert columns_of(frame) == listed[table], f"{name}: {table}"


def test_every_table_of_a_comparison_is_listed_as_it_is() -> None:
    listed = listed_tables()
    stores = [shared_folder() / judged_run(name).run.name for name in ("tool_tail_growth", "kl_penalised")]
    compared = api.compare(stores).tables
    assert {f"Comparison: {table}" for table in compared} == {name for name in listed if name.startswith("Comparison:")}
    for table, frame in compared.items():
        assert columns_of(frame) == listed[f"Comparison: {table}"], table


def test_every_table_of_traces_is_listed_as_it_is(tmp_path: Path) -> None:
    listed = listed_tables()
    judged = judge_traces(tmp_path, [[*ask(f"task {n % 5}"), *call("search", error="timeout" if n % 3 else None),
                                      *say("done"), *end(success=n % 3 == 0)] for n in range(60)])  # fmt: skip
    assert {"by", "groups", "turn_counts", "tools", "error_classes", "over_order", "partings"} <= set(judged.tables)
    for table, frame in judged.tables.items():
        assert columns_of(frame) == listed[f"Traces: {table}"], table


def test_the_tables_page_is_not_made_while_a_column_or_a_line_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    page = importlib.import_module("describe_tables")
    meanings = tmp_path / "table_columns.toml"
    text = page.MEANINGS.read_text(encoding="utf-8")
    meanings.write_text(text.replace('\nmean_r = "', '\nmean_of_r = "').replace('see = ["Bins"]', 'see = ["Bin"]'))
    monkeypatch.setattr(page, "MEANINGS", meanings)
    with pytest.raises(SystemExit) as refused:
        page.tables()
    told = str(refused.value)
    assert "diagnosis.step_stats.mean_r: this column is missing" in told
    assert "diagnosis.step_stats.mean_of_r: no such column" in told
    assert "diagnosis.ecdf: no heading 'Bin' in statistics.md" in told


def anchors_of(page: Path) -> set[str]:
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_in_the_docs_leads_to_a_file_and_a_heading() -> None:
    lost = []
    for page in sorted((ROOT / "docs").rglob("*.md")):
        text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            to = (page.parent / path).resolve() if path else page
            if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors_of(to)):
                lost.append(f"{page.name}: {target}")
    assert lost == []


def test_the_readme_lists_every_exit_code() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for code in Exit:
        assert f"| {code.value} |" in text


MEASURED = re.compile(r"- (PASS|FAIL) (.+?): (.+?%) \((\d+ of \d+); .*\); target: (.+)")


def test_the_readme_gives_the_rates_of_the_calibration_and_says_which_aims_were_missed() -> None:
    readme, page = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/calibration.md"))
    rates = {
        f"| {name} | {rate} ({count}) | {aim}{', missed' if answer == 'FAIL' else ''} |"
        for answer, name, rate, count, aim in MEASURED.findall(page)
    }
    shown = readme.partition("| measured | rate | aim |\n|---|---|---|\n")[2].partition("\n\n")[0].splitlines()
    assert len(shown) >= 5
    assert [row for row in shown if row not in rates] == []


def test_every_picture_and_page_the_readme_names_is_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target


PLACEHOLDER = re.compile(r"\b[A-Z]{3,}\b|(?<=_)LINK(?=\.py)")  # FORMAT.py, test_rules_LINK.py: any such file
NAME = re.compile(  # in snake_case or CamelCase, a Class, or an attribute
    r"(?<![\w-])(?=\w*(?:[a-z0-9]_[a-z0-9]|[a-z][A-Z])|[A-Z][a-z]{3,})[A-Za-z_]\w*|(?<=[a-z]\.)[a-z]\w{3,}"
)
PART = re.compile(r"_(?:early|mid|late|lo|hi)$")  # columns that code puts together
FOLDERS = ("ptt", "docs", "benchmarks", "examples", "tests")
EXAMPLES = ("ptt/diagnostics/parsers/larch_logs.py", "ptt/diagnostics/rules/numerics/weight_norm_growth.py")
FOREIGN = {
    "RemoteExperienceMaker": "OpenRLHF", "custom_heuristics_dir": "Microsoft's toolkit", "docs/spec.md": "git-lfs",
    "main_ppo": "veRL", "main_ppo_v0": "veRL",
    **dict.fromkeys(("RewardTrainer", "assistant_only_loss", "use_bias_correction_kl"), "TRL"),
}  # fmt: skip


@cache
def code() -> dict[str, bytes]:
    """Return all code by its path; no page is part of it, nor is this file."""
    files = [path for folder in FOLDERS for kind in ("py", "toml", "j2") for path in (ROOT / folder).rglob(f"*.{kind}")]
    files += [ROOT / name for name in ("Makefile", "pyproject.toml", "action.yml")]
    return {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in files if path != Path(__file__)}


@cache
def words() -> frozenset[bytes]:
    return frozenset(word for text in code().values() for word in re.findall(rb"[A-Za-z_]\w{3,}", text))


def in_code(name: str) -> bool:
    return name in FOREIGN or name.encode() in words()


def unknown_names(page: Path) -> Iterator[str]:
    """Yield the files, make targets, and names in snake_case or CamelCase that a page names and no code holds."""
    text = page.read_text(encoding="utf-8")
    for name in dict.fromkeys(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))):
        if name.startswith("make "):
            targets = [word for word in name.split()[1:] if "=" not in word]
            yield from (target for target in targets if f"\n{target}:".encode() not in code()["Makefile"])
        elif re.fullmatch(rf"(?:{'|'.join(FOLDERS)}|sample_logs)/[\w./-]*", name):
            if name not in (*EXAMPLES, *FOREIGN) and not any(ROOT.glob(PLACEHOLDER.sub("*", name))):
                yield name
        elif re.fullmatch(r"[\w-]+\.(?:py|toml|j2)", name):
            if not any(path.endswith(f"/{name}") for path in code()) and not any(
                name.encode() in text for text in code().values()
            ):
                yield name
        else:
            yield from (word for word in NAME.findall(name) if not in_code(word) and not in_code(PART.sub("", word)))


def test_every_name_of_code_in_the_pages_is_in_the_code() -> None:
    pages = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
    assert [f"{page.name}: {name}" for page in pages for name in unknown_names(page)] == []


def test_what_the_examples_in_contributing_import_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    found = 0
    for example in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        for node in ast.parse(example).body:
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("ptt."):
                module = importlib.import_module(str(node.module))
                missing = [name.name for name in node.names if not hasattr(module, name.name)]
                assert missing == [], node.module
                found += 1
    assert found
