"""Images that belong together, such as the frames of a video: all of a group are held out to validate, or none.

A group is a `folder`, or the part of a name that a pattern marks: of `(*)_frame*`, what stands before `_frame`. An
asterisk stands for any characters; a name that the pattern does not fit is a group of its own.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

FOLDER = "folder"
MOST_ASTERISKS = 3  # more of them could take very long to compare


def parse_pattern(text: str) -> str:
    """Return `folder` or a pattern with one part in parentheses; else raises a ValueError."""
    if text != FOLDER and (not re.fullmatch(r"[^()]*\([^()]+\)[^()]*", text) or text.count("*") > MOST_ASTERISKS):
        raise ValueError(
            f"write folder, or a pattern of names with the group in parentheses, such as '(*)_frame*', with up to "
            f"{MOST_ASTERISKS} asterisks; {text!r:.80} is neither"
        )
    return text


def group_of(name: str, groups: str) -> str:
    """The group of an item, by its name."""
    path = PurePosixPath(name)
    if groups == FOLDER:
        return path.parent.as_posix()
    special = {"*": ".*?", "(": "(", ")": ")"}
    pattern = "".join(special.get(character, re.escape(character)) for character in groups)
    found = re.fullmatch(pattern, path.stem)
    return found[1] if found else name
