"""Files of weights that unpack to far more than they are, or whose list of entries is not where torch reads it."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import torch

from oneway.runs.weights import read
from reliability.attacks import Attack, file

MIB = 2**20


def attacks() -> Iterator[Attack]:
    """Archives as `torch.save` would write them, but for one thing; each must be refused."""
    for name, content in {
        "512 MiB of zeros, compressed": _bomb("archive/data/0"),
        "names of 512 MiB, compressed": _bomb("archive/data.pkl"),
        "a version of 512 MiB, compressed": _bomb("archive/version"),
        "a million entries": many_entries(10**6),
        "entries on one another": overlapping(1000),
        "a second list of entries in a comment": saved() + saved(),
        "a list of entries elsewhere": _located_elsewhere(saved()),
        "something before the first entry": b"PK\3\4" + saved(),
        "a list of entries beyond the end": _with_directory(saved(), 2**40),
        "no list of entries": saved()[:-98],
        "half an archive": saved()[: len(saved()) // 2],
        "an older file that announces 2⁴⁰ values": _older(),
    }.items():
        yield Attack(f"weights: {name}", file("w.pth", content), refused)


def refused(here: Path) -> object:
    """Reads them, and fails where that works."""
    read(str(here / "w.pth"))
    raise AssertionError("accepted")


def saved() -> bytes:
    """What `torch.save` makes of four values."""
    whole = BytesIO()
    torch.save({"a": torch.arange(4.0)}, whole)
    return whole.getvalue()


def _bomb(name: str) -> bytes:
    """The same with 512 MiB of zeros in one entry, which compress a thousandfold."""
    found, made = zipfile.ZipFile(BytesIO(saved())), BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as new:
        for entry in found.namelist():
            with new.open(entry, "w") as place:  # piece by piece: the test measures memory
                for piece in [bytes(MIB)] * 512 if entry == name else [found.read(entry)]:
                    place.write(piece)
    return made.getvalue()


def many_entries(count: int) -> bytes:
    """An archive that lists one entry many times, and nothing else."""
    entry = b"PK\1\2" + struct.pack("<6H3I5H2I", 20, 20, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    start = b"PK\3\4" + bytes(26) + b"a"
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count & 0xFFFF, count & 0xFFFF, count * len(entry), len(start), 0)
    return start + count * entry + end


def overlapping(count: int) -> bytes:
    """Many entries that are the same megabyte of the file."""
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, 0, MIB, MIB, 1, 0) + b"a"
    entries = b"".join(
        struct.pack("<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 0, 0, MIB, MIB, 6, 0, 0, 0, 0, 0, 0) + f"{n:06}".encode()
        for n in range(count)
    )
    start = len(local) + MIB
    return local + bytes(MIB) + entries + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(entries), start, 0)


def _located_elsewhere(content: bytes) -> bytes:
    """Its locator points to another end record than the one before it: libraries follow the one or the other."""
    place = len(content) - 42 + 8
    return content[:place] + struct.pack("<Q", 100) + content[place + 8 :]


def _with_directory(content: bytes, length: int) -> bytes:
    place = len(content) - 98 + 40
    return content[:place] + struct.pack("<Q", length) + content[place + 8 :]


def _older() -> bytes:
    whole = BytesIO()
    torch.save({"a": torch.arange(5.0)}, whole, _use_new_zipfile_serialization=False)
    few, many = b"cpuq\x06K\x05", b"cpuq\x06\x8a\x06" + (2**40).to_bytes(6, "little")
    assert few in whole.getvalue()
    return whole.getvalue().replace(few, many)
