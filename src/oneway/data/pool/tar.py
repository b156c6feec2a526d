"""Where the members of a tar file lie: their headers are read, and nothing between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from oneway.common.errors import UserError

BLOCK = 512
MOST_NAME = 2**16
"""Bytes of a header that has a long name in it; where there are more, it is no name."""

LINKS, FOLDER, LONG_NAME, LONG_LINK, EXTENDED, SHARED = b"12", b"5", b"L", b"K", b"x", b"g"
EMPTY = bytes(BLOCK)

Read = Callable[[int, int], bytes]
"""Bytes of a file: from where, and how many; fewer where it ends."""


class Member(NamedTuple):
    """A file in a tar file."""

    name: str
    header: int  # where its first header begins
    offset: int  # where its content begins
    size: int


class Damaged(UserError):
    """A tar file that is none, or not all of one."""


def members(read: Read, size: int, label: object) -> Iterator[Member]:
    """The regular files in a tar file of so many bytes, in their order; messages call it by its label.

    Raises:
        Damaged: It ends early, or has something else than a header where one should be.
    """
    place, name, first = 0, "", 0
    while True:
        block = read(place, BLOCK)
        if block == EMPTY:
            return
        if len(block) < BLOCK:
            raise Damaged(f"{label}: cut short; it ends after {size} bytes, without the end of a tar file.")
        content, kind = _number(block[124:136]), block[156:157]
        if _number(block[148:156]) != sum(block[:148]) + 8 * 32 + sum(block[156:]) or content is None:
            compressed = ", perhaps a compressed one" if not place else ""
            raise Damaged(
                f"{label}: no tar file{compressed}: there is no header at byte {place}. Pack it without gzip."
            )
        offset = place + BLOCK
        following = offset + -(-content // BLOCK) * BLOCK
        if offset + content > size:
            raise Damaged(
                f"{label}: cut short; {_name(block)} would end at byte {offset + content}, and it has {size} bytes."
            )
        if kind in (LONG_NAME, EXTENDED):
            if content > MOST_NAME:
                raise Damaged(f"{label}: the name at byte {place} has {content} bytes. Pack it again.")
            text = read(offset, content)
            name = _text(text.rstrip(b"\0")) if kind == LONG_NAME else _extended(text) or name
        elif kind not in (LONG_LINK, SHARED):
            if kind not in LINKS and kind != FOLDER:
                yield Member(name or _name(block), first, offset, content)
            name, first = "", following
        place = following


def _number(field: bytes) -> int | None:
    """Octal digits, or where the first bit is set, a binary number."""
    if field[0] & 0x80:
        return int.from_bytes(bytes((field[0] & 0x7F, *field[1:])))
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return None


def _name(block: bytes) -> str:
    name, prefix = _text(block[:100]), _text(block[345:500]) if block[257:263] == b"ustar\0" else ""
    return f"{prefix}/{name}" if prefix else name


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("utf-8", "surrogateescape")


def _extended(text: bytes) -> str:
    """The path among lines of `LENGTH KEY=VALUE`, where there is one."""
    while text:
        length, _, _ = text.partition(b" ")
        if not length.isdigit() or not 0 < int(length) <= len(text):
            return ""
        key, _, value = text[len(length) + 1 : int(length)].rstrip(b"\n").partition(b"=")
        if key == b"path":
            return _text(value)
        text = text[int(length) :]
    return ""
