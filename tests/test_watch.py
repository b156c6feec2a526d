"""`oneway watch` shows what the log of a run says, as it grows, and touches nothing."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from explore import chromium
from explore.serving import address_of
from files import change_json, contents
from oneway.common.errors import UserError
from oneway.common.run_files import METRICS, SUMMARY
from oneway.config.recipes import recipe
from oneway.runs import open_run
from oneway.tools.train import train
from oneway.tools.watch.command import application
from oneway.tools.watch.state import Watcher, read_details
from small_runs import QUIET


def served(folder: Path) -> AbstractContextManager[str]:
    """The address of the page about a folder."""
    return address_of(application(Watcher(folder)))


@pytest.fixture
def training(two_runs, tmp_path) -> Path:
    """A folder of two runs, one of which seems to be under way."""
    folder = tmp_path / "runs"
    for run in two_runs:
        shutil.copytree(run, folder / run.name)
    shutil.rmtree(folder / "simple-phtps/checkpoint")
    (folder / "simple-phtps" / SUMMARY).unlink()
    (folder / "simple-phtps/.lock").write_text("process 1 on somewhere\n")
    return folder


def test_the_page_has_the_numbers_of_the_log(training):
    """Of runs in a folder, and of one by itself; nothing in them changes."""
    before = contents(training)
    with served(training) as address, httpx.Client(base_url=address, timeout=30) as client:
        runs = {run["name"]: run for run in client.get("/api/runs").json()["runs"]}
        assert {name: run["state"] for name, run in runs.items()} == {"supervised": "ended", "simple-phtps": "training"}
        for name, run in runs.items():
            found = client.get(f"/api/runs/{run['number']}").json()
            log = open_run(training / name).metrics()
            for curve in found["curves"]:
                lines = [line for line in log if curve["key"] in line]
                assert curve["x"] == [line["iteration"] for line in lines]
                assert curve["y"] == [line[curve["key"]] for line in lines]
            assert [each["value"] for each in found["per_class"]] == log[-1]["per_class"]
            assert [each["name"] for each in found["per_class"]][:2] == ["sky", "building"]
            assert found["pictures"]["scenes"] == 4
            last = found["pictures"]["iterations"][-1]
            address_of = f"/api/runs/{run['number']}/pictures"
            picture = client.get(f"{address_of}/{last:08d}-1.png")
            assert picture.content == (training / name / f"pictures/{last:08d}-1.png").read_bytes()
            assert picture.headers["content-type"] == "image/png"
    with served(training / "supervised") as address:
        (run,) = httpx.get(f"{address}/api/runs", timeout=30).json()["runs"]
        assert (run["name"], run["done"], run["iterations"]) == ("supervised", 4, 4)
    assert contents(training) == before


def test_a_stopped_run_has_as_many_iterations_as_it_goes_on_from(training):
    """Its last checkpoint has more than the log, or fewer; without any, the log is all there is."""
    run = training / "supervised"
    (run / SUMMARY).unlink()
    lines = (run / METRICS).read_text().splitlines(keepends=True)
    cut = "".join(line for line in lines if json.loads(line)["iteration"] <= 2)
    found = []
    for log, saved in ((cut, 4), ("".join(lines), 3), (cut, None)):
        (run / METRICS).write_text(log)
        shutil.rmtree(run / "checkpoint")
        (run / "checkpoint").mkdir()
        if saved:
            (run / "checkpoint" / f"{saved:08d}.json").touch()
        (one,) = Watcher(run).overview()
        found.append((one["state"], one["done"], one["iterations"]))
    assert found == [("stopped", 4, 4), ("stopped", 3, 4), ("stopped", 2, 4)]


def test_nothing_else_is_served(training, tmp_path):
    """No other file, no link, nobody but this page."""
    (tmp_path / "secret.png").write_bytes(b"secret")
    (training / "supervised/pictures/image-9.jpg").symlink_to(tmp_path / "secret.png")
    with served(training) as address, httpx.Client(base_url=address, timeout=30) as client:
        for name in ("..%2fconfig.yaml", "classes.json", "image-9.jpg", "image-7.jpg", "%2e%2e/config.yaml"):
            for number in (0, 1):
                answer = client.get(f"/api/runs/{number}/pictures/{name}")
                assert answer.status_code in (404, 422), name
                assert b"secret" not in answer.content
        assert client.get("/api/runs/9").status_code == 422
        assert client.get("/api/runs", headers={"Host": "evil.example"}).status_code == 403
        assert client.get("/api/runs", headers={"Origin": "http://evil.example"}).status_code == 403


def test_a_damaged_run_is_named_and_the_others_are_shown(training):
    """A folder may come from anyone."""
    (training / "supervised/config.yaml").write_text("method: [")
    (training / "simple-phtps/pictures/classes.json").write_text('{"classes": 3}')
    with served(training) as address:
        runs = {run["name"]: run for run in httpx.get(f"{address}/api/runs", timeout=30).json()["runs"]}
    assert "config.yaml" in runs["supervised"]["problem"]
    assert runs["simple-phtps"]["problem"] is None
    with pytest.raises(UserError, match="neither a run folder, nor a folder of runs"):
        Watcher(training / "supervised/pictures")


def test_a_run_with_a_method_of_its_own_is_shown_as_any_other(training):
    """Which a program of the user's has trained, and `oneway` does not know."""
    config = training / "supervised/config.yaml"
    config.write_text(config.read_text().replace("method: supervised", "method: two-views"))
    runs = {run["name"]: run for run in Watcher(training).overview()}
    assert [runs["supervised"][key] for key in ("method", "done", "iterations", "problem")] == ["two-views", 4, 4, None]


