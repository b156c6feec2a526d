"""What a browser shows of `oneway explore`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from explore import chromium
from explore.serving import by_hand, png
from oneway.data.streets import CLASSES, render
from oneway.tools.explore.server import PageContent

needs_browser = pytest.mark.skipif(chromium.EXECUTABLE is None, reason="Chromium is not installed")
READY = "!document.body.classList.contains('waiting') && document.documentElement.dataset.answered"


@pytest.fixture(scope="module")
def opened() -> Iterator[Callable[[str], chromium.Page]]:
    with chromium.browser() as open_page:
        yield open_page


def numbers(page: chromium.Page) -> tuple[dict[str, Any], list[float]]:
    """The parameters on the page when it is at rest, and the mean KL it shows for each run."""
    asked = json.loads(page.wait(READY))
    shown = page.evaluate("[...document.querySelectorAll('.kl')].map(o => [Number(o.dataset.value), Number(o.value)])")
    for exact, printed in shown:
        assert printed == pytest.approx(exact, abs=6e-4)
    return asked, [exact for exact, _ in shown]


def assert_as_in_python(page: chromium.Page, two_runs: list[Path], page_content: PageContent) -> list[float]:
    asked, shown = numbers(page)
    picture = page_content.store.find(asked["image"])
    assert picture is not None
    for folder, value in zip(two_runs, shown, strict=True):
        assert value == pytest.approx(by_hand(folder, picture.x, asked), abs=1e-3)
    return shown


@needs_browser
def test_what_a_browser_shows_is_what_python_computes(opened, address, page_content, two_runs, tmp_path):
    """On opening, and after slider, mouse, keys, random draw and upload, columns have Python's numbers; reset is 0."""
    page = opened(address)
    page.resize(1280, 800)
    assert min(assert_as_in_python(page, two_runs, page_content)) > 0
    shown = page_content.store.find("sample-1").name
    assert page.evaluate("document.querySelector('#which').textContent") == f"Validation image · {shown}"
    page.evaluate("document.querySelector('#reset').click()")
    page.wait("JSON.parse(document.documentElement.dataset.answered).contrast == 1")
    assert assert_as_in_python(page, two_runs, page_content) == pytest.approx([0, 0], abs=1e-4)

    set_slider = (
        "(s => { s.value = -0.2; s.dispatchEvent(new Event('input')) })(document.querySelector('[name=brightness]'))"
    )
    page.evaluate(set_slider)
    page.wait("document.documentElement.dataset.answered.includes('-0.2')")
    after_slider = assert_as_in_python(page, two_runs, page_content)
    assert min(after_slider) > 0

    before = page.evaluate("document.querySelector('[data-plane=kl] canvas').toDataURL()")
    page.drag(".handle", (40, 25))
    page.wait("!JSON.parse(document.documentElement.dataset.answered).displacements[0].includes(0)")
    after_drag = assert_as_in_python(page, two_runs, page_content)
    assert after_drag != after_slider
    assert page.evaluate("document.querySelector('[data-plane=kl] canvas').toDataURL()") != before
    (x, y), height = (
        numbers(page)[0]["displacements"][0],
        page.evaluate("document.querySelector('#photo').clientHeight"),
    )
    assert (x * height, y * height) == pytest.approx((40, 25), abs=0.5)

    page.evaluate("document.querySelectorAll('.handle')[3].focus()")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp"):
        page.press(key)
    page.wait("JSON.parse(document.documentElement.dataset.answered).displacements[3].join() == '0.02,-0.01'")
    assert assert_as_in_python(page, two_runs, page_content) != after_drag

    page.evaluate("document.querySelector('#random').click()")
    page.wait("JSON.parse(document.documentElement.dataset.answered).contrast != 1")
    assert_as_in_python(page, two_runs, page_content)

    file = tmp_path / "own.png"
    file.write_bytes(png(render(1, 9, 48, 96)[0]))
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#file")["nodeId"]
    page.call("DOM.setFileInputFiles", files=[str(file)], nodeId=node)
    page.wait("document.documentElement.dataset.answered.includes('upload-')")
    assert_as_in_python(page, two_runs, page_content)
    assert page.evaluate("document.querySelector('#strip :checked + img').alt") == "own.png"

    page.evaluate("document.querySelector('#reset').click()")
    page.wait("JSON.parse(document.documentElement.dataset.answered).contrast == 1")
    assert numbers(page)[1] == pytest.approx([0, 0], abs=1e-4)
    assert page.evaluate("document.querySelectorAll('article').length") == len(two_runs)
    assert_nothing_wrong(page, address)


