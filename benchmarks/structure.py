"""Count what a stranger has to find his way through: files, code lines, private modules, hops of one metric.

    python -m benchmarks.structure [CHECKOUT ...]
    python -m benchmarks.structure --record VERSION

Each checkout is counted by the same rules and set beside the last release, whose figures structure.json holds; a
release records its own with `--record`. Code lines hold a token: no blanks, comments or docstrings; TOML, templates
and style sheets count, so that code which moves into them does not vanish.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

METRIC = "kl/ref"
RELEASE = Path(__file__).with_suffix(".json")
WORTH_A_NOTE = 0.02  # growth of the code lines since the last release
DATA = (".toml", ".j2", ".css")
CODE_LINES = "code lines, TOML and templates counted in"
WITHOUT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(path: Path) -> int:
    """Return how many lines of a file hold code or data."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
    documentation = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in WITHOUT_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    return len(lines - documentation)


def modules(root: Path) -> dict[str, Path]:
    """Return the modules of the package by their dotted names."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for path in sorted((root / "ptt").rglob("*.py"))
    }


def importers(found: dict[str, Path]) -> dict[str, set[str]]:
    """Return which modules import each module."""
    known: dict[str, set[str]] = defaultdict(set)
    for dotted, path in found.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [
                    full if (full := f"{node.module}.{alias.name}") in found else node.module for alias in node.names
                ]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            for name in names:
                if name in found and name != dotted:
                    known[name].add(dotted)
    return known


def lists_that_know(root: Path) -> list[str]:
    """Return the files that name the metric in a table or list of several metrics; one rule about it alone is none."""
    holding = []
    for path in sorted((root / "ptt").rglob("*")):
        if path.suffix == ".toml" and f'"{METRIC}"' in path.read_text(encoding="utf-8"):
            holding.append(path.relative_to(root).as_posix())
        elif path.suffix == ".py":
            holding += [path.relative_to(root).as_posix()] * _lists(path)
    return holding


def _lists(path: Path) -> int:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assigned = [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign) and node.value]
    return sum(
        1
        for value in assigned
        if any(isinstance(node, ast.Dict | ast.Tuple | ast.List | ast.Set) for node in ast.walk(value))
        and any(isinstance(node, ast.Constant) and node.value == METRIC for node in ast.walk(value))
        and not any(isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) for node in ast.walk(value))
    )


TRACER = r"""
import dataclasses, json, sys, tempfile
from collections.abc import Mapping
from pathlib import Path
root, metric = sys.argv[1], sys.argv[2]
sys.path.insert(0, root)
import polars as pl
from ptt import api
passed, order = set(), []
def holds(value, depth=0):
    if isinstance(value, (str, bytes)):
        return isinstance(value, str) and metric in value
    if isinstance(value, pl.DataFrame):
        return any(metric in value[name].to_list() for name in value.columns if value.schema[name] == pl.String)
    if depth > 3:
        return False
    if isinstance(value, Mapping):
        return any(holds(key, depth + 1) or holds(item, depth + 1) for key, item in list(value.items())[:50])
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(holds(item, depth + 1) for item in list(value)[:50])
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return any(holds(getattr(value, field.name, None), depth + 1) for field in dataclasses.fields(value))
    return False
def profile(frame, event, arg):
    name = frame.f_code.co_filename
    if event != "return" or name in passed or not name.startswith(root + "/ptt/"):
        return
    if holds(arg):
        passed.add(name)
        order.append(name[len(root) + 1:])
with tempfile.TemporaryDirectory() as folder:
    rows = [{"step": step, "kl": 0.01 if step < 60 else 2.0 + step / 100} for step in range(1, 121)]
    Path(folder, "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sys.setprofile(profile)
    diagnosis = api.diagnose(folder)
    sys.setprofile(None)
root_finding = diagnosis.findings[0].id.replace("-", "_")
rules = [name for name in order if "/rules/" in name and name.count("/") > 3]
kept = [name for name in order if name not in rules or root_finding in name]
print(json.dumps({"headline": diagnosis.verdict.headline, "files": kept}))
"""


def hops(root: Path) -> dict[str, object]:
    """Run a log that holds one metric, and return the files whose functions hand it on, in their order."""
    done = subprocess.run(
        [sys.executable, "-c", TRACER, str(root.resolve()), METRIC],
        capture_output=True,
        text=True,
        check=True,
    )
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def counts(root: Path) -> tuple[dict[str, int], list[str]]:
    """Return the figures of a checkout, and the files that the metric passes."""
    found = modules(root)
    alone = {name: next(iter(by)) for name, by in importers(found).items() if len(by) == 1}
    listed = {name for name, by in alone.items() if found[by].name == "__init__.py" or by == "ptt.cli.app"}
    files = [path for path in (root / "ptt").rglob("*") if path.suffix in (".py", *DATA)]
    passed = hops(root)["files"]
    assert isinstance(passed, list)
    figures = {
        "Python files": len(found),
        CODE_LINES: sum(map(code_lines, files)),
        "modules with one importer": len(alone),
        "... that is no table of contents": len(alone) - len(listed),
        f"files that {METRIC} passes from log to headline": len(passed),
        f"lists that know {METRIC}": len(lists_that_know(root)),
    }
    return figures, passed


def main() -> None:
    """Print the figures of each checkout beside those of the last release."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["--record"]:
        release = {"version": arguments[1], "figures": counts(Path())[0]}
        RELEASE.write_text(json.dumps(release, indent=2) + "\n", encoding="utf-8")
        return
    release = json.loads(RELEASE.read_text(encoding="utf-8"))
    for root in map(Path, arguments or ["."]):
        figures, passed = counts(root)
        print(f"{root!s:<50}{'now':>8}{release['version']:>10}{'change':>9}")
        for name, figure in figures.items():
            before = release["figures"][name]
            print(f"  {name:<48}{figure:>8}{before:>10}{figure / before - 1:>+9.1%}")
        if figures[CODE_LINES] > (1 + WORTH_A_NOTE) * release["figures"][CODE_LINES]:
            print(f"  Code grew by more than {WORTH_A_NOTE:.0%}: say why in CHANGELOG.md.")
        for name in passed:
            print(f"    {name}")


if __name__ == "__main__":
    main()
