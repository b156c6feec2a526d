"""Takes the README's pictures: python tests/picture.py REPORT.html, or RUN RUN to explore, and the PNG to write."""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

from explore import chromium
from explore.serving import serving
from oneway.tools.explore import prepare
from oneway.tools.explore.limits import Limits
from small_runs import QUIET

REPORT, EXPLORE = (1000, 950), (1280, 1010)  # sizes of the window
SHOWN = "#image=sample-4&b=0.12&s=1.4&h=-0.06&c=0.9&channels=RBG&points=0.08 0.05 -0.06 0.02 0.04 -0.07 -0.05 0.05"
READY = "document.readyState === 'complete' && [...document.images].every(image => image.complete)"
ANSWERED = "document.documentElement.dataset.answered && !document.body.classList.contains('waiting')"


def photograph(address: str, size: tuple[int, int], ready: str, out: Path) -> None:
    """The top of a page in a window of this size, in colours few enough for a small file."""
    with chromium.browser() as open_page:
        window = open_page(address)
        window.theme("light")
        window.resize(*size)
        window.wait(ready)
        window.screenshot(out)
    Image.open(out).convert("RGB").quantize(256, kmeans=3, dither=Image.Dither.NONE).save(out, optimize=True)


if __name__ == "__main__":
    *pages, out = map(Path, sys.argv[1:])
    if pages[0].is_dir():
        with serving(prepare(pages, QUIET), Limits()) as address:
            photograph(f"{address}/{SHOWN}", EXPLORE, f"{READY} && {ANSWERED}", out)
    else:
        photograph(pages[0].resolve().as_uri(), REPORT, READY, out)
