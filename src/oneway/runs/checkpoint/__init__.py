"""The state of a run at an iteration, on disk: every tensor exact, every write all or nothing, every byte verified.

A checkpoint is two files named by its iteration: the tensors, and a manifest with the SHA-256 of that file and of the
manifest itself. The manifest is written last: where there is one, the checkpoint is complete. Random generators need no
place in it: an iteration's draws are a function of its number.
"""

from oneway.runs.checkpoint.files import (
    FORMAT,
    Damaged,
    list_complete,
    load,
    prune,
    read_notes,
    remove_incomplete,
    require_room,
    restore_newest,
    seal_manifest,
    write,
)
