"""A disk that fails for a moment costs no checkpoint, no metrics and no run; locks belong to folders."""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import json
import os
import platform
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import safetensors.torch

from files import contents
from oneway.common.errors import UserError, describe_system_error
from oneway.runs import atomic, checkpoint, lock
from oneway.runs.checkpoint import restore_newest
from oneway.runs.environment import add_stretch, begin_stretches
from oneway.runs.reading import CannotRead, list_names, read_whole
from reliability.damage import trained, write
from reliability.disks import small_disk

PASSING = (errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.EACCES)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with two good checkpoints."""
    for iteration in (10, 20):
        write(tmp_path / "checkpoint", iteration, trained(iteration // 5))
    return tmp_path / "checkpoint"


def failing(number: int, real, ending: str):
    """A function that fails for files whose names end so."""

    def call(path, *arguments, **options):
        if not isinstance(path, int) and os.fspath(path).endswith(ending):
            raise OSError(number, os.strerror(number), path)
        return real(path, *arguments, **options)

    return call


@pytest.mark.parametrize("number", PASSING)
@pytest.mark.parametrize("ending", ["20.json", "20.safetensors", "checkpoint"])
def test_a_checkpoint_that_cannot_be_read_now_is_left_as_it_is(saved, number, ending, monkeypatch):
    """Neither renamed nor passed over for an older one; the message has the file, the cause and what to do."""
    before = contents(saved)
    with monkeypatch.context() as disk:
        disk.setattr(os, "open", failing(number, os.open, ending))
        disk.setattr(io, "open", failing(number, io.open, ending))
        disk.setattr(builtins, "open", failing(number, builtins.open, ending))
        disk.setattr(os, "scandir", failing(number, os.scandir, ending))
        with pytest.raises(CannotRead) as error:
            restore_newest(saved, trained(1), print)
    assert ending in str(error.value)
    assert os.strerror(number) in str(error.value)
    assert "Nothing has been changed" in str(error.value)
    assert contents(saved) == before
    found = restore_newest(saved, trained(1), print)
    assert found is not None
    assert found.iteration == 20


def test_memory_that_does_not_suffice_is_no_damage(saved, monkeypatch):
    """The bytes were read, and could not be made tensors of."""
    before = contents(saved)

    def load(content: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(safetensors.torch, "load", load)
    with pytest.raises(CannotRead, match=r"20.safetensors: cannot be read \(Cannot allocate memory\)"):
        restore_newest(saved, trained(1), print)
    assert contents(saved) == before


@pytest.mark.parametrize("which", ["00000020.safetensors", "00000010.safetensors"])
def test_a_file_of_tensors_that_is_not_there_is_no_damage(saved, which):
    """The manifest says that it was written: it is said to be missing, and the manifest keeps its name."""
    (saved / which).rename(saved.parent / which)
    if which.startswith("00000010"):
        assert restore_newest(saved, trained(1), print).iteration == 20
        return
    with pytest.raises(CannotRead, match=r"20.safetensors: cannot be read \(No such file"):
        restore_newest(saved, trained(1), print)
    assert (saved / "00000020.json").exists()
    (saved.parent / which).rename(saved / which)
    assert restore_newest(saved, trained(1), print).iteration == 20


def test_fewer_bytes_than_a_file_has_are_no_damage(saved, monkeypatch):
    """A read that ends early, as on a network file system whose server restarts."""
    real = os.fstat

    class Longer:
        def __init__(self, found: os.stat_result) -> None:
            self.st_mode, self.st_size = found.st_mode, found.st_size + 100

    with monkeypatch.context() as disk:
        disk.setattr(os, "fstat", lambda descriptor: Longer(real(descriptor)))
        with pytest.raises(CannotRead, match="bytes came of"):
            read_whole(saved / "00000020.json", lambda size: None)


def test_what_is_listed_wrongly_is_not_removed(saved, monkeypatch):
    """Tensors whose manifest a listing lacks, although it is there; and nothing where there is no listing at all."""
    before = contents(saved)
    with monkeypatch.context() as disk:
        disk.setattr(checkpoint.files, "list_names", lambda folder: ["00000010.safetensors", "00000020.safetensors"])
        checkpoint.remove_incomplete(saved)
    with monkeypatch.context() as disk:
        disk.setattr(os, "scandir", failing(errno.EIO, os.scandir, "checkpoint"))
        with pytest.raises(CannotRead):
            checkpoint.remove_incomplete(saved)
        checkpoint.prune(saved)
    assert contents(saved) == before


def test_a_folder_that_is_not_there_has_no_names(tmp_path):
    """One that cannot be listed may have some."""
    (tmp_path / "file").touch()
    assert list_names(tmp_path / "none") == []
    with pytest.raises(CannotRead, match="Not a directory"):
        list_names(tmp_path / "file")


def test_an_old_checkpoint_that_cannot_be_removed_costs_no_run(saved, monkeypatch):
    """It is removed with the next one."""
    with monkeypatch.context() as disk:
        disk.setattr(os, "unlink", failing(errno.EIO, os.unlink, "10.json"))
        disk.setattr(Path, "unlink", lambda path, missing_ok=False: os.unlink(path))
        write(saved, 30, trained(3))
    assert len(checkpoint.list_complete(saved)) == 3
    write(saved, 40, trained(3))
    assert [path.stem for path in checkpoint.list_complete(saved)] == ["00000030", "00000040"]


def test_a_disk_with_room_but_for_no_further_file_is_told_from_a_full_one(tmp_path):
    """Of many small files, their number can be what is too large."""
    with small_disk(tmp_path / "disk", 2**20) as mounted:
        if not mounted:
            pytest.skip("only root may mount a disk")
        subprocess.run(["mount", "-o", "remount,nr_inodes=2", tmp_path / "disk"], check=True)
        atomic.write_atomically(tmp_path / "disk" / "first", b"")
        with pytest.raises(atomic.CannotWrite, match=r"as many files as it can.*`df -i`"):
            atomic.write_atomically(tmp_path / "disk" / "second", b"")


def test_a_lock_goes_with_its_folder(tmp_path):
    """Renamed, it is still locked; a new folder of its old name is not."""
    (tmp_path / "run").mkdir()
    with lock.hold(tmp_path / "run") as held:
        held.require()
        (tmp_path / "run").rename(tmp_path / "moved")
        with pytest.raises(UserError, match=f"process {os.getpid()} on "), lock.hold(tmp_path / "moved"):
            pass
        with pytest.raises(UserError, match=f"is now {tmp_path}/moved"):
            held.require()
        (tmp_path / "run").mkdir()
        with lock.hold(tmp_path / "run"), pytest.raises(UserError, match=f"is now {tmp_path}/moved"):
            held.require()
        (tmp_path / "moved" / ".lock").unlink()  # the folder itself is what is locked
        with pytest.raises(UserError, match="another process writes to it"), lock.hold(tmp_path / "moved"):
            pass
    with lock.hold(tmp_path / "moved"):
        pass
    assert not (tmp_path / "moved" / ".lock").exists()


def test_a_folder_that_is_removed_is_noticed(tmp_path):
    """And said to be that."""
    (tmp_path / "run").mkdir()
    with lock.hold(tmp_path / "run") as held:
        shutil.rmtree(tmp_path / "run")
        with pytest.raises(UserError, match="was removed while it trained"):
            held.require()


def test_a_folder_whose_disk_is_gone_is_not_taken_for_renamed(tmp_path):
    """Unmounted while it was in use, or below another disk: the system has a path for it that leads elsewhere."""
    with small_disk(tmp_path / "disk", 2**16) as mounted:
        if not mounted:
            pytest.skip("only root may mount a disk")
        (tmp_path / "disk" / "run").mkdir()
        with lock.hold(tmp_path / "disk" / "run") as held:
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", tmp_path / "disk"], check=True)
            with pytest.raises(UserError, match="unmounted or covered"):
                held.require()
            subprocess.run(["umount", tmp_path / "disk"], check=True)
            held.require()


def test_a_folder_with_another_number_is_known_by_its_lock_file(tmp_path, monkeypatch):
    """As on file systems that number folders anew; and where the system cannot tell, nothing is claimed."""
    with lock.hold(tmp_path) as held:
        monkeypatch.setattr(os.path, "samestat", lambda one, other: False)
        held.require()
        monkeypatch.setattr(os, "stat", failing(errno.ESTALE, os.stat, tmp_path.name))
        held.require()


@pytest.mark.parametrize("locks", ["files", "nothing"])
def test_file_systems_that_lock_less(tmp_path, locks, monkeypatch):
    """Where folders cannot be locked, a file in it is; where nothing can, the file shows that its process lives."""
    real = fcntl.flock

    def flock(descriptor: int, operation: int) -> None:
        if locks == "nothing" or stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(lock, "SECONDS_BETWEEN_TOUCHES", 0.05)
    message = f"process {os.getpid()} on "
    with lock.hold(tmp_path), pytest.raises(UserError, match=message), lock.hold(tmp_path):
        pass


def test_two_computers_do_not_train_into_one_folder(tmp_path, monkeypatch):
    """Although the lock of one does not reach the other; a file that nobody touches any more locks nothing."""
    monkeypatch.setattr(lock, "SECONDS_BETWEEN_TOUCHES", 0.05)
    monkeypatch.setattr(lock, "STALE_AFTER", 0.4)
    monkeypatch.setattr(fcntl, "flock", lambda descriptor, operation: None)
    with lock.hold(tmp_path) as held:
        held.require()
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(platform, "node", lambda: "elsewhere")
            with pytest.raises(UserError, match=f"process {os.getpid()} on .* writes to it"), lock.hold(tmp_path):
                pass
            elsewhere.setattr(os, "utime", lambda descriptor: None)  # the first computer sleeps
            message = f"process {os.getpid()} on elsewhere has taken this run over"
            with lock.hold(tmp_path) as taken:
                taken.require()
                with pytest.raises(UserError, match=message):
                    held.require()


def test_a_lock_that_fails_for_a_moment_is_not_done_without(tmp_path, monkeypatch):
    """Or two processes could train into a folder."""

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UserError, match="Input/output error"), lock.hold(tmp_path):
        pass


def test_a_folder_that_cannot_be_synced_is_no_error(tmp_path, monkeypatch):
    """Other failures of a sync are."""

    def fsync(number: int):
        def fail(descriptor: int) -> None:
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                raise OSError(number, os.strerror(number))

        return fail

    monkeypatch.setattr(os, "fsync", fsync(errno.EINVAL))
    atomic.write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not atomic.sync_folder(tmp_path)
    monkeypatch.setattr(os, "fsync", fsync(errno.EIO))
    with pytest.raises(atomic.CannotWrite):
        atomic.write_atomically(tmp_path / "a", b"newer")


NOW = {
    "command": "oneway train",
    "versions": {"oneway": "1", "torch": "2.11"},
    "python": "3.11",
    "device": "cpu",
    "hardware": "A processor, 2 threads",
    "threads": 2,
    "commit": "0" * 40,
    "uncommitted": False,
}


def test_a_stretch_of_which_nothing_is_left_is_not_kept():
    """Killed before its first checkpoint, it has made no iteration of the run."""
    kept, _ = add_stretch(begin_stretches(NOW), NOW, 100)
    kept, _ = add_stretch(kept, NOW, 200)
    kept, _ = add_stretch(kept, NOW, 100)
    assert [stretch["iteration"] for stretch in kept["stretches"]] == [0, 100]
    kept, changed = add_stretch(kept, NOW | {"threads": 8}, 0)
    assert [stretch["threads"] for stretch in kept["stretches"]] == [8]
    assert changed == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"threads": 4, "hardware": "A processor, 4 threads"}, ["threads 2 → 4"]),
        ({"versions": {"oneway": "1", "torch": "2.12"}}, ["torch 2.11 → 2.12"]),
        ({"commit": "1" * 40}, ["commit 000000000000 → 111111111111"]),
        ({"uncommitted": True}, ["commit 000000000000 → 000000000000 with uncommitted changes"]),
        ({"device": "cuda", "hardware": "A GPU"}, ["device cpu → cuda", "hardware A processor → A GPU"]),
        ({"command": "oneway train --resume", "started": "later"}, []),
    ],
)
def test_what_changed_is_said(change, said):
    """Compared with the stretch before, and with one of the first version, which did not note threads by themselves."""
    assert add_stretch(begin_stretches(NOW), NOW | change, 100)[1] == said
    first_version = {key: value for key, value in NOW.items() if key not in ("threads", "device")}
    found = add_stretch(json.loads(json.dumps(first_version)), NOW | change, 100)[1]
    assert found == [words for words in said if not words.startswith("device")]


def test_only_what_passes_is_no_bug():
    """A file that is not where we expect it may be our mistake."""
    message = describe_system_error(OSError(errno.ESTALE, os.strerror(errno.ESTALE), "run/config.yaml"))
    assert message is not None
    assert message.startswith("run/config.yaml: Stale file handle.")
    assert "--resume" in message
    assert describe_system_error(FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "a")) is None
