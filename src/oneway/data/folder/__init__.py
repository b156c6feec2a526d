"""A user's own folder as a data set: its files are found, its classes inferred, and what was decided is said.

What `dataset.yaml` says (`description.py`) is never guessed. The rest is decided in this order, and the file that is
named states the order of its own rules:

1. which folders hold the images that train, validate or test, and those without labels: `layout.py`;
2. which mask, or which annotations, belong to each image: `parts.py` with `pairing.py` and `formats/`;
3. if images are called otherwise than is usual, which of the folders beside the masks is theirs: `partners.py`;
4. which classes there are: those of annotations (`labels.py`), of a table (`class_table.py`), or else by the values of
   all masks (`infer.py`); and how they are called: `described.py`;
5. which of the labelled images validate, where nothing says so: `hold_out.py`;
6. how much smaller large images are read: `reduction.py`.

Then it is said why there is no data set (`refusals.py`), or what was decided (`remarks.py`), what may well be wrong
(`doubts.py`), and what could be read as well (`other_labels.py`, `unused.py`, `unreadable_labels.py`). `listing.py`
puts all of it together.
"""

from oneway.data.folder.described import describe
from oneway.data.folder.description import FILE
from oneway.data.folder.files import Found, find
from oneway.data.folder.listing import list_described, list_folder
