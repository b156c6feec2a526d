"""Facts about reading CIFAR-10, on batches of a few images made here, and about pickles with other intentions."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc

import numpy as np
import pytest

from oneway.common.errors import UserError
from oneway.data.published.cifar10 import CLASSES, read

TRAINING = tuple(f"data_batch_{number}" for number in range(1, 6))
FILES = (*TRAINING, "test_batch")


def batch(index: int, count: int = 3) -> tuple[np.ndarray, list[int]]:
    """Random planes (count×3072) and labels, other ones for each file."""
    generator = np.random.default_rng(index)
    return generator.integers(256, size=(count, 3072), dtype=np.uint8), generator.integers(10, size=count).tolist()


def as_records(planes: np.ndarray, labels: list[int]) -> bytes:
    return b"".join(bytes([label]) + row.tobytes() for label, row in zip(labels, planes, strict=True))


def as_python_2_wrote_it(planes: np.ndarray, labels: list[int]) -> bytes:
    """The opcodes of Python 2's pickle.dump(…, protocol=2) with its NumPy, in which every string is of bytes."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    names = b"](" + b"".join(text(b"image.png") for _ in labels) + b"e"
    dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    shape = b"M" + struct.pack("<H", len(planes)) + b"M" + struct.pack("<H", planes.shape[1]) + b"\x86"
    raw = b"T" + struct.pack("<i", planes.size) + planes.tobytes()
    empty = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    array = empty + b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"
    items = text(b"batch_label") + text(b"a batch") + text(b"labels") + numbers
    items += text(b"data") + array + text(b"filenames") + names
    return b"\x80\x02}(" + items + b"u."


def as_pickle(planes: np.ndarray, labels: list[int], protocol: int = 4) -> bytes:
    return pickle.dumps({b"data": planes, b"labels": labels}, protocol)


WRITERS = {
    "cifar-10-batches-bin": (".bin", as_records),
    "cifar-10-batches-py": ("", as_python_2_wrote_it),
}


@pytest.fixture(params=WRITERS)
def archive(request, tmp_path):
    """An unpacked archive in one of the layouts: its folder, how its files end, and the function that writes one."""
    suffix, write = WRITERS[request.param]
    folder = tmp_path / request.param
    folder.mkdir()
    for index, name in enumerate(FILES):
        (folder / f"{name}{suffix}").write_bytes(write(*batch(index)))
    return folder, suffix, write


def test_classes_are_the_official_ones():
    """In the order of batches.meta."""
    assert " ".join(CLASSES) == "airplane automobile bird cat deer dog frog horse ship truck"


@pytest.mark.parametrize(("split", "indices"), [("train", range(5)), ("val", [5])])
def test_both_layouts_give_what_was_written_in_the_official_order(archive, split, indices):
    """Batches 1 to 5 one after the other, or the test batch; each pixel is where its plane had it."""
    pixels, labels = read(archive[0], split)
    expected = [batch(index) for index in indices]
    planes = np.concatenate([planes for planes, _ in expected])
    assert (pixels.dtype, labels.dtype) == (np.uint8, np.uint8)
    assert pixels.shape == (len(planes), 32, 32, 3)
    for channel in range(3):
        assert np.array_equal(pixels[..., channel].reshape(-1, 1024), planes[:, 1024 * channel : 1024 * (channel + 1)])
    assert labels.tolist() == [label for _, labels in expected for label in labels]


def test_the_parent_folder_serves_as_well(archive):
    """What unpacking in a folder leaves there is found from the folder."""
    folder, *_ = archive
    for inside, outside in zip(read(folder, "train"), read(folder.parent, "train"), strict=True):
        assert np.array_equal(inside, outside)


def test_red_comes_first_and_rows_come_before_columns(archive):
    """A red image with one green pixel in row 0, column 5, written by hand."""
    folder, suffix, write = archive
    planes = np.zeros((1, 3072), np.uint8)
    planes[0, :1024] = 255
    planes[0, 1024 + 5] = 200
    (folder / f"test_batch{suffix}").write_bytes(write(planes, [6]))
    pixels, labels = read(folder, "val")
    assert pixels[0, 0, 5].tolist() == [255, 200, 0]
    assert pixels[0, 5, 0].tolist() == [255, 0, 0]
    assert (pixels == [255, 0, 0]).all(axis=-1).sum() == 32 * 32 - 1
    assert CLASSES[labels[0]] == "frog"


