"""The import table: who may know whom. Data flows one way; a file that stands in no room fails here."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1] / "ptt"

ALLOWED = {
    "ptt": {"api"},
    "api": {
        "answerable", "catalogue", "comparing", "config", "custom", "errors", "gate", "opening", "pipeline", "rules",
        "store", "workers",
    },
    "opening": {"config", "errors", "kept", "model", "parsers", "pipeline", "ptt", "reports", "store"},
    "workers": set(),  # knows nothing of what is done in them
    "gating": {"ptt", "api", "errors", "gate", "kept", "reports", "workers"},
    "cli": {
        "ptt", "api", "baseline", "comparing", "config", "errors", "gate", "gating", "model", "store", "reports",
        "workers",
    },
    "errors": set(),
    "model": set(),
    "metrics": set(),
    "schema": set(),
    "config": {"errors", "model"},
    "inert": set(),
    "parsers": {"schema", "errors", "inert"},
    "statistics": set(),
    "store": {"schema", "errors", "parsers", "statistics"},
    "engines": {"config", "statistics", "store"},
    "evidence": {"model", "statistics"},
    "rules": {"model", "evidence", "statistics"},
    "gathering": {"config", "engines", "evidence", "model", "parsers", "rules", "schema", "statistics", "store"},
    "custom": {"errors", "evidence", "gathering", "model", "parsers", "rules", "schema", "statistics", "store"},
    "catalogue": {"errors", "judging", "model", "rules"},
    "judging": {"model"},
    "deliverables": {"evidence", "model", "parsers"},
    "kept": {"errors", "model", "parsers", "statistics", "store"},
    "comparing": {"errors", "evidence", "kept", "metrics", "model", "statistics", "store"},
    "baseline": {"errors", "kept", "model", "statistics"},
    "gate": {
        "baseline", "catalogue", "custom", "errors", "evidence", "gathering", "judging", "kept", "model", "parsers",
        "rules", "schema", "statistics", "store",
    },
    "answerable": {"evidence", "parsers", "schema", "store"},
    "asking": {
        "custom", "engines", "evidence", "gathering", "judging", "model", "parsers", "rules", "store",
    },
    "pipeline": {
        "ptt", "answerable", "asking", "config", "custom", "deliverables", "engines", "errors", "gathering", "kept",
        "model", "parsers", "statistics", "store",
    },
    "reports": {
        "ptt", "answerable", "baseline", "catalogue", "comparing", "custom", "gate", "metrics", "model", "parsers",
    },
    "recorders": set(),  # runs inside a trainer: it may not even load polars
}  # fmt: skip


def room_of(dotted: str) -> str:
    parts = dotted.split(".")
    if parts == ["ptt"] or parts[1] in {"__init__", "__main__"}:
        return "ptt"
    return parts[2] if parts[1] == "diagnostics" and len(parts) > 2 else parts[1]


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "ptt"}
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "ptt":
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            packages = {name for name in names if exists(name)}
            found |= packages | ({node.module} if packages != names else set())
    return found


def exists(dotted: str) -> bool:
    path = ROOT.parent.joinpath(*dotted.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def modules() -> list[tuple[str, Path]]:
    return [
        (".".join(path.relative_to(ROOT.parent).with_suffix("").parts), path) for path in sorted(ROOT.rglob("*.py"))
    ]


def test_every_import_is_an_edge_of_the_table() -> None:
    wrong = []
    for dotted, path in modules():
        if dotted in {"ptt.__main__", "ptt.diagnostics.__init__"}:
            continue
        room = room_of(dotted)
        for target in imports_of(path):
            other = room_of(target)
            if other != room and other not in ALLOWED[room]:
                wrong.append(f"{dotted} ({room}) imports {target} ({other})")
    assert wrong == []


def test_every_file_stands_in_a_room() -> None:
    assert {room_of(dotted) for dotted, _ in modules() if not dotted.endswith("diagnostics.__init__")} == set(ALLOWED)


def test_the_table_holds_no_edge_that_nobody_uses() -> None:
    used: dict[str, set[str]] = {room: set() for room in ALLOWED}
    for dotted, path in modules():
        if not dotted.endswith(("diagnostics.__init__", "__main__")):
            used[room_of(dotted)] |= {room_of(target) for target in imports_of(path)} - {room_of(dotted)}
    assert used == ALLOWED


def test_links_at_the_root_lead_into_the_package() -> None:
    for name, target in {
        "cli": "ptt/cli",
        "diagnostics": "ptt/diagnostics",
        "reports": "ptt/reports",
    }.items():
        link = ROOT.parent / name
        assert link.is_symlink()
        assert link.resolve() == (ROOT.parent / target).resolve()
