"""A layer imports from those that its row allows; the science stands on its own."""

from __future__ import annotations

import ast

import pytest

from forks import run_code
from layers import LAYER_OF, LAYERS, MAY_IMPORT, PAGE, PARTS, SOURCE, files, imports_of, part_of, table


def test_every_part_has_its_layer_and_there_are_few():
    """A new name at the top level is put into a layer, or this fails."""
    found = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.name[0] not in "._"}
    assert found - {"py.typed"} == set(PARTS)
    assert len(PARTS) <= 12


@pytest.mark.parametrize("layer", LAYERS)
def test_a_layer_imports_what_it_may(layer):
    """And the science no setting; within a layer packages may use one another."""
    for path in files():
        if LAYER_OF[part_of(path)] == layer:
            imported = imports_of(path)
            if layer == "common":
                imported -= {"methods"}  # the names of methods are settings too; their table loads nothing
            assert {LAYER_OF[part] for part in imported} <= {layer, *MAY_IMPORT[layer]}, path
            assert not (layer == "science" and "config" in imported), path


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


def test_the_page_shows_the_table():
    """CONTRIBUTING has what is tested here."""
    assert table() in PAGE.read_text(encoding="utf-8"), "put the output of `python tests/layers.py` there"
