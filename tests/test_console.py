"""What is printed: text from files is shown as it is and never obeyed; results must arrive, progress need not."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from rich.table import Table
from rich.text import Text

from oneway.cli import app
from oneway.common.console import Console, print_result
from oneway.common.errors import UserError
from oneway.common.progress import ProgressBar
from oneway.common.words import say, visible

HOSTILE = "a[/foo][link=http://x]:smile:\x1b[2J\x1b]0;t\x07\x9b2J\u202egnp.\r\udcff"
SHOWN = r"a[/foo][link=http://x]:smile:\x1b[2J\x1b]0;t\x07\x9b2J\u202egnp.\r\xff"


class Broken(io.StringIO):
    """A stream behind which something is wrong."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def write(self, text: str) -> int:
        raise OSError(self.number, os.strerror(self.number))


def printed(print_on, **options) -> str:
    file = io.StringIO()
    console = Console(file=file, width=300, **options)
    print_on(console)
    return file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_text_from_files_is_shown_and_not_obeyed(terminal):
    """As a string, a text, in a table and its caption, and beside a bar: no escape but the console's own."""
    table = Table(HOSTILE, caption=HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE))

    def show(console: Console) -> None:
        say(console, HOSTILE)
        console.print(HOSTILE, Text(HOSTILE), table, sep="\n")
        with ProgressBar(console, HOSTILE, 3, transient=False) as bar:
            bar.show(HOSTILE)
            bar.show_result(HOSTILE, HOSTILE)

    text = printed(show, force_terminal=terminal, color_system=None)
    assert text.count(SHOWN) >= 5  # rich leaves \a and \r out by itself in some places
    assert not {"\x07", "\x9b", "\u202e", "\udcff", "😄"} & set(text)
    assert "\x1b[2J" not in text
    assert "\x1b]" not in text


def test_names_in_any_script_are_printed_as_they_are():
    """Joiners and wide spaces are part of some of them; only of a single name are ends of lines spelt out."""
    for name in ("Straße", "道路", "می\u200cخواهم", "👩\u200d🚒", "a\u3000b"):
        assert visible(name) == name
    assert visible("a\n\tb") == "a\n\tb"
    assert visible("a\nb", lines=False) == r"a\nb"


def test_eval_prints_any_name_of_a_class(monkeypatch, capsys):
    """`[/foo]` ended it with an error about markup."""
    found = {"samples": 1, "metric": "miou", "value": 5.0, "per_class": {"[/foo]": 5.0, "[bold]": None, ":car:": None}}
    found |= {
        "interval": None,
        "recall": (half := dict.fromkeys(found["per_class"], 50.0)),
        "precision": half,
        "dice": half,
    }
    found |= {"absent": ["[bold]", ":car:"], "confusion": [[999, 1, 0], [0, 0, 0], [0, 0, 0]]}
    monkeypatch.setattr("oneway.tools.evaluate_run.evaluate_run", lambda *arguments, **named: found)
    app(["eval", "run"], exit_on_error=False, result_action="return_value")
    text = capsys.readouterr().out
    assert "[/foo]" in text
    text = " ".join(text.split())
    assert "No pixel is labelled [bold] or :car:: not in the mean. 0.1 % are taken for [bold] all the same" in text


@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_progress_may_be_lost_and_a_result_may_not(number, monkeypatch):
    """A reader that has gone is told apart: it wanted no more."""
    monkeypatch.setattr(sys, "stdout", Broken(number))
    Console().print("progress")
    expected = BrokenPipeError if number == errno.EPIPE else UserError
    with pytest.raises(expected):
        Console(result=True).print("result")
    with pytest.raises(expected):
        print_result("result")


def test_what_an_encoding_lacks_is_written_in_other_characters(monkeypatch):
    """Signs of ours by what they look like, others by their numbers; a name that is not UTF-8 by its bytes."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    say(Console(), "1 → 2 · 3 × α é 道 \udce9")
    assert written.getvalue() == rb"1 -> 2 - 3 x alpha \xe9 \u9053 \xe9" + b"\n"


def oneway(shell: str) -> tuple[int, str]:
    """Status and standard error of a shell command that has `oneway` in it."""
    command = shell.replace("oneway", f"'{sys.executable}' -m oneway")
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("columns", "broken"), [({}, False), ({"COLUMNS": "0"}, False), ({"COLUMNS": "60"}, True)])
def test_results_for_programs_are_not_broken_into_lines(columns, broken, tmp_path):
    """Of check, where a name is long; help still has a width. A width of 0 is none, and not one for nothing."""
    name = f"{'a long name ' * 9}.png"
    for kind in ("images", "masks"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for number in range(3):
            pixels = np.full((40, 40), number, dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / kind / (f"{number}.png" if number else name))
    environment = {**{key: value for key, value in os.environ.items() if key != "COLUMNS"}, **columns}

    def lines(*words: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-m", "oneway", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        return done.stdout.splitlines()

    found = lines("check", "data")
    assert any(name in line for line in found) != broken
    assert broken or not [line for line in found if line != line.rstrip()]
    assert 40 < max(map(len, lines("check", "--help"))) <= 80


def test_a_result_whose_reader_has_gone_ends_quietly():
    """With the shell's status for SIGPIPE."""
    assert oneway("oneway --help | true; exit ${PIPESTATUS[0]}") == (141, "")


def test_a_result_that_cannot_be_written_is_an_error():
    status, error = oneway("oneway train streets --dry-run > /dev/full")
    assert (status, error.strip()) == (
        1,
        "oneway: The standard output cannot be written to (No space left on device).",
    )


def test_streams_that_are_closed_are_no_files():
    """Without them, the first file that is opened would be the standard output."""
    assert oneway("oneway train streets --dry-run <&- >&- 2>&-")[0] == 0
    assert oneway("oneway nonsense <&- >&- 2>&-")[0] == 2