STRICT_BROWSER = """
(() => {
  const real = history.replaceState.bind(history);
  window.addressChanges = 0;
  history.replaceState = (...values) => {
    if (++window.addressChanges > 100) throw new DOMException("The operation is insecure.", "SecurityError");
    real(...values);
  };
})()
"""
"""Some browsers throw when a page changes its address for the 101st time in 30 seconds."""


@needs_browser
def test_a_long_drag_keeps_the_page_alive_and_its_address_right(opened, address):
    """The address changes twice a second at most, and has the last value in the end; reloading keeps that."""
    page = opened(address + "/#b=0")
    page.resize(1280, 800)
    numbers(page)
    page.evaluate(STRICT_BROWSER)
    began = time.monotonic()
    page.drag(".handle", (40, 25), moves=150)
    page.drag(".handle", (-10, 15), moves=5)
    height = page.evaluate("document.querySelector('#photo').clientHeight")
    moved = "JSON.parse(document.documentElement.dataset.answered).displacements[0]"
    page.wait(f"Math.abs({moved}[0] * {height} - 30) < 0.5 && Math.abs({moved}[1] * {height} - 40) < 0.5")
    asked, _ = numbers(page)
    points = " ".join(f"{part:g}" for pair in asked["displacements"] for part in pair)
    page.wait(f"new URLSearchParams(location.hash.slice(1)).get('points') == {points!r}")
    assert page.evaluate("window.addressChanges") <= 2 * (time.monotonic() - began) + 1
    page.call("Page.reload")
    page.wait("window.addressChanges === undefined")
    assert numbers(page)[0] == asked
    assert_nothing_wrong(page, address)


@needs_browser
def test_pointing_at_a_class_shows_it_alone(opened, address):
    """Others fade while it is pointed at, and come back."""
    page = opened(address)
    page.resize(1280, 800)
    numbers(page)
    picture = "document.querySelector('[data-plane=target] canvas').toDataURL()"
    before = page.evaluate(picture)
    page.mouse("mouseMoved", *page.centre("#classes li:nth-child(2) button"))
    page.wait(f"{picture} != {before!r}")
    page.mouse("mouseMoved", 1, 1)
    page.wait(f"{picture} == {before!r}")
    page.mouse("mouseMoved", *page.centre("[data-plane=prediction]"))
    assert page.wait("document.querySelector('.pointed .swatch').parentElement.textContent") in CLASSES


@needs_browser
def test_the_page_fits_a_phone_and_can_be_touched(opened, address):
    """Nothing sticks out of a narrow window, targets are large enough, and a finger moves a point."""
    page = opened(address + "/#b=0.1")
    page.resize(390, 844, phone=True)
    numbers(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    sizes = page.evaluate(
        "[...document.querySelectorAll('button, .channels label')].map(b => b.getBoundingClientRect().height)"
    )
    assert min(sizes) >= 32
    x, y = page.centre(".handle")
    page.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
    page.call("Input.dispatchTouchEvent", type="touchMove", touchPoints=[{"x": x + 20, "y": y + 10}])
    page.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    page.wait("!JSON.parse(document.documentElement.dataset.answered).displacements[0].includes(0)")
    asked, _ = numbers(page)
    assert asked["brightness"] == 0.1  # the address told it
    assert page.evaluate("scrollY") == 0
    assert_nothing_wrong(page, address)


def assert_nothing_wrong(page: chromium.Page, address: str) -> None:
    """No script failed, and nothing was asked of anybody else."""
    page.evaluate("0")
    assert not [event for event in page.events if event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
    asked = [
        event["params"]["request"]["url"] for event in page.events if event["method"] == "Network.requestWillBeSent"
    ]
    assert asked
    assert all(url.startswith((address, "data:", "about:", "blob:")) for url in asked)
