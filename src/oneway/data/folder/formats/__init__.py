"""Annotations in the formats of other tools: one file for each, behind one interface, in one table."""

from oneway.data.folder.formats.interface import Annotations, AnnotationSource, begins_with
from oneway.data.folder.formats.table import FINDERS, LAYOUTS, READERS, TWO_FILES
