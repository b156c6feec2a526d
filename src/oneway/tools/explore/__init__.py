"""`oneway explore`: a local page that shows what models make of an image that is perturbed by hand."""

from oneway.tools.explore.command import explore, prepare, require_segmentation
