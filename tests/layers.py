"""The layers of the package and what each may import: `python tests/layers.py` prints the table of CONTRIBUTING."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "oneway"
PAGE = ROOT / "CONTRIBUTING.md"

LAYERS: dict[str, tuple[str, ...]] = {
    "common": ("common", "config"),
    "science": ("draws", "ops", "perturb", "models", "methods"),
    "engine": ("engine",),
    "data": ("data",),
    "runs": ("runs",),
    "tools": ("tools",),
    "cli": ("cli",),
}
"""The names at the top level, by layer."""

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "common": (),
    "science": ("common",),
    "engine": ("common", "science"),
    "data": ("common",),
    "runs": ("common", "science", "engine", "data"),
    "tools": ("common", "science", "engine", "data", "runs"),
    "cli": ("common", "science", "engine", "data", "runs", "tools"),
}
"""Other layers. Within a layer, packages may use one another."""

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
    """Of all parts; the package's own `__init__.py` and `__main__.py`, which lie beside them, may use any."""
    return [path for path in sorted(SOURCE.rglob("*.py")) if part_of(path) in PARTS]


def table() -> str:
    """What CONTRIBUTING shows: the layers, their packages and what they may import."""
    lines = ["| layer | packages | may import |", "|---|---|---|"]
    for layer, parts in LAYERS.items():
        packages = ", ".join(f"`{part}`" for part in parts)
        lines.append(f"| {layer} | {packages} | {', '.join(MAY_IMPORT[layer]) or '–'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
