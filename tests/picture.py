"""Takes the picture of a report for the README: python tests/picture.py REPORT.html docs/images/report.png."""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from explore import chromium

SIZE = (1000, 950)


def photograph(page: Path, out: Path) -> None:
    """The top of a page in a window of this size, in colours few enough for a small file."""
    with chromium.browser() as open_page:
        window = open_page(page.resolve().as_uri())
        window.theme("light")
        window.resize(*SIZE)
        window.wait("document.readyState === 'complete' && [...document.images].every(image => image.complete)")
        window.screenshot(out)
    Image.open(out).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(out, optimize=True)


if __name__ == "__main__":
    photograph(*map(Path, sys.argv[1:]))
