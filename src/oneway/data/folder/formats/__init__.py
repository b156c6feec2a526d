"""Annotations in the formats of other tools: one file for each, behind one interface, in one table."""

from oneway.data.folder.formats.interface import Annotations, Reader, Source
from oneway.data.folder.formats.table import LAYOUTS, READERS, TWO_FILES
