"""Names and counts in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from oneway.common.words import command, counted, first_line, listed, table_cell


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        ([], {}, ""),
        (["a"], {}, "a"),
        (["a", "b"], {}, "a and b"),
        (["a", "b"], {"joint": "or"}, "a or b"),
        (["a", "b", "c"], {}, "a, b and c"),
        (range(7), {}, "0, 1, 2 and 4 more"),
        (range(7), {"most": 5, "joint": "or"}, "0, 1, 2, 3, 4 or 2 more"),
        (range(5), {"most": None}, "0, 1, 2, 3 and 4"),
    ],
)
def test_names_are_listed_up_to_a_number(names, options, expected):
    """The rest is counted."""
    assert listed(names, **options) == expected


def test_a_noun_has_the_number_of_what_is_counted():
    """One of it is singular; several counts are said once each."""
    assert counted(1, "label") == counted([1, 1], "label") == "1 label"
    assert counted(0, "label") == "0 labels"
    assert counted(1200, "class", "classes") == "1,200 classes"
    assert counted([4, 8, 4], "label", joint=" or ") == "4 or 8 labels"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("no kernel image\nCompile with TORCH_USE_CUDA_DSA"), "no kernel image"),
        (RuntimeError("\n  no kernel image\n"), "no kernel image"),
        (RuntimeError(), "RuntimeError"),
        (MemoryError(""), "MemoryError"),
        (ValueError(" \n"), "ValueError"),
    ],
)
def test_an_error_is_told_in_a_line(error, expected):
    """By the name of its kind where it says nothing."""
    assert first_line(error) == expected


def test_commands_to_paste_are_quoted():
    """Whatever a folder is called, a shell takes it for one word, and the command for no flag."""
    assert command("oneway", "train", Path("a b; rm -rf ~")) == "oneway train 'a b; rm -rf ~'"
    assert command("oneway", "eval", Path("--out")) == "oneway eval ./--out"
    assert command("oneway", "eval", "--json") == "oneway eval --json"


@pytest.mark.parametrize("name", ["=1+1.png", "+a", "-a", "@SUM(A1)", "\tx", "\rx", "\nx", "'=a", "'a", "a=b.png", ""])
def test_a_spreadsheet_computes_nothing(name):
    """And the name stands there as it is, or behind an apostrophe."""
    cell = table_cell(name)
    assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert cell in (name, f"'{name}")