@pytest.mark.parametrize("protocol", range(5))
@pytest.mark.parametrize("order", ["C", "F"])
def test_batches_saved_again_by_python_3_are_read(tmp_path, protocol, order):
    """With today's NumPy, in each protocol up to Python 3's default, and with either order of elements."""
    planes, labels = batch(0)
    (tmp_path / "test_batch").write_bytes(as_pickle(np.asarray(planes, order=order), labels, protocol))
    pixels, read_labels = read(tmp_path, "val")
    assert np.array_equal(pixels.transpose(0, 3, 1, 2).reshape(-1, 3072), planes)
    assert read_labels.tolist() == labels


def refusal(path, split="val") -> str:
    with pytest.raises(UserError) as error:
        read(path, split)
    return str(error.value)


def test_a_path_without_batches_is_refused_with_what_was_sought(tmp_path):
    """No path, no folder, a file, an empty folder: each with the way out."""
    assert "--data DIR" in refusal(None)
    assert f"{tmp_path / 'none'}: no such folder" in refusal(tmp_path / "none")
    packed = tmp_path / "cifar-10-python.tar.gz"
    packed.touch()
    assert f"{packed}: not a folder. Unpack" in refusal(packed)
    message = refusal(tmp_path)
    assert str(tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin") in message
    assert str(tmp_path / "cifar-10-batches-py" / "data_batch_1") in message
    assert "unpacked" in message


def test_a_missing_batch_is_named(archive):
    """The other four are no training set."""
    folder, suffix, _ = archive
    missing = folder / f"data_batch_3{suffix}"
    missing.unlink()
    assert f"{missing}: no such file" in refusal(folder, "train")


@pytest.mark.parametrize("kept", [0, 1, 3072, 3074, -1])
def test_a_truncated_batch_is_named(archive, kept):
    """Wherever it ends; an empty file too."""
    folder, suffix, _ = archive
    file = folder / f"data_batch_5{suffix}"
    file.write_bytes(file.read_bytes()[:kept])
    assert f"{file}: not a CIFAR-10 batch" in refusal(folder, "train")


def test_an_unknown_label_is_named_with_its_image(archive):
    """CIFAR-10 ends at 9: a file of CIFAR-100 is not taken for it."""
    folder, suffix, write = archive
    file = folder / f"data_batch_2{suffix}"
    file.write_bytes(write(batch(1)[0], [9, 10, 0]))
    assert f"{file}: image 1 has label 10" in refusal(folder, "train")


@pytest.mark.parametrize(
    ("data", "labels", "reason"),
    [
        (np.zeros((2, 3072)), [0, 1], "type 'f8'"),
        (np.zeros((2, 3072), np.int8), [0, 1], "type 'i1'"),
        (np.zeros((2, 1024), np.uint8), [0, 1], "2×1024"),
        (np.zeros(3072, np.uint8), [0], "two-dimensional"),
        (np.zeros((2, 3072), np.uint8), [0], "2 images and 1 labels"),
        (np.zeros((0, 3072), np.uint8), [], "0 images"),
        (np.zeros((2, 3072), np.uint8), [0, 256], "range"),
        (np.zeros((1, 3072), np.uint8), 1, "list b'labels'"),
        (b"bytes", [0], "array b'data'"),
    ],
)
def test_a_pickle_of_something_else_is_refused_with_the_reason(tmp_path, data, labels, reason):
    """Types, shapes and counts other than a batch's."""
    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": data, b"labels": labels}, protocol=4))
    message = refusal(tmp_path)
    assert str(tmp_path / "test_batch") in message
    assert reason in message


def test_an_oversized_batch_is_refused(tmp_path):
    """Twice the official size is no batch, whatever it holds."""
    with (tmp_path / "test_batch.bin").open("wb") as file:
        file.truncate(3073 * 22_000)  # whole records, but 64.5 MiB of them
    assert f"{tmp_path / 'test_batch.bin'}: 67606000 bytes are too many" in refusal(tmp_path)


class Call:
    """Pickles as a call, which reading it would make."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def attacks(trace: str) -> dict[str, object]:
    """What creates the file `trace` when its pickle is read."""
    planes, labels = batch(0)
    command = Call(os.system, f"touch {trace}")
    return {
        "a command": command,
        "a command deep in a batch": {b"data": planes, b"labels": labels, b"filenames": [("a", {"b": [command]})]},
        "a command for labels": {b"data": planes, b"labels": command},
        "an expression": Call(eval, f"open({trace!r}, 'w')"),
        "a file": Call(open, trace, "w"),
        "numpy.memmap": Call(np.memmap, trace, "u1", "w+", 0, (1,)),
        "numpy.save": Call(np.save, trace, planes),
    }


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("name", attacks(""))
def test_a_hostile_pickle_runs_nothing(tmp_path, name, protocol):
    """The side effect that Python's own reader lets happen does not happen in ours, which says what was asked for."""
    trace, file = tmp_path / "trace.npy", tmp_path / "test_batch"
    file.write_bytes(pickle.dumps(attacks(str(trace))[name], protocol))
    pickle.loads(file.read_bytes())
    trace.unlink()  # it was there
    assert f"{file}: not a CIFAR-10 batch (it names" in refusal(tmp_path)
    assert not trace.exists()


@pytest.mark.parametrize(
    "name",
    [
        "os system",
        "builtins eval",
        "__builtin__ eval",
        "builtins getattr",
        "numpy load",
        "numpy fromfile",
        "numpy ndarray.tofile",
        "numpy.core.multiarray fromfile",
        "numpy._core.multiarray _reconstruct.__self__",
        "_codecs decode",
        "oneway.data.published.cifar10 read",
    ],
)
def test_a_pickle_can_name_only_what_arrays_need(tmp_path, name):
    """Neither in the old way to name it nor in the new one, which follows dots."""
    module, attribute = name.encode().split()
    old = b"\x80\x02c" + module + b"\n" + attribute + b"\n."
    new = b"\x80\x04" + b"".join(b"\x8c" + bytes([len(part)]) + part for part in (module, attribute)) + b"\x93."
    for content in (old, new):
        (tmp_path / "test_batch").write_bytes(content)
        assert f"it names '{module.decode()}' '{attribute.decode()}'" in refusal(tmp_path)


QUARTER = 2**28
"""Bytes, of a GiB: far more than the files below have, little enough for a machine on which their test fails."""
MEBIBYTE = "x" * 2**20

BOMBS = {
    "an array": pickle.dumps(Call(np.ndarray, (QUARTER,), "u1"), protocol=2),
    "an array to be filled": pickle.dumps(Call(np.zeros(0).__reduce__()[0], np.ndarray, (QUARTER,), b"b"), protocol=2),
    "a note under a large number": b"\x80\x02Nr" + struct.pack("<I", QUARTER // 16) + b".",
    "a note under a large number in digits": b"Np%d\n." % (QUARTER // 16),
    "a frame": b"\x80\x04\x95" + struct.pack("<Q", QUARTER) + b"N.",
    "bytes": b"\x80\x04\x8e" + struct.pack("<Q", QUARTER) + b"x.",
    "a byte array": b"\x80\x05\x96" + struct.pack("<Q", QUARTER) + b"x.",
    "one text encoded many times": b"\x80\x02c_codecs\nencode\nq\x00X"
    + struct.pack("<I", len(MEBIBYTE))
    + MEBIBYTE.encode()
    + b"q\x01](" + b"h\x00h\x01N\x86R" * (QUARTER // len(MEBIBYTE)) + b"e.",
    "many sets": b"\x80\x04](" + b"\x8f" * (QUARTER // 216) + b"e.",
}  # fmt: skip


@pytest.mark.parametrize("content", BOMBS.values(), ids=BOMBS)
def test_a_small_pickle_takes_little_memory(tmp_path, content):
    """Each asks for a quarter of a GiB; refusing it costs a few times the size of the file."""
    (tmp_path / "test_batch").write_bytes(content)
    tracemalloc.start()
    try:
        refusal(tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2**20 + 8 * len(content)
