"""The layers of the house, and what imports what: `python tests/layers.py` draws the graph that CONTRIBUTING shows."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "oneway"
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- imports: python tests/layers.py -->", "<!-- end of imports -->"

LAYERS: dict[str, tuple[str, ...]] = {
    "common": ("common", "config"),
    "science": ("draws", "ops", "perturb", "models", "methods"),
    "engine": ("engine",),
    "data": ("data",),
    "runs": ("runs",),
    "tools": ("tools",),
    "cli": ("cli",),
}
"""From the top down: a layer imports from those before it."""

PARTS = tuple(part for parts in LAYERS.values() for part in parts)
LAYER_OF = {part: layer for layer, parts in LAYERS.items() for part in parts}


def part_of(path: Path) -> str:
    """The name at the top level that a file belongs to."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path: Path) -> set[str]:
    """Parts that a file imports when it runs, at the top or inside functions; for its types alone is no import."""
    found: set[str] = set()
    for node in _run_nodes(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("oneway.")} & set(PARTS)
    return found


def _run_nodes(tree: ast.AST) -> list[ast.AST]:
    nodes = [tree]
    for child in ast.iter_child_nodes(tree):
        types_alone = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        nodes += [] if types_alone else _run_nodes(child)
    return nodes


def files() -> list[Path]:
    """Of all parts; what lies beside them, the door of the house, may use any."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if part_of(path) in PARTS]


def edges() -> Counter[tuple[str, str]]:
    """How many files of a part import from another."""
    found: Counter[tuple[str, str]] = Counter()
    for path in files():
        found.update((part_of(path), part) for part in imports_of(path) - {part_of(path)})
    return found


def graph() -> str:
    """The parts by layer with their sizes, and which files of a part import from which other parts, as text."""
    counts, lines = edges(), []
    sizes = Counter[str]()
    for path in files():
        sizes[part_of(path)] += len(path.read_text(encoding="utf-8").splitlines())
    for layer, parts in LAYERS.items():
        for part in parts:
            used = [f"{other} {counts[part, other]}" for other in PARTS if counts[part, other]]
            lines.append(f"    {layer:8} {part:8} {sizes[part]:6,} lines   {' · '.join(used) or '–'}")
            layer = ""
    return "\n".join(lines)


def main() -> None:
    """Puts the graph into CONTRIBUTING."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{graph()}\n\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
