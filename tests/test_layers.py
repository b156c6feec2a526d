"""Data flows one way: a module imports only from modules before it."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "oneway"
ORDER = """
    errors extras words streams methods run_files config recipes atomic failure interrupt memory
    pictures data draws kernels feed jitter perturb models losses consistency guard step static
    optim start checkpoint run evaluate progress train
    report quickstart reproduce bench predict export explore suggest cli
""".split()


def part_of(path: Path) -> str:
    """The name of the part a file belongs to: a module, or a package with everything in it."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Parts that a file imports, at the top or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "oneway":
            found |= {alias.name for alias in node.names} - {"__version__"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oneway."):
            found.add((node.module or "").split(".")[1])
    return found


def test_every_part_has_its_place():
    """A new module is put into the order, or this fails."""
    assert {part_of(path) for path in SOURCE.rglob("*.py")} - {"__init__", "__main__"} == set(ORDER)


def test_imports_point_backwards():
    """Nothing imports what comes after it."""
    for path in SOURCE.rglob("*.py"):
        part = part_of(path)
        if part in ORDER:
            later = ORDER[ORDER.index(part) + 1 :]
            assert not imports(path) & set(later), path
