"""What figures are made with, from Matplotlib; it takes half a second to import."""

from oneway.common.safe_matplotlib import matplotlib, style  # isort: skip (it comes first)
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath

__all__ = [
    "Axes",
    "Figure",
    "FigureCanvasBase",
    "LinearSegmentedColormap",
    "Rectangle",
    "TextPath",
    "colormaps",
    "matplotlib",
    "style",
]
