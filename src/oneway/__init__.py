"""Train real-time segmentation models from a few labelled and many unlabelled images."""

from oneway.common.errors import UserError
from oneway.tools.python import configure, fit, load

__version__ = "0.1.0"
__all__ = ["UserError", "__version__", "configure", "fit", "load"]
