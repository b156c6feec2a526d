"""What a person sees of progress, on terminals of any width and in log files."""

from __future__ import annotations

import io
import json
import re

import pytest
from rich.console import Console

from oneway.common import progress
from oneway.common.progress import ProgressBar, progress_bar
from oneway.common.words import duration
from oneway.tools.report import write_report
from oneway.tools.train import train
from small_runs import QUIET, small_streets

LOSSES = "supervised 0.296  consistency 0.329  entropy 2.137  lr 5.0e-05"


def terminal(width: int) -> Console:
    return Console(width=width, force_terminal=True, file=io.StringIO(), color_system=None)


def printed(console: Console) -> list[str]:
    """All lines that hold something, a bar that was drawn again included."""
    text = re.sub(r"\x1b\[[?0-9]*[A-Za-z]", "", console.file.getvalue())  # type: ignore[attr-defined]
    return [line for line in re.split(r"[\r\n]+", text) if line.strip()]


@pytest.mark.parametrize("width", [60, 80, 100, 130])
def test_name_count_result_and_time_left_stand_in_one_line_and_losses_below(width):
    """Whatever the width, and with as many losses as a method has."""
    console = terminal(width)
    with ProgressBar(console, "vat-entmin · 9 labels · seed 0", 92_750, transient=False) as bar:
        bar.update(19_000)
        bar.show(LOSSES)
        bar.show_result("val 33.2 %", "validation mIoU 33.2 %")
    first, below = printed(console)[-2:]
    assert re.fullmatch(r"vat-entmin.* 19000/92750 val 33\.2 % left \S+", first)
    assert ("9 labels" in first) == (width >= 80)
    assert "consistency 0.329  entropy 2.137" in below
    assert max(len(first), len(below)) <= width


def test_losses_are_not_taken_for_markup():
    """Names are those of a method's author."""
    console = terminal(80)
    with ProgressBar(console, "own [method]", 4, transient=False) as bar:
        bar.show("[strong] 0.296")
    first, below = printed(console)[-2:]
    assert first.startswith("own [method]")
    assert below == "[strong] 0.296"


def test_a_log_file_gets_a_line_now_and_then(monkeypatch):
    """With numbers that are new, the speed and the time left; a result has a line of its own."""
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console = Console(file=io.StringIO(), width=80)
    with ProgressBar(console, "simple-phtps", 100, done=20) as bar:
        bar.show(LOSSES)
        for done in range(21, 61):
            now += 0.5
            bar.update(done)
        bar.show_result("val 33.2 %", "validation mIoU 33.2 %")
    assert printed(console) == [
        f"simple-phtps  40/100  {LOSSES}  2.0/s  30 s left",
        "simple-phtps  60/100  2.0/s  20 s left",
        "simple-phtps  60/100  validation mIoU 33.2 %",
    ]


def test_speed_is_that_after_the_first_part_and_in_seconds_where_they_are_many(monkeypatch):
    """The first compiles what the others only run; a rate of 0.0/s would say nothing."""
    now = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console = Console(file=io.StringIO(), width=80)
    with ProgressBar(console, "simple-phtps", 4) as bar:
        now += 90
        bar.advance()
        now += 25
        bar.advance()
    assert printed(console) == ["simple-phtps  1/4", "simple-phtps  2/4  25.0 s each  50 s left"]


@pytest.mark.parametrize("console", [Console(quiet=True, force_terminal=True), Console(quiet=True)])
def test_a_quiet_console_stays_quiet(console, capsys):
    """On a terminal and elsewhere."""
    with progress_bar(console, "Decoding images", 2) as advance:
        advance()
        advance()
    assert capsys.readouterr() == ("", "")


def test_every_loss_of_a_method_is_logged_shown_and_plotted_by_its_name(tmp_path, monkeypatch):
    """VAT yields three; a supervised run beside it has one."""
    for place, nothing in (("page.robustness", None), ("figures.bars", None), ("figures.heat_maps", [])):
        monkeypatch.setattr(f"oneway.tools.report.{place}", lambda *_, nothing=nothing: nothing)
    console = terminal(130)
    folders = [tmp_path / method for method in ("supervised", "vat-entmin")]
    train(small_streets(method="supervised"), folders[0], resume=False, console=QUIET)
    train(small_streets(method="vat-entmin"), folders[1], resume=False, console=console)
    lines = [json.loads(line) for line in (folders[1] / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "learning_rate" in line]
    assert [list(line)[1:4] for line in logged] == [["supervised", "consistency", "entropy"]] * 2
    assert f"entropy {logged[-1]['entropy']:.3f}" in printed(console)[-1]
    page = write_report(folders, tmp_path / "report.html").read_text(encoding="utf-8")
    titles = re.findall(r'aria-label="(\w+) loss"', page)
    assert titles == ["Supervised", "Consistency", "Entropy"]
    plot = page[page.index('aria-label="Entropy loss"') :].partition("</svg>")[0]
    assert "var(--run-1)" in plot
    assert "var(--run-0)" not in plot
    assert f">{logged[-1]['entropy']:.2f}<" in plot


def test_times_are_said_as_people_say_them():
    """Not in thousands of seconds."""
    assert [duration(seconds) for seconds in (42, 185, 30949)] == ["42 s", "3 min 05 s", "8 h 35 min"]
