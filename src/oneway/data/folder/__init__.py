"""A user's own folder as a data set: its files are found, its classes inferred, and what was decided is said.

A `dataset.yaml` in the folder has the last word. Without one, files are found by the names of subfolders, and classes
by looking at the masks.
"""

from oneway.data.folder.description import FILE
from oneway.data.folder.files import Found, find
from oneway.data.folder.listing import describe, list_described, list_folder
