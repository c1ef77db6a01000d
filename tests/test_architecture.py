"""The import table: who may know whom. Data flows one way; a file that stands in no room fails here.

And nothing stands in the package that only tests call: it would have to be read and kept right for nobody.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1] / "ptt"

# From the commands down to what imports nothing of ours: a room may import rooms below it, and no other.
ALLOWED = {
    "ptt": {"cli", "api", "config", "errors", "version", "stopping"},
    "cli": {
        "api", "run_location", "executors", "object_stores", "processes", "reports.redact", "reports.gate",
        "reports.compare", "reports.traces", "reports.run", "reports.figures", "reports.output",
        "reports.text", "watching", "watch", "gate", "gate.baseline", "compare", "traces", "store", "config", "model",
        "errors", "version", "scrub", "stopping",
    },
    "api": {
        "run_location", "executors", "object_stores", "processes", "reports.gate", "reports.compare", "reports.traces",
        "reports.run", "reports.figures", "traces_pipeline", "pipeline", "check_config", "samples", "gate", "compare",
        "traces", "verdict", "advisories", "custom", "rules", "evidence", "store", "statistics", "parsers.io",
        "metrics", "config", "model", "documents", "errors", "version", "stopping",
    },
    "watching": {
        "object_stores", "reports.output", "pipeline", "watch", "verdict", "evidence", "engines", "store", "statistics",
        "parsers", "parsers.io", "metrics", "config", "documents", "errors", "version", "stopping",
    },
    "run_location": {
        "object_stores", "reports.traces", "traces_pipeline", "pipeline", "traces", "store", "parsers.io",
        "model", "errors", "wording",
    },
    "executors": {"object_stores", "processes", "engines", "store", "statistics", "errors", "version", "stopping"},
    "object_stores": {"store", "parsers", "parsers.io", "schema", "errors", "scrub", "stopping", "wording"},
    "processes": {"stopping"},
    "recorders": set(),
    "reports.redact": {"reports.run", "advisories", "traces", "model"},
    "reports.gate": {"reports.output", "reports.text", "gate", "gate.baseline", "model", "version"},
    "reports.compare": {
        "reports.run", "reports.figures.compare", "reports.figures", "reports.output", "reports.text",
        "compare", "metrics", "model",
    },
    "reports.traces": {
        "reports.run", "reports.figures", "reports.output", "reports.text", "traces", "model", "documents",
        "errors",
    },
    "reports.run": {
        "reports.figures.compare", "reports.figures", "reports.output", "reports.text", "samples",
        "compare", "verdict", "advisories", "custom", "metrics", "model", "schema",
    },
    "reports.figures.compare": {"reports.figures", "reports.text", "compare", "metrics"},
    "reports.figures": {"reports.output", "reports.text", "model", "errors"},
    "reports.output": {"reports.text", "version", "stopping"},
    "reports.text": {"verdict", "metrics", "model", "wording"},
    "traces_pipeline": {
        "pipeline", "traces", "evidence", "engines", "store", "parsers", "parsers.io", "config", "model",
        "errors", "version", "scrub",
    },
    "pipeline": {
        "samples", "verdict", "advisories", "custom", "rules", "evidence", "engines", "store", "statistics", "parsers",
        "parsers.io", "config", "model", "errors", "version", "scrub", "stopping",
    },
    "check_config": {"advisories", "evidence", "parsers", "parsers.io", "model", "errors"},
    "samples": {"store", "statistics", "parsers.io", "metrics", "model", "schema", "documents", "errors", "scrub"},
    "gate": {
        "gate.baseline", "traces", "verdict", "custom", "rules", "evidence", "store", "statistics",
        "metrics", "model", "schema", "documents", "errors", "wording",
    },
    "gate.baseline": {"evidence", "store", "statistics", "metrics", "model", "documents", "errors", "wording"},
    "compare": {"evidence", "store", "statistics", "metrics", "model", "errors", "wording"},
    "traces": {"rules", "evidence", "statistics", "metrics", "model", "schema", "errors", "stopping", "wording"},
    "verdict": {
        "watch", "custom", "rules", "evidence", "engines", "store", "statistics", "parsers", "parsers.io", "metrics",
        "model", "schema", "errors", "log_entries", "scrub", "wording",
    },
    "advisories": {"evidence", "statistics", "model", "documents", "errors"},
    "custom": {"evidence", "store", "statistics", "parsers", "metrics", "model", "schema", "documents", "errors"},
    "watch": {"rules", "evidence", "statistics", "model", "schema", "wording"},
    "rules": {"evidence", "statistics", "metrics", "model", "wording"},
    "evidence": {
        "engines", "store", "statistics", "parsers", "parsers.io", "metrics", "config", "model", "schema",
        "errors", "wording",
    },
    "engines": {"store", "statistics", "config", "schema", "wording"},
    "store": {
        "statistics", "parsers", "parsers.io", "metrics", "model", "schema", "documents", "errors",
        "budget_limits", "scrub", "stopping", "wording",
    },
    "statistics": {"flat_lists"},
    "parsers": {
        "flat_lists", "parsers.io", "parsers.unpickle", "metrics", "schema", "errors", "log_entries", "wording",
    },
    "parsers.io": {
        "flat_lists", "parsers.unpickle", "metrics", "schema", "errors", "budget_limits", "log_entries", "wording",
    },
    "parsers.unpickle": set(),
    "metrics": set(),
    "config": {"model", "documents", "errors", "budget_limits", "log_entries"},
    "model": set(),
    "schema": set(),
    "documents": set(),
    "errors": set(),
    "version": set(),
    "budget_limits": set(),
    "log_entries": set(),
    "flat_lists": set(),
    "scrub": set(),
    "stopping": set(),
    "wording": set(),
}  # fmt: skip
EVERYWHERE = {"ptt.diagnostics.definitions"}  # it stands for two modules of the standard library


SUB_ROOMS = {"parsers.io", "parsers.unpickle", "gate.baseline", "reports.figures.compare"}
DOOR = {"ptt.__init__", "ptt.__main__"}  # what `import ptt` and `python -m ptt` open; it hands on what lies below


def room_of(dotted: str) -> str:
    parts = dotted.split(".")[1:]
    if not parts or parts[0] in {"__init__", "__main__"}:
        return "ptt"
    if parts[0] == "diagnostics":
        parts = parts[1:]
        return ".".join(parts[:2]) if ".".join(parts[:2]) in SUB_ROOMS else parts[0]
    if parts[0] == "reports":
        return ".".join(parts[:3]) if ".".join(parts[:3]) in SUB_ROOMS else ".".join(parts[:2])
    return parts[0]


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_of(path: Path) -> set[str]:
    imported: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names if alias.name.split(".")[0] == "ptt"}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ptt":
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in names if exists(name)}
            imported |= modules | ({node.module} if modules != names else set())
    return imported - EVERYWHERE


@cache
def exists(dotted: str) -> bool:
    path = ROOT.parent.joinpath(*dotted.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@cache
def modules() -> list[tuple[str, Path]]:
    """Return every module of the package but those that hold a docstring alone."""
    paths = [
        (".".join(path.relative_to(ROOT.parent).with_suffix("").parts), path) for path in sorted(ROOT.rglob("*.py"))
    ]
    return [(dotted, path) for dotted, path in paths if len(parsed(path).body) > 1 and dotted not in EVERYWHERE]


def test_every_import_is_an_edge_of_the_table() -> None:
    wrong = [
        f"{dotted} ({room_of(dotted)}) imports {target} ({room_of(target)})"
        for dotted, path in modules()
        for target in imports_of(path)
        if room_of(target) != room_of(dotted) and room_of(target) not in ALLOWED.get(room_of(dotted), set())
    ]
    assert wrong == []


def test_every_file_stands_in_a_room() -> None:
    assert {room_of(dotted) for dotted, _ in modules()} <= set(ALLOWED)


def test_the_table_holds_no_edge_that_nobody_uses() -> None:
    used: dict[str, set[str]] = {room: set() for room in ALLOWED}
    for dotted, path in modules():
        used[room_of(dotted)] |= {room_of(target) for target in imports_of(path)} - {room_of(dotted)}
    assert used == ALLOWED


def test_no_room_knows_one_above_it() -> None:
    order = list(ALLOWED)
    upward = [
        f"{room} imports {other}"
        for room, others in ALLOWED.items()
        for other in others
        if order.index(other) < order.index(room) and other != "ptt"
    ]
    assert upward == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {
        dotted.removesuffix(".__init__"): {target for target in imports_of(path) if target != "ptt"}
        for dotted, path in modules()
        if dotted not in DOOR
    }
    graph = {dotted: targets - {dotted} for dotted, targets in graph.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(f"imports go round: {' -> '.join(error.args[1])}") from None


def test_links_at_the_root_lead_into_the_package() -> None:
    for name, target in {
        "cli": "ptt/cli",
        "diagnostics": "ptt/diagnostics",
        "reports": "ptt/reports",
    }.items():
        link = ROOT.parent / name
        assert link.is_symlink()
        assert link.resolve() == (ROOT.parent / target).resolve()


PUBLIC = ("__init__.py", "__main__.py", "api", "recorders", "diagnostics/model")  # read by those who import ptt
CALLED_BY_PICKLE = {"dispatch", "find_class", "persistent_load"}  # of classes that are mixed into its readers
FEW = 9  # uses that may all be a definition's own: it calls itself
UNCALLED = {  # to be removed: nothing may be added here
    "token_pass",
}  # fmt: skip
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def test_nothing_in_the_package_is_without_a_caller_in_it() -> None:
    trees = {path: parsed(path) for path in sorted(ROOT.rglob("*.py"))}
    used = Counter(word for tree in trees.values() for word in words_used(tree))
    for ending in ("*.j2", "*.toml", "*.css"):
        for path in ROOT.rglob(ending):
            used.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    ours = {node.name for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    uncalled = [
        f"{path.relative_to(ROOT.parent)}:{node.lineno} {name}"
        for path, tree in trees.items()
        if not path.relative_to(ROOT).as_posix().startswith(PUBLIC)
        for name, node in defined(tree, ours)
        if used[name] < FEW and used[name] == sum(word == name for word in words_used(node))
        if name not in UNCALLED | CALLED_BY_PICKLE
    ]
    assert uncalled == []


def words_used(tree: ast.AST) -> Iterator[str]:
    """Yield the names that code reads, and texts that may be one: of an attribute, a column, a template's variable."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.MatchClass):
            yield from node.kwd_attrs
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value


def defined(tree: ast.Module, ours: set[str]) -> Iterator[tuple[str, ast.stmt]]:
    """Yield functions, classes, constants, methods and fields that somebody has to name before they are of use."""
    for node in tree.body:
        yield from named(node)
        if isinstance(node, ast.ClassDef):
            bases = {ast.unparse(base) for base in node.bases}
            for part in node.body:
                overrides = isinstance(part, Definition) and not bases <= ours  # the class from elsewhere calls it
                member = any(base.endswith("Enum") for base in bases)  # made from its value
                if not overrides and not member:
                    yield from named(part)


def named(node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    if isinstance(node, Definition):
        command = any(re.search(r"\b_?(command|callback)\(", ast.unparse(by)) for by in node.decorator_list)
        if not command and not node.name.startswith(("__", "_repr_")):
            yield node.name, node
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        if isinstance(target, ast.Name) and not target.id.startswith("__"):
            yield target.id, node
