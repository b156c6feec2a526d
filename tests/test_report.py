"""The report: one self-contained page that says what the run folders say."""

import functools
import io
import json
import re
import shutil
from base64 import b64decode
from collections.abc import Iterator
from html import escape, unescape
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor, nn

from oneway import data
from oneway.config import Config, Data, Jitter, Model, Train
from oneway.data import IGNORE, Samples
from oneway.data.streets import CLASSES, render
from oneway.errors import UserError
from oneway.evaluate import evaluate
from oneway.methods import MethodName
from oneway.report import pictures, plots, words, write_report
from oneway.report.facts import RunFacts, Series, read_runs
from oneway.report.gallery import SCENES, evenly_spaced
from oneway.report.next_steps import next_steps
from oneway.report.robustness import STRENGTHS, Robustness, robustness
from oneway.run import TrainedModel, load_model
from oneway.train import train

METHODS: tuple[MethodName, MethodName] = ("supervised", "simple-phtps")


ODD_COMMAND = "oneway train streets --out <img>"


def change(file: Path, **values: object) -> None:
    """Puts other values into a JSON file of a run folder."""
    file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | values), encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def rendered_once() -> Iterator[None]:
    """Most of a small report's time is rendering scenes, always the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data, "load", functools.cache(data.load))
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two finished runs: as small as can be, but trained like any other."""
    out = tmp_path_factory.mktemp("runs")
    for method in METHODS:
        config = Config(
            recipe="streets",
            method=method,
            labels="4",
            data=Data(size=(32, 64), images=24),
            jitter=Jitter(crop=(32, 64)),
            model=Model(width=0.125),
            train=Train(iterations=4, batch_labelled=2, batch_unlabelled=2, log_every=2, device="cpu"),
        )
        train(config, out / method, resume=False, console=Console(quiet=True))
    change(out / METHODS[0] / "environment.json", command=ODD_COMMAND)
    return [out / method for method in METHODS]


@pytest.fixture(scope="module")
def page(folders: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("report") / "deep" / "report.html"
    assert write_report(folders, out) == out
    return out.read_text(encoding="utf-8")


@pytest.fixture
def copies(folders: list[Path], tmp_path: Path) -> list[Path]:
    """The runs again, for a test to change."""
    return [Path(shutil.copytree(folder, tmp_path / folder.name)) for folder in folders]


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
    before, after = (json.loads((folder / "summary.json").read_text(encoding="utf-8"))["value"] for folder in folders)
    title = re.search(r"<title>(.*?)</title>", page)
    assert title is not None
    assert title.group(1).replace("\N{NO-BREAK SPACE}", " ") == f"4 labels: {before:.1f} → {after:.1f} % mIoU"
    assert "20 unlabelled images" in text_of(page)


def test_every_class_and_method_is_named(page: str) -> None:
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
    again = write_report(folders, tmp_path / "again.html")
    assert again.read_text(encoding="utf-8") == page


def test_one_run_gets_a_page_in_its_folder(copies: list[Path]) -> None:
    """Without `out`, the page stands beside the last run; a single run has no second column and no difference."""
    written = write_report(copies[:1], None)
    assert written == copies[0] / "report.html"
    page = written.read_text(encoding="utf-8")
    assert len(Outline(page).all("img")) == SCENES * 2 * 3
    assert "What differs" not in page


def test_recorded_command_is_text(page: str) -> None:
    """An angle bracket does not become markup."""
    assert f"<code>{escape(ODD_COMMAND)}</code>" in page


def test_no_run_is_refused() -> None:
    with pytest.raises(UserError, match="No run folder given"):
        write_report([], None)


def test_run_that_has_not_ended_is_refused_by_name(copies: list[Path]) -> None:
    """The message has the folder and the way out."""
    (copies[1] / "summary.json").unlink()
    with pytest.raises(UserError, match=rf"{re.escape(str(copies[1]))}: this run has not ended.*--resume"):
        write_report(copies, None)


def test_runs_with_different_classes_are_refused(copies: list[Path]) -> None:
    change(copies[1] / "summary.json", per_class={"sky": 50.0, "sea": 40.0})
    with pytest.raises(UserError, match=r"cannot be compared.*classes: sky, building.* → sky, sea"):
        write_report(copies, None)


def test_runs_on_different_images_are_refused(copies: list[Path]) -> None:
    file = copies[1] / "config.yaml"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("- 32\n  - 64\n  images", "- 48\n  - 64\n  images"), encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot be compared.*data\.size: \[32, 64\] → \[48, 64\]"):
        write_report(copies, None)


def test_page_that_cannot_be_written_is_the_users_to_mend(folders: list[Path], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot be written.*--out"):
        write_report(folders[:1], tmp_path / "file" / "report.html")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((41.3, 52.8), "+11.5 points from the same 4 labels, the same number of iterations and 20 further images"),
        ((52.8, 41.3), "simple-phtps is 11.5 points worse than supervised, with the same 4 labels"),
        ((52.84, 52.8), "simple-phtps is no better and no worse than supervised"),
    ],
)
def test_lead_says_plainly_what_was_gained(copies: list[Path], values: tuple[float, float], expected: str) -> None:
    """A gain, a loss and no difference are each called what they are."""
    for folder, value in zip(copies, values, strict=True):
        change(folder / "summary.json", value=value)
    assert words.lead(read_runs(copies)).startswith(expected)


