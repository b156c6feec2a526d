"""Pillow's settings, which are the whole process's."""

from __future__ import annotations

import threading
import warnings

from PIL import Image


class PillowSettings:
    """Within the block, Pillow opens images up to our limit, and does not warn; afterwards all is as it was.

    Its own limit would refuse what we allow, and its warnings about damaged files do not name them; our errors do. Both
    are settings of the whole process: of threads that decode at the same time, the first changes and the last restores.
    """

    def __init__(self, most_pixels: int) -> None:
        self.most_pixels, self.lock, self.users = most_pixels, threading.Lock(), 0

    def __enter__(self) -> None:
        with self.lock:
            self.users += 1
            if self.users == 1:
                self.limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, self.most_pixels
                self.filters = warnings.catch_warnings()
                self.filters.__enter__()
                warnings.filterwarnings("ignore", module=r"PIL\.")

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                Image.MAX_IMAGE_PIXELS = self.limit
                self.filters.__exit__(None, None, None)
