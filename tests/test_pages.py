"""Pages made from code are current, and what the README shows is what the program does."""

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from ptt.cli.exits import Exit

ROOT = Path(__file__).parents[1]


def test_generated_pages_are_current() -> None:
    done = subprocess.run(
        [sys.executable, "docs/make_pages.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