def test_a_run_of_the_first_release_does_not_say_how_many_images_validate(copies: list[Path]) -> None:
    """Its summary lacks the number, and the page does without."""
    summary = json.loads((copies[0] / "summary.json").read_text(encoding="utf-8"))
    del summary["validation_samples"]
    (copies[0] / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    runs = read_runs(copies[:1])
    assert words.subtitle(runs)[-1] == "the last iteration’s model on the validation images"
    assert words.measured_on(runs, Robustness([], [], 8, (64, 128))) == (
        "Measured on 8 of the validation images, the middle 128×64 pixels of each."
    )


def test_best_of_several_is_named_and_same_methods_told_apart(copies: list[Path], tmp_path: Path) -> None:
    """Three runs: the headline names the best; two with one method and setting differ by folder."""
    third = Path(shutil.copytree(copies[1], tmp_path / "third"))
    change(third / "summary.json", value=99.0)
    runs = read_runs([*copies, third])
    assert len({run.name for run in runs}) == 3
    headline = "".join(phrase.text for phrase in words.headline(runs))
    assert "third is the best of 3 with 99.0" in headline


def test_most_confused_class_is_read_off_the_rows(copies: list[Path]) -> None:
    """Hand-made matrix: 30 of 100 pixels of the first class are given the third; the second class is always right."""
    matrix = np.zeros((len(CLASSES), len(CLASSES)), dtype=int)
    matrix[0, :3] = 60, 10, 30
    matrix[1, 1] = 7
    change(copies[0] / "summary.json", confusion=matrix.tolist(), absent=list(CLASSES[2:]))
    run: RunFacts = read_runs(copies[:1])[0]
    found = words.most_confused(run)
    assert found[CLASSES[0]] == (CLASSES[2], 30.0)
    assert found[CLASSES[1]] is None
    assert words.present(run) == list(CLASSES[:2])


class ByRed(nn.Module):
    """Tells two classes apart by the red of each pixel alone, so that a warp cannot mislead it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack((0.5 - x[:, 0], x[:, 0] - 0.5), dim=1)


def blocks(count: int, height: int, width: int) -> Samples:
    """Black images with a red block each, which is the second class."""
    labels = np.zeros((count, height, width), dtype=np.uint8)
    for index, one in enumerate(labels):
        one[height // 4 : 3 * height // 4, index : index + width // 2] = 1
    images = np.zeros((count, height, width, 3), dtype=np.uint8)
    images[..., 0] = 255 * labels
    return Samples.stacked(tuple(map(str, range(count))), images, labels)


def test_curves_begin_with_unchanged_images(folders: list[Path]) -> None:
    """At strength 0 of either component stands what evaluation says about the same images."""
    images, labels = zip(*(render(1, index, 32, 64) for index in range(9)), strict=True)
    samples = Samples.stacked(tuple("abcdefghi"), np.stack(images), np.stack(labels))
    models = [load_model(folder / "model.safetensors", torch.device("cpu")) for folder in folders]
    expected = [evaluate(model.network, samples, len(CLASSES), "segmentation").value for model in models]
    found = robustness(samples, models, (32, 64))
    assert found.images == 9
    for of_runs in (found.photometric, found.geometric):
        assert [of_run[0] for of_run in of_runs] == pytest.approx(expected)


def test_labels_are_warped_with_the_image() -> None:
    """Who judges pixels by their red withstands every warp, but for the edges, and no change of colours."""
    model = TrainedModel(ByRed(), ("black", "red"), ((0, 0, 0), (255, 0, 0)))
    found = robustness(blocks(12, 64, 128), [model], (64, 128))
    (photometric,), (geometric,) = found.photometric, found.geometric
    assert len(photometric) == len(geometric) == len(STRENGTHS)
    assert photometric[0] == geometric[0] == 100
    assert min(geometric) > 95
    assert photometric[-1] < 80


def test_large_images_are_judged_by_their_middles() -> None:
    """As large as a training crop, so that their number is bounded and warps are as strong as in training."""
    model = TrainedModel(ByRed(), ("black", "red"), ((0, 0, 0), (255, 0, 0)))
    found = robustness(blocks(12, 256, 384), [model], (128, 200))
    assert found.cropped_to == (128, 200)
    assert found.images == 10
    assert robustness(blocks(12, 32, 64), [model], (64, 128)).cropped_to is None


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (
            ((18.2, 20.0), (31.0, 21.9)),
            "supervised from 40.0 to 18.2 and simple-phtps from 40.0 to 31.0 % mIoU; a warp",
        ),
        (((18.2, 20.0), (31.0, 21.9)), "a warp brings supervised to 20.0 and simple-phtps to 21.9, too close to call."),
        (((31.0, 20.0), (30.0, 35.0)), "to 30.0 % mIoU, too close to call; a warp brings supervised to 20.0"),
    ],
)
def test_small_differences_decide_nothing(
    folders: list[Path], ends: tuple[tuple[float, float], ...], expected: str
) -> None:
    """Under two points no run is called better."""
    found = Robustness([[40.0, end[0]] for end in ends], [[40.0, end[1]] for end in ends], 8, None)
    assert expected in words.withstood(read_runs(folders), found)


def test_the_best_of_several_under_strong_perturbation(copies: list[Path], tmp_path: Path) -> None:
    """With three runs, the one ahead is named where it is clearly ahead."""
    runs = read_runs([*copies, Path(shutil.copytree(copies[1], tmp_path / "third"))])
    found = Robustness(
        [[40.0, end] for end in (10.0, 20.0, 30.0)], [[40.0, end] for end in (10.0, 29.0, 30.0)], 8, None
    )
    sentence = words.withstood(runs, found)
    assert "third ahead with 30.0 % mIoU" in sentence
    assert "a warp leaves no run clearly ahead" in sentence


def test_next_steps_name_the_runs(page: str, folders: list[Path]) -> None:
    """The commands can be copied."""
    assert f"oneway explore {folders[0]} {folders[1]}" in text_of(page)
    assert f"oneway suggest {folders[1]}" in text_of(page)


def test_suggestions_are_named_and_linked(copies: list[Path], tmp_path: Path) -> None:
    """Files beside a run are linked as seen from the page, and the first names stand in it, should links be dead."""
    lines = 'rank,image,score,kl,doubt\n1,"a, b.png",1.5,1,0.5\n2,<c>.png,1.2,1,0.2\n'
    (copies[1] / "suggest.csv").write_text(lines, encoding="utf-8")
    (copies[1] / "suggest.png").touch()
    out = tmp_path / "pages" / "report.html"
    page = write_report(copies[1:], out).read_text(encoding="utf-8")
    assert "puts first: a, b.png, &lt;c&gt;.png." in page
    addresses = [link["href"] or "" for link in Outline(page).all("a")]
    assert [(out.parent / address).resolve() for address in addresses] == [
        copies[1] / name for name in ("suggest.csv", "suggest.png")
    ]


def test_a_strange_table_of_suggestions_is_left_alone(copies: list[Path]) -> None:
    """It is no reason not to write a report."""
    (copies[0] / "suggest.csv").write_bytes(b"\xff\xfe nothing of ours")
    assert [step.files for step in next_steps(read_runs(copies[:1]), copies[0])] == [(), ()]


def test_absent_class_is_marked() -> None:
    """A class without a value gets no bar but the word."""
    bars = [plots.Bars([50.0, None], 1)]
    drawing = plots.class_bars("x", "IoU", ["road", "train"], bars, ["", "absent"])
    assert "50.0" in drawing
    assert ">absent<" in drawing
    assert "None" not in drawing


def test_plots_take_their_colours_from_the_page() -> None:
    """No colour of its own, so that one plot is readable on light and on dark."""
    drawing = plots.curves("x", "mIoU", [plots.Curve(Series((1, 2), (10.0, 20.0)), 0)])
    assert "var(--run-0)" in drawing
    assert not re.findall(r"#[0-9a-f]{6}\b(?!\")", re.sub(r"(id|href|url\(#)[^ ]*", "", drawing))


def test_long_curve_is_averaged_and_ends_with_its_last_value() -> None:
    """4000 points become 120: means of windows, but for the last, which is what a summary says too."""
    x, y = plots._averaged(Series(tuple(range(4000)), tuple(float(i % 2) for i in range(4000))))
    assert len(x) == len(y) == plots.POINTS
    assert y[:-1] == pytest.approx(0.5, abs=0.02)
    assert (x[-1], y[-1]) == (3999, 1)


def test_scenes_are_evenly_spaced() -> None:
    assert evenly_spaced(100, 4) == [12, 37, 62, 87]
    assert evenly_spaced(3, 4) == [0, 1, 2]


def decoded(uri: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(b64decode(uri.partition(",")[2]))).convert("RGB"))


def test_class_map_shows_exact_colours_and_hatches_ignored_pixels() -> None:
    """Every pixel of a class has its colour, also when enlarged; ignored ones have the hatching's two greys."""
    labels = np.repeat(np.array([[0, 1], [1, IGNORE]], dtype=np.uint8), 32, axis=1)
    picture = decoded(pictures.class_map(labels, [(1, 2, 3), (200, 100, 50)]))
    height, width = picture.shape[0] // 2, picture.shape[1] // 2
    assert (picture[:height, :width] == (1, 2, 3)).all()
    assert (picture[:height, width:] == (200, 100, 50)).all()
    assert {tuple(int(c) for c in pixel) for pixel in picture[height:, width:].reshape(-1, 3)} == set(pictures.HATCH)


def test_photo_is_hatched_outside_the_image() -> None:
    """What a warp leaves empty is not shown as black."""
    valid = np.ones((32, 64), dtype=bool)
    valid[:, :32] = False
    picture = decoded(pictures.photo(np.zeros((32, 64, 3), dtype=np.uint8), valid))
    half = picture.shape[1] // 2
    assert picture[:, :half].min() > 0
    assert picture[:, half:].max() == 0


@pytest.mark.parametrize(
    ("shape", "shown"), [((64, 128), (192, 384)), ((1024, 2048), (204, 409)), ((300, 384), (300, 384))]
)
def test_pictures_come_to_about_one_width(shape: tuple[int, int], shown: tuple[int, int]) -> None:
    """Small images are enlarged and large ones reduced, by whole numbers."""
    assert decoded(pictures.class_map(np.zeros(shape, dtype=np.uint8), [(0, 0, 0)])).shape[:2] == shown
