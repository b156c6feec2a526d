"""The page: self-contained, well-formed, the same for the same runs, and with everything that was promised."""

from __future__ import annotations

import json
import re
import shutil
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from explore import chromium
from files import change_json
from oneway.common.errors import UserError
from oneway.data.streets import CLASSES
from oneway.runs import lock
from oneway.tools.report import tables, write_report
from oneway.tools.report.gallery import SCENES
from oneway.tools.report.next_steps import next_steps
from oneway.tools.report.page import _file_name
from oneway.tools.report.reading import read_runs
from small_runs import METHODS


class Outline(HTMLParser):
    """Elements in order of their start, and whether every one that must be closed is, in order."""

    VOID = frozenset({"meta", "img", "br", "link"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else, line {self.getpos()[0]}"

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def text_of(page: str) -> str:
    without_style = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", without_style)).split())


def test_page_needs_nothing_but_itself(page: str) -> None:
    """No address, no script, no style sheet from elsewhere; every picture and reference is within the page."""
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    outline = Outline(page)
    assert not outline.all("script")
    assert not outline.all("link")
    assert all((image["src"] or "").startswith("data:image/png;base64,") for image in outline.all("img"))
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert len(ids) == len(set(ids)), "identifiers of different plots clash"
    references = re.findall(r'(?:url\(#|href="#)([^")]+)', page)
    assert references
    assert set(references) <= set(ids)


def test_tags_are_balanced(page: str) -> None:
    """Every element that is opened is closed, in order."""
    assert Outline(page).open == []


def test_headline_has_the_values_of_both_summaries(page: str, folders: list[Path]) -> None:
    """In the title, so that it can be read off a tab; and how many images had no labels."""
    before, after = (json.loads((folder / "summary.json").read_text(encoding="utf-8"))["value"] for folder in folders)
    title = re.search(r"<title>(.*?)</title>", page)
    assert title is not None
    assert title.group(1).replace("\N{NO-BREAK SPACE}", " ") == f"4 labels: {before:.1f} → {after:.1f} % mIoU"
    assert "12 unlabelled images" in text_of(page)


def test_every_class_and_method_is_named(page: str) -> None:
    """In text, and not in pictures alone."""
    text = text_of(page)
    for name in (*CLASSES, *METHODS):
        assert re.search(rf"\b{name}\b", text), name


def test_every_picture_and_plot_is_there(page: str) -> None:
    """Per scene, clean and perturbed: input, ground truth, a prediction per run. Five curves, bars, two heat maps."""
    outline = Outline(page)
    assert len(outline.all("img")) == SCENES * 2 * (2 + len(METHODS))
    assert all(image["alt"] for image in outline.all("img"))
    assert len(outline.all("svg")) == 2 + 3 + 1 + len(METHODS)


def test_configuration_and_its_only_difference_are_shown(page: str) -> None:
    """The runs differ in their method alone, and the page says so."""
    table = page[page.index("What differs between") : page.index("<details>")]
    assert re.findall(r"<th><code>(.*?)</code></th>", table) == ["method"]
    assert page.count("batch_unlabelled: 2") == len(METHODS)


def test_same_runs_give_the_same_bytes(page: str, folders: list[Path], tmp_path: Path) -> None:
    """Nothing depends on the time or on chance, so that two pages can be compared."""
    again = write_report(folders, tmp_path / "again.html")
    assert again.read_text(encoding="utf-8") == page


@pytest.fixture(scope="module")
def page_of_one(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The semi-supervised run alone."""
    run = shutil.copytree(folders[1], tmp_path_factory.mktemp("one") / "run")
    written = write_report([run], None)
    assert written == run / "report.html"
    return written


def test_one_run_gets_a_page_in_its_folder(page_of_one: Path) -> None:
    """Without `out`, the page stands beside the run, which has no second column and no difference."""
    page = page_of_one.read_text(encoding="utf-8")
    assert len(Outline(page).all("img")) == SCENES * 2 * 3
    assert "What differs" not in page


@pytest.mark.usefixtures("words_alone")
def test_a_comparison_leaves_the_pages_of_its_runs_alone(copies: list[Path]) -> None:
    """Without `out`, it stands beside the last run, under the names of all; many names are not spelt out."""
    own = copies[1] / "report.html"
    own.write_text("its own", encoding="utf-8")
    assert write_report(copies, None) == copies[1] / "report-supervised-simple-phtps.html"
    assert own.read_text(encoding="utf-8") == "its own"
    assert _file_name([Path(f"runs/streets-simple-phtps-seed{seed}") for seed in range(9)]) == "report-9-runs.html"


@pytest.mark.usefixtures("words_alone")
def test_few_validation_images_are_warned_of(copies: list[Path]) -> None:
    """At the top of the page, and not in the small print."""
    change_json(copies[0] / "summary.json", validation_samples=2)
    page = write_report(copies[:1], None).read_text(encoding="utf-8")
    assert '<p class="caution">Every number here rests on 2 validation images, too few' in page
    assert page.index('class="caution"') < page.index('class="facts"')


@pytest.mark.usefixtures("words_alone")
def test_what_was_said_about_the_images_is_on_the_page(copies: list[Path]) -> None:
    """Each line once, as text: whoever gets the page has not seen the training."""
    assert "said about the images" not in write_report(copies, None).read_text(encoding="utf-8")
    lines = ["Names that both train and validate: write `groups: (*)_s*`", "5 of 24 <held> out"]
    for copy in copies:
        change_json(copy / "summary.json", about_images=lines)
    page = write_report(copies, None).read_text(encoding="utf-8")
    assert page.count("<li>Names that both train and validate: write <code>") == 1
    assert page.count("<li>5 of 24 &lt;held&gt; out</li>") == 1


def test_false_alarms_of_a_rare_class_are_on_the_page(copies: list[Path], page: str) -> None:
    """By hand: all 10 pixels of the second class are found, with 30 of the first, and none is taken for the third."""
    matrix = np.zeros((len(CLASSES), len(CLASSES)), dtype=int)
    matrix[0, :2], matrix[1, 1], matrix[2, 0] = (99_970, 30), 10, 2
    change_json(copies[0] / "summary.json", confusion=matrix.tolist(), absent=list(CLASSES[3:]))
    assert tables.precision(read_runs(copies[:1])) == {CLASSES[0]: ["100.0 %"], CLASSES[1]: ["25.0 %"]}
    table = page[page.index("Right, of what is taken for it (precision)") : page.index("<h2>The runs</h2>")]
    assert re.findall(r"<tr><th>(.*?)</th><td", table) == list(tables.precision(read_runs(copies[1:])))


def test_a_commit_with_uncommitted_changes_is_named_as_such(copies: list[Path]) -> None:
    for uncommitted, shown in ((True, "abc123, with uncommitted changes"), (False, "abc123"), (None, "abc123")):
        change_json(copies[0] / "environment.json", commit="abc123", uncommitted=uncommitted)
        assert tables.origin(read_runs(copies[:1]))["commit"] == [shown]


def test_the_metric_is_the_second_column(page: str) -> None:
    """Where a phone shows it without scrolling."""
    table = page[page.index("<h2>The runs</h2>") :]
    assert re.findall(r"<th(?: class=\"number\")?>(.*?)</th>", table)[:2] == ["Method", "mIoU, %"]


def test_recorded_command_is_text(page: str, folders: list[Path]) -> None:
    """An angle bracket does not become markup."""
    command = json.loads((folders[0] / "environment.json").read_text(encoding="utf-8"))["command"]
    assert "<" in command
    assert escape(command) in re.sub("</?span>", "", page)


@pytest.mark.skipif(chromium.EXECUTABLE is None, reason="Chromium is not installed")
def test_commands_are_set_as_such_and_lines_end_between_their_words(page_of_one: Path) -> None:
    """A browser would end a line behind a hyphen: what is then copied by eye is another flag."""
    with chromium.browser() as open_page:
        page = open_page(page_of_one.as_uri())
        page.wait("document.readyState === 'complete' && document.querySelector('footer') !== null")
        for width in (1000, 480):
            page.resize(width, 900)
            words = page.evaluate(
                "[...document.querySelectorAll('header span')].filter(span => span.textContent.startsWith('--'))"
                ".map(span => { const range = document.createRange(); range.selectNodeContents(span);"
                " return [span.textContent, range.getClientRects().length]; })"
            )
            assert {"--compare", "--method", "--out"} <= {word for word, _ in words}
            assert {lines for _, lines in words} == {1}
            assert page.evaluate("document.documentElement.scrollWidth") == width
        shown = page.evaluate("document.querySelector('header').innerText")
    assert "nothing was compared. oneway train --compare trains both" in shown
    assert "`" not in shown


def test_next_steps_name_the_runs(page: str, folders: list[Path]) -> None:
    """The commands can be copied."""
    assert f"oneway explore {folders[0]} {folders[1]}" in text_of(page)
    assert f"oneway suggest {folders[0]}" in text_of(page)  # the better of the two


def test_the_best_run_is_the_one_to_use(copies: list[Path]) -> None:
    """Not the last, where that is worse; and a model that classifies is used as well, though not explored."""
    for folder, value in zip(copies, (60.0, 50.0), strict=True):
        change_json(folder / "summary.json", value=value)
    explored, suggested, *commands = (step.command for step in next_steps(read_runs(copies), segmentation=True))
    assert explored == f"oneway explore {copies[0]} {copies[1]}"
    assert suggested == f"oneway suggest {copies[0]}"
    assert commands == [
        f"oneway predict {copies[0]} photos --out predictions",
        f"oneway export {copies[0]} --to model.onnx",
    ]
    assert commands == [step.command for step in next_steps(read_runs(copies), segmentation=False)]


def test_no_run_is_refused() -> None:
    """There is nothing to write about."""
    with pytest.raises(UserError, match="No run folder given"):
        write_report([], None)


def test_run_that_has_not_ended_is_refused_by_name(copies: list[Path]) -> None:
    """The message has the folder and the way out."""
    (copies[1] / "summary.json").unlink()
    with pytest.raises(UserError, match=rf"{re.escape(str(copies[1]))}: this run has not ended.*--resume"):
        write_report(copies, None)
    with lock.hold(copies[1]), pytest.raises(UserError, match=r"it is being trained.*oneway watch"):
        write_report(copies, None)


def test_runs_with_different_classes_are_refused(copies: list[Path]) -> None:
    """Their scores cannot be compared; what each has alone is shown."""
    change_json(copies[1] / "summary.json", per_class={"sky": 50.0, "sea": 40.0}, absent=[], confusion=[[1, 0], [0, 1]])
    with pytest.raises(
        UserError, match=r"cannot be compared.*classes are building, .* only in .*; sea only in .*\. Write a report"
    ):
        write_report(copies, None)


def test_runs_on_different_images_are_refused(copies: list[Path]) -> None:
    """The setting that makes them different is shown, old and new."""
    file = copies[1] / "config.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("- 32\n  - 64\n  images", "- 48\n  - 64\n  images"), encoding="utf-8")
    change_json(copies[1] / "split.json", validation="0123456789abcdef")
    with pytest.raises(UserError, match=r"cannot be compared.*data\.size: \[32, 64\] → \[48, 64\]"):
        write_report(copies, None)


def test_page_that_cannot_be_written_is_a_user_error(folders: list[Path], tmp_path: Path) -> None:
    """A file is where its folder should be; the flag that names another place is named."""
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written.*--out"):
        write_report(folders[:1], tmp_path / "file" / "report.html")


@pytest.mark.usefixtures("words_alone")
def test_validation_images_are_listed_but_not_endlessly(copies: list[Path], page: str, monkeypatch) -> None:
    """Folded away, those that the last run finds hardest first; of very many, the first."""
    names = json.loads((copies[0] / "split.json").read_text())["validating"]
    title = r"<summary>Images that validate \(100\), those with the lowest mIoU first</summary>"
    folded = re.search(rf"{title}(.*?)</details>", page, re.DOTALL)
    assert folded is not None
    rows = re.findall(r"<tr><th>(.*?)</th><td.*?>(.*?)</td><td.*?>(.*?)</td></tr>", folded[1])
    assert sorted(name for name, *_ in rows) == sorted(names)
    of_last = [float(value) for *_, value in rows]
    assert of_last == sorted(of_last)
    assert of_last[0] < of_last[-1]
    monkeypatch.setattr("oneway.tools.report.page.MOST_LISTED", 3)
    text = text_of(write_report(copies[:1], None).read_text(encoding="utf-8"))
    assert "… and more, in split.json" in text
    (copies[0] / "validation.jsonl").unlink()  # as runs of earlier versions
    text = text_of(write_report(copies[:1], None).read_text(encoding="utf-8"))
    assert f"Images that validate (100) {' '.join(names[:3])} … and more, in split.json" in text
