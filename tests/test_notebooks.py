"""Notebooks run from the first cell to the last, and what is kept of them can be read without running them."""

from __future__ import annotations

import nbformat
import pytest

from notebooks import NOTEBOOKS, outputs, run


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_is_kept_is_small_and_of_no_computer(path):
    """Pictures are there; paths, warnings, errors and times of whoever ran it are not."""
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
    """In an empty folder; it ends with as many results of each kind as are kept, and with a mask."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    kept, found = outputs(nbformat.read(path, as_version=4)), outputs(run(path, tmp_path))
    assert [output.output_type for output in found] == [output.output_type for output in kept]
    assert "% mIoU" in str(found)
    assert (tmp_path / "mask.png").is_file()
