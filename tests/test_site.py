"""The documentation site: it builds without a warning, is complete, and needs nothing from other hosts."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from oneway.config import Config

ROOT = Path(__file__).parent.parent


class Document(HTMLParser):
    """What a page links to, loads and can be linked at; and its text."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.anchors: set[str] = set()
        self.text = ""
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := found.get(key))}
        if tag == "a" and (target := found.get("href")):
            self.links.add(target)
        for key in ("src", "srcset", "href"):
            if tag in ("script", "link", "img", "source", "iframe", "video") and (target := found.get(key)):
                self.loaded.add(target)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict[Path, Document]:
    """Every page of the site, as built."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=variables, timeout=300)
    assert not done.returncode, done.stderr
    assert "WARNING" not in done.stderr + done.stdout
    return {file: Document(file) for file in folder.rglob("*.html") if file.name != "404.html"}


def page(site: dict[Path, Document], name: str) -> Document:
    return next(document for file, document in site.items() if str(file).endswith(f"/{name}.html"))


def test_every_document_has_a_page_that_can_be_found(site):
    """A new document needs no line anywhere: it is on the site, and in the list beside the pages."""
    documents = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    expected = {str(path).replace("README", "index") for path in documents}
    assert expected <= page(site, "own-data").links | {"own-data.html"}


def test_links_lead_somewhere(site):
    """To a file of the site, and to an anchor that is there."""
    broken = []
    for file, document in site.items():
        for link in document.links | document.loaded:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            there = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not there.is_file():
                broken.append((file.name, link))
            elif parts.fragment and there.suffix == ".html" and there.name != "404.html":
                anchors = site[there].anchors
                broken += [(file.name, link)] if unquote(parts.fragment) not in anchors else []
    assert not broken


def test_pages_load_nothing_from_other_hosts(site):
    """Fonts, scripts and pictures come with the site."""
    foreign = {
        link for document in site.values() for link in document.loaded if urlsplit(link).scheme in ("http", "https")
    }
    assert not foreign
    assert not {link for document in site.values() for link in document.loaded if link.startswith("//")}


def test_the_reference_has_every_setting_and_function(site):
    """Settings can be linked to by their names; functions come with their parameters."""
    settings = page(site, "reference/settings")
    names = {name.replace("_", "-") for name in Config().flat()}
    assert names <= settings.anchors
    assert "Number of optimiser steps" in settings.text
    functions = page(site, "reference/python")
    assert {"oneway.configure", "oneway.fit", "oneway.load"} <= functions.anchors
    assert "Continue a run in that folder" in functions.text
    assert "oneway.ops.moved_kl" in page(site, "reference/science").anchors
    assert "--dry-run" in page(site, "reference/commands").text
