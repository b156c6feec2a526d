"""Data sets: files become samples, by name of the data set."""

from oneway.data.dataset import Dataset, Known, Listing, Samples
from oneway.data.load import QUIET, READERS, list_files, load
