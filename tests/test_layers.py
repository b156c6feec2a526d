"""A layer imports from those above it; the science stands on its own."""

from __future__ import annotations

import ast

import pytest

from forks import run_code
from layers import BEGIN, END, LAYER_OF, LAYERS, PAGE, PARTS, SOURCE, edges, files, imports_of, part_of

ORDER = list(LAYERS)


def test_every_part_has_its_layer_and_there_are_few():
    """A new name at the top level is put into a layer, or this fails."""
    found = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.name[0] not in "._"}
    assert found - {"py.typed"} == set(PARTS)
    assert len(PARTS) <= 12


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_from_those_above_it(layer):
    """And the science from no setting, file or run; within a layer parts may use one another."""
    for path in files():
        if LAYER_OF[part_of(path)] == layer:
            below = {part for part in imports_of(path) if ORDER.index(LAYER_OF[part]) > ORDER.index(layer)}
            if layer == "common":
                below -= {"methods"}  # the names of methods are settings too; their table loads nothing
            assert not below, path
            assert not (layer == "science" and "config" in imports_of(path)), path


def test_an_init_gathers_names():
    """Logic has a file with a name."""
    for path in SOURCE.rglob("__init__.py"):
        if path.parent != SOURCE:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in ast.walk(tree)), path


@pytest.mark.parametrize("module", LAYERS["science"])
def test_the_science_loads_alone(module):
    """No reader, no settings, no command line, no pictures; and nobody's global settings change."""
    run_code(f"""
import sys, torch, warnings
before = torch.backends.cudnn.benchmark, torch.get_default_dtype(), list(warnings.filters), torch.initial_seed()
import oneway.{module}
assert before == (
    torch.backends.cudnn.benchmark, torch.get_default_dtype(), list(warnings.filters), torch.initial_seed()
)
loaded = {{name.split(".")[0] for name in sys.modules}}
assert not loaded & {{"pydantic", "cyclopts", "PIL", "rich", "yaml"}}, loaded
ours = {{".".join(name.split(".")[:2]) for name in sys.modules if name.startswith("oneway.")}}
assert not ours & {{"oneway.data", "oneway.config", "oneway.runs", "oneway.engine", "oneway.tools"}}, ours
""")


def test_the_page_shows_the_graph_as_it_is():
    """Which part imports from which, in CONTRIBUTING; sizes may lag behind."""
    shown = PAGE.read_text(encoding="utf-8").split(BEGIN)[1].split(END)[0]
    for part, other in edges():
        (line,) = [line for line in shown.splitlines() if f" {part} " in line.split(" lines ")[0] + " "]
        assert other in line.split(" lines ")[1], "python tests/layers.py draws it anew"
