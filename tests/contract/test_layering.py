"""Dependencies point one way, and the arithmetic reads and writes nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kvplan

ROOT = Path(kvplan.__file__).parent

LAYERS: list[set[str]] = [
    {"errors"},
    {"units"},
    {"files", "precision"},
    {"catalogue", "model", "forms", "evaluation_files"},
    {"hardware", "policy", "sources"},
    {"deployment"},
    {"calibration"},
    {"engines"},
    {"planning"},
    {"question"},
    {"reports"},
    {"sweeping"},
    {"monitoring"},
    {"checking", "gating"},
    {"cli"},
]
"""From the bottom up: a room imports from rooms below it, never from beside or above."""

RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
SOURCES_USERS = {"question", "checking", "sweeping", "cli", "__init__"}
"""Models are made by sources; everything else is handed one."""

PURE = {"model", "engines", "planning", "precision"}
INPUT_OUTPUT = {
    "os", "io", "pathlib", "shutil", "subprocess", "socket", "urllib", "http", "tempfile",
    "glob", "fileinput", "requests", "httpx",
}  # fmt: skip
READS_ITS_OWN_FOLDER = {"engines/__init__.py"}
"""Lists the modules beside it, to find the engines by name."""


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0].removesuffix(".py")


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node that runs: what stands under ``if TYPE_CHECKING`` is for the type checker."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield from nodes(child)


def imports(path: Path) -> list[tuple[str, int]]:
    """Every module imported anywhere in a file, with the line; ``from x import y`` is both."""
    found: list[tuple[str, int]] = []
    for node in nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a name comes from"
            found.append((node.module or "", node.lineno))
            if node.module == "kvplan":
                found += [(f"kvplan.{alias.name}", node.lineno) for alias in node.names]
    return found


def rooms_imported(path: Path) -> dict[str, int]:
    rooms = {}
    for name, line in imports(path):
        parts = name.split(".")
        if parts[0] == "kvplan" and len(parts) > 1 and parts[1] != "__version__":
            rooms.setdefault(parts[1], line)
    return rooms


FILES = sorted(path for path in ROOT.rglob("*.py"))
MODULES = [path for path in FILES if room_of(path) not in {"__init__", "__main__"}]


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_room_has_its_place() -> None:
    rooms = {room_of(path) for path in MODULES}
    assert rooms <= set(RANK), "give the new module its place in LAYERS"
    assert len(MODULES) > 40


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_imports_point_down(path: Path) -> None:
    own = room_of(path)
    for room, line in rooms_imported(path).items():
        if room != own:
            assert RANK[room] < RANK[own], f"{label(path)}:{line}: {own} imports {room}"


def test_sources_are_used_only_where_a_question_is_put_together() -> None:
    users = {room_of(path) for path in FILES if "sources" in rooms_imported(path)} - {"sources"}
    assert users <= SOURCES_USERS


@pytest.mark.parametrize("path", [path for path in MODULES if room_of(path) in PURE], ids=label)
def test_arithmetic_reads_and_writes_nothing(path: Path) -> None:
    if label(path) in READS_ITS_OWN_FOLDER:
        return
    modules = {name.split(".")[0] for name, _ in imports(path)}
    assert modules.isdisjoint(INPUT_OUTPUT)
    assert "files" not in rooms_imported(path)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "exec", "eval"}


@pytest.mark.parametrize("path", FILES, ids=label)
def test_no_file_asserts_on_input_or_swallows_everything(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        assert not isinstance(node, ast.Assert), f"{label(path)}:{node.lineno}"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"{label(path)}:{node.lineno}: bare except"
            caught = ast.unparse(node.type)
            raises_again = any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
            if caught in {"Exception", "BaseException"} and not raises_again:
                assert label(path) == "cli/main.py", f"{label(path)}:{node.lineno}"


def test_one_entry_catches_what_nobody_foresaw() -> None:
    text = (ROOT / "cli" / "main.py").read_text(encoding="utf-8")
    assert text.count("except Exception") == 1
