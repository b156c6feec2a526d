"""What is left of a container's memory, from files as Linux writes them (cgroup v2)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from oneway.engine import memory

MIB = 2**20
CPU = torch.device("cpu")


def contained(folder: Path, limit: str, used: int, droppable: int) -> None:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 7340032\nfile {2 * droppable}\ninactive_file {droppable}\npgfault 12\n")


@pytest.mark.parametrize(
    ("used", "droppable", "left"),
    [(0, 0, 64), (40, 0, 24), (60, 50, 54), (70, 0, 0)],
    ids=["untouched", "in use", "mostly files", "over its limit"],
)
def test_a_container_has_left_what_its_limit_leaves(tmp_path, monkeypatch, used, droppable, left):
    """64 MiB, less what is in use, but for files that can be dropped; never less than nothing."""
    contained(tmp_path, str(64 * MIB), used * MIB, droppable * MIB)
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    assert memory.available(CPU) == left * MIB


def test_without_a_limit_it_is_the_machine_that_counts(tmp_path, monkeypatch):
    """No container, one that may use all, or one that is allowed more than there is."""
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    for limit in (None, "max", str(2**60)):
        if limit:
            contained(tmp_path, limit, MIB, 0)
        left = memory.available(CPU)
        assert left is not None
        assert 64 * MIB < left < 2**50
