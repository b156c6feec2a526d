"""What a bug leaves in the folder that a run was to have, or has."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from oneway.common import words
from oneway.common.failure import describe_bug, note_run_folder
from oneway.runs import refuse_occupied


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty one; temporary files go beside it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


def told(folder: Path) -> str:
    """What is said about a bug."""
    with pytest.raises(ZeroDivisionError) as caught, note_run_folder(folder):
        raise ZeroDivisionError
    return describe_bug(caught.value)


def test_a_bug_before_the_run_has_begun_leaves_its_place_free(folder: Path) -> None:
    """Nothing can be continued, nothing says so, and the next attempt finds the folder as it was."""
    said = told(folder)
    assert "--resume" not in said
    assert not list(folder.iterdir())
    (traceback,) = folder.parent.glob("oneway-traceback-*.txt")
    assert str(traceback) in said
    assert "ZeroDivisionError" in traceback.read_text(encoding="utf-8")


def test_a_bug_in_a_run_is_kept_with_it(folder: Path) -> None:
    """Beside what has been saved, which can be continued."""
    for name in ("config.yaml", "environment.json"):
        (folder / name).touch()
    said = told(folder)
    assert "--resume continues it" in said
    assert f"{folder / 'traceback.txt'} and {folder / 'environment.json'}" in said


def test_a_program_of_the_users_own_may_be_at_fault(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its line is named, and not the last one, which may be in a library; `oneway` alone takes all the blame."""
    assert "This is a bug in oneway and not your mistake." in told(folder)
    monkeypatch.setattr(words, "PROGRAM", ["python", "sub/own.py"])
    assert "This is a mistake in own.py or a bug in oneway." in told(folder)
    own = compile("\n\nimport json\njson.loads('{')\n", "/home/you/sub/own.py", "exec")
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (that of another module)
        exec(own, {})
    assert "(own.py, line 4)\n" in describe_bug(caught.value)


def test_a_traceback_alone_keeps_nobody_out(folder: Path) -> None:
    """It is no run, and nothing worth keeping."""
    (folder / "traceback.txt").touch()
    refuse_occupied(folder)