@pytest.mark.skipif(chromium.EXECUTABLE is None, reason="Chromium is not installed")
def test_a_run_that_cannot_be_read_leaves_the_curves_of_others(training):
    """The last iteration of the other stands where the axis ends, and nobody knows how long this one is."""
    (training / "supervised/config.yaml").write_text("method: [")
    with served(training) as address, chromium.browser() as open_page:
        page = open_page(address)
        page.wait("document.querySelectorAll('#curves circle').length > 1")
        assert page.evaluate("document.querySelector('#curves circle').getAttribute('cx')") == "308"
        assert "stopped, 4 iterations" in page.evaluate("document.querySelector('.runs').textContent")


@pytest.mark.skipif(chromium.EXECUTABLE is None, reason="Chromium is not installed")
def test_a_browser_shows_a_run_as_it_grows(training):
    """The last values stand at the ends of the curves, and new ones come by themselves."""
    log = training / "simple-phtps" / METRICS
    split = open_run(training / "supervised").split
    one_label = replace(split, labelled=split.labelled[:1]).to_json()
    (training / "supervised/split.json").write_text(one_label)
    with served(training) as address, chromium.browser() as open_page:
        page = open_page(address)
        page.resize(390, 844, phone=True)
        ends = "[...document.querySelectorAll('#curves figure:first-child .end')].map(e => e.textContent)"
        page.wait("document.querySelectorAll('#gallery img').length == 16")
        shown = [open_run(training / name).metrics()[-1]["miou"] for name in ("supervised", "simple-phtps")]
        assert sorted(map(float, page.evaluate(ends))) == pytest.approx(sorted(shown), abs=0.0051)
        assert page.evaluate("document.querySelectorAll('.runs progress')[0].value") == 4
        facts = page.evaluate("document.querySelector('.runs').textContent")
        assert "supervised · 1 label · seed" in facts
        assert "simple-phtps · 4 labels · seed" in facts
        line = json.loads(log.read_text().splitlines()[-1])
        with log.open("a") as file:
            file.write(json.dumps({**line, "iteration": 5, "miou": 77.7}) + "\n")
        page.wait(f"{ends}.includes('77.7')")
        page.wait("[...document.querySelectorAll('#gallery img')].slice(0, 4).every(i => i.complete && i.naturalWidth)")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        wrong = [event for event in page.events if event["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
        assert not wrong


@pytest.mark.skipif(chromium.EXECUTABLE is None, reason="Chromium is not installed")
def test_many_runs_are_told_apart(training):
    """No value at the end of a curve covers another or leaves its plot; other classes have a table of their own.

    Nor is a curve taken for one of the same images.
    """
    for number in range(4):
        copy = Path(shutil.copytree(training / "supervised", training / f"more-{number}"))
        if number:
            continue
        names = {"wall": 50.0, "door": 40.0}
        change_json(copy / SUMMARY, per_class=names, absent=[], confusion=[[1, 0], [0, 1]])
        lines = [json.loads(line) for line in (copy / METRICS).read_text().splitlines()]
        lines = [{**line, "per_class": [50.0, 40.0]} if "per_class" in line else line for line in lines]
        (copy / METRICS).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    change_json(training / "more-3/split.json", validation="0123456789abcdef")
    with served(training) as address, chromium.browser() as open_page:
        page = open_page(address)
        page.wait("document.querySelectorAll('#curves figure:first-child .end').length == 6")
        for figure in range(page.evaluate("document.querySelectorAll('#curves figure').length")):
            plot = f"[...document.querySelectorAll('#curves figure')][{figure}]"
            places = page.evaluate(f"[...{plot}.querySelectorAll('.end')].map(end => Number(end.getAttribute('y')))")
            assert all(after - before > 12.9 for before, after in pairwise(places))
            assert places[-1] <= 192
        names = "[...bars.querySelectorAll('.name')].map(name => name.textContent)"
        tables = page.evaluate(f"[...document.querySelectorAll('.bars')].map(bars => {names})")
        said = page.evaluate("[...document.querySelectorAll('.runs li')].map(run => run.textContent)")
        (other,) = (run for run in said if "validated by other images than more-0" in run)  # whose log is the latest
        assert other.startswith("more-3")
        assert len(tables) == 2
        assert min(tables, key=len) == ["wall", "door"]


def test_classes_that_no_picture_shows_have_their_names_while_a_run_trains(tmp_path):
    """Not only once its summary has them: points and whole images have no pictures here."""
    train(recipe("moons").changed(train={"iterations": 2, "device": "cpu"}), tmp_path, resume=False, console=QUIET)
    (tmp_path / SUMMARY).unlink()
    found = read_details(tmp_path)
    assert [each["name"] for each in found["per_class"]] == ["upper", "lower"]
    assert found["pictures"] == {"scenes": 0, "iterations": []}
