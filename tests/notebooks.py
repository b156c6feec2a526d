"""Notebooks of the documents, run as a reader runs them; `python tests/notebooks.py` keeps their outputs anew."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs").rglob("*.ipynb"))


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """What its cells left, first to last."""
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def run(path: Path, folder: Path) -> nbformat.NotebookNode:
    """A notebook after its last cell, run in a folder; warnings depend on whose computer it is, and are left out."""
    notebook = nbformat.read(path, as_version=4)
    metadata = dict(notebook.metadata)
    where = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", record_timing=False, resources=where).execute()
    notebook.metadata = nbformat.from_dict(metadata)  # and so does the version of Python
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


if __name__ == "__main__":
    for notebook in NOTEBOOKS:
        with TemporaryDirectory() as folder:
            nbformat.write(run(notebook, Path(folder)), notebook)
