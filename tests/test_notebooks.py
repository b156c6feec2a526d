"""Notebooks run from the first cell to the last, as a reader runs them."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs").rglob("*.ipynb"))


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_is_small_and_of_no_computer(path):
    """Results are there to be read without running it; no paths, warnings or times of whoever ran it."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 300_000
    assert any("image/png" in output.get("data", {}) for output in outputs(notebook))
    assert not [
        output for output in outputs(notebook) if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert not [cell for cell in notebook.cells if "execution" in cell.metadata]
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_from_the_first_cell_to_the_last(path, tmp_path, monkeypatch):
    """In an empty folder; the model that it trains has learnt something, and its pictures are drawn."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(path, as_version=4)
    kept = outputs(notebook)
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", record_timing=False, resources={"metadata": {"path": tmp_path}}
    )
    client.execute()
    found = [output for output in outputs(notebook) if output.get("name") != "stderr"]
    assert [output.output_type for output in found] == [output.output_type for output in kept]
    text = "".join(str(output.get("data", {}).get("text/plain", "")) for output in found)
    assert "% mIoU" in text
    assert (tmp_path / "mask.png").is_file()
