"""`streets`: procedural street scenes with exact labels, the data that come with the package."""

from oneway.data.streets.scene import CLASSES, COLOURS, render
