"""Train real-time segmentation models from a few labelled and many unlabelled images."""

__version__ = "0.1.0"
