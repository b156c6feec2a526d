"""Files that were touched, copied or restored: their content is compared once, and what is remembered does no harm."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from data.decoded import cache_folder, refusal, same, settings, train
from data.readers import digest
from files import contents
from forks import called, start
from oneway.data import load
from oneway.data.cache import stamps


def touch(root: Path, when: float = 1) -> list[str]:
    """Gives the training files another time; returns them in the order in which they are compared."""
    files = sorted(map(str, root.glob("train/*/*")))
    for path in files:
        os.utime(path, (when, when))
    return files


def memory(root: Path, split: str = "train") -> Path:
    return cache_folder(root) / f"{split}.compared.json"


@pytest.fixture
def compared(monkeypatch) -> list[str]:
    """The files whose content is read to compare it, from now on."""
    read: list[str] = []
    digest = stamps._digest
    monkeypatch.setattr(stamps, "_digest", lambda path: read.append(path) or digest(path))
    return read


def test_a_touched_or_copied_file_is_the_same(root, compared):
    """Its content tells, which is read once, however often a command asks; the next command reads none of it."""
    before = train(root)
    load(settings(root)).review()
    for path in root.glob("train/*/*"):
        copy = path.with_name("copy")
        copy.write_bytes(path.read_bytes())
        copy.replace(path)
    compared.clear()
    files = touch(root)
    again = load(settings(root))
    assert same(again.read("train"), before)
    again.review()
    assert sorted(compared) == files
    assert same(train(root), before)
    assert len(compared) == len(files)
    touch(root, 2)
    train(root)
    train(root)
    assert len(compared) == 2 * len(files)


def test_a_start_at_which_nothing_is_new_writes_nothing(root):
    """Neither where nothing was touched, nor where that was remembered."""
    train(root)

    def identities() -> list[tuple[Path, int, int]]:
        files = sorted(cache_folder(root).rglob("*"))
        return [(path, path.stat().st_ino, path.stat().st_mtime_ns) for path in files]

    untouched = identities()
    train(root)
    assert identities() == untouched
    touch(root)
    train(root)
    remembered = identities()
    assert len(remembered) == len(untouched) + 1
    train(root)
    assert identities() == remembered


def test_what_changes_after_it_was_compared_is_named(root):
    """Then, and again when it is touched; what it was can be restored at any time."""
    train(root)
    touch(root)
    before = train(root)
    file = root / "train/images/c.png"
    content = file.read_bytes()
    for when in (2, 3):
        file.write_bytes(content[::-1])
        os.utime(file, (when, when))
        assert f"{file} has other content" in refusal(root)
    file.write_bytes(content)
    assert same(train(root), before)


def test_a_file_that_was_touched_just_now_is_compared_again(root):
    """Another that is written a moment later has the same time where a disk counts in seconds."""
    train(root)
    now = time.time()
    touch(root, now)
    train(root)
    file = root / "train/images/c.png"
    file.write_bytes(file.read_bytes()[::-1])
    touch(root, now)
    assert f"{file} has other content" in refusal(root)


FORGOTTEN = {
    "empty": b"",
    "half": b'{"/photos/a.png": [1000000000, "9ab',
    "a list": b"[1, 2]",
    "nested": b"[" * 100_000,
    "zeros": bytes(4096),
    "strange": b'{"%s": [NaN], "/": {"a": 1e400}}',
}


@pytest.mark.parametrize("content", FORGOTTEN.values(), ids=FORGOTTEN)
def test_what_is_remembered_may_be_damaged(root, compared, content):
    """The files are compared again, and a file that has changed is named all the same."""
    train(root)
    files = touch(root)
    before = train(root)
    file = root / "train/images/c.png"
    memory(root).write_bytes(content.replace(b"%s", os.fsencode(file)))
    compared.clear()
    assert same(train(root), before)
    assert sorted(compared) == files
    assert json.loads(memory(root).read_bytes()).keys() >= {*files}
    memory(root).write_bytes(content)
    file.write_bytes(file.read_bytes()[::-1])
    assert f"{file} has other content" in refusal(root)


def test_what_is_remembered_may_be_of_another_index(root):
    """As where a process that compares the old files writes after another that has decoded new ones."""
    train(root)
    file = root / "train/images/c.png"
    old = file.read_bytes()
    touch(root)
    train(root)
    late = memory(root).read_bytes()
    file.write_bytes(old + b"more")
    refreshed = train(root, refresh=True)
    memory(root).write_bytes(late)
    assert same(train(root), refreshed)
    touch(root)
    assert same(train(root), refreshed)
    file.write_bytes(old)
    assert f"{file} has other content" in refusal(root)


def test_a_file_of_annotations_is_read_once_for_all_its_images(tmp_path, outlines, compared):
    """However large, and however many there are."""
    root = tmp_path / "outlined"
    before = train(root)
    os.utime(root / "labels.json", (1, 1))
    compared.clear()
    assert same(train(root), before)
    assert compared == [str(root / "labels.json")]


@pytest.mark.skipif(sys.platform != "linux", reason="gives up the rights of root by a call of Linux")
def test_what_was_compared_before_an_error_is_not_compared_again(root, tmp_path, compared):
    """Here a file cannot be read; Ctrl-C is the same."""
    train(root)
    files = touch(root)
    unreadable = root / "train/images/e.jpg"
    unreadable.chmod(0)
    (message,) = called(tmp_path, "data.readers:read_unprivileged", root=str(root))
    assert f"{unreadable}: cannot be read (Permission denied)" in message
    compared.clear()
    train(root)
    assert sorted(compared) == files[files.index(str(unreadable)) :]


@pytest.mark.skipif(sys.platform != "linux", reason="gives up the rights of root by a call of Linux")
def test_a_cache_that_cannot_be_written_to_is_no_error(root, tmp_path):
    """The files are compared each time."""
    expected = digest(root)
    touch(root)
    folder = cache_folder(root)
    folder.chmod(0o500)
    assert called(tmp_path, "data.readers:read_unprivileged", root=str(root)) == expected
    assert {path.name for path in folder.iterdir()} == {"train", ".train.lock"}


@pytest.mark.parametrize("locks", [True, False], ids=["locks", "no locks"])
def test_processes_that_compare_at_once_all_succeed(root, tmp_path, compared, locks):
    """Three of them, begun at the same moment; the next one compares nothing."""
    expected = digest(root)
    touch(root)
    answers = called(tmp_path, "data.readers:read_at_once", root=str(root), processes=3, locks=locks)
    assert answers == [expected] * 3
    compared.clear()
    assert digest(root) == expected
    assert not compared
    assert {path.name for path in cache_folder(root).iterdir()} == {"train", ".train.lock", "train.compared.json"}
    assert {path.name for path in (cache_folder(root) / "train").iterdir()} == {"pixels", "labels", "index.json"}


@pytest.mark.parametrize("event", ["open", "os.rename"])
def test_a_killed_process_leaves_what_was_remembered_before(root, tmp_path, event):
    """As it begins to write, or has written all but the name."""
    expected = digest(root)
    touch(root)
    digest(root)
    kept = contents(memory(root).parent)
    touch(root, 2)
    arguments = {"root": str(root), "event": event, "ending": ".tmp"}
    killed = start(tmp_path, function="data.readers:read_until", arguments=arguments)
    assert killed.wait() == -signal.SIGKILL, killed.error
    assert contents(memory(root).parent).items() >= kept.items()
    assert digest(root) == expected


def test_that_files_are_compared_is_said(root, monkeypatch):
    """Where it takes more than a few seconds."""
    train(root)
    touch(root)
    monkeypatch.setattr("oneway.common.progress.SECONDS_BETWEEN_LINES", 0)
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        load(settings(root), console).read("train")
    assert "Comparing touched files  8/8" in capture.get()
