"""Pages made from code are current, and what the README shows is what the program does."""

import subprocess
import sys
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


def test_every_picture_and_page_the_readme_names_is_there() -> None:
    import re

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert (ROOT / target).exists(), target
