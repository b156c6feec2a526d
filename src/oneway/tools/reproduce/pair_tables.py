"""A yardstick's results as tables, in the terminal and in Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.table import Table

from oneway.common.words import counted, listed
from oneway.tools.baseline import BASELINE
from oneway.tools.reproduce.pairs import Cell, Mean
from oneway.tools.reproduce.yardsticks import Yardstick


def to_rich(yardstick: Yardstick, cells: Sequence[Cell], title: str) -> Table:
    """A line for each cell, those of one number of labels together."""
    printed = Table(title=title, caption=_describe(yardstick, cells))
    for head in ("labels", "method", "mIoU in %", "n", f"over {BASELINE}", "n", "distance closed"):
        # Names are whole in a narrow terminal too: they are what the next command is given.
        printed.add_column(head, justify="left" if head == "method" else "right", no_wrap=head == "method")
    usual = _usual_length(cells)
    for cell in sorted(cells, key=lambda cell: yardstick.columns.index(cell.column)):
        counts = ["" if found is None else str(len(found.by_seed)) for found in (cell.score, cell.difference)]
        score, difference = _score(cell, usual), _difference(cell.difference)
        printed.add_row(cell.column, cell.row, score, counts[0], difference, counts[1], _percent(cell.closed))
    return printed


def to_markdown(yardstick: Yardstick, cells: Sequence[Cell], by_drive: dict[str, list[Cell]]) -> str:
    """The table of all methods, the distance to all labels, and a table for each drive."""
    everything = [*cells, *(cell for found in by_drive.values() for cell in found)]
    parts = [f"{yardstick.shows}.", _describe(yardstick, everything)]
    parts.append(_scores(yardstick, cells) if cells else "No seed has been trained with every drive held out.")
    if any(cell.distance for cell in cells):
        fewer = [cell for cell in cells if cell.column != yardstick.columns[-1]]
        parts += [
            f"Points from `{BASELINE}` to `{BASELINE}` with all labels, ± standard error; below, the share of that "
            "distance that unlabelled images close.",
            _grid(yardstick, fewer, lambda cell: _distance(cell) if cell.row == BASELINE else _percent(cell.closed)),
        ]
    for drive, found in by_drive.items():
        if found:
            parts += [f"{drive} held out:", _scores(yardstick, found)]
    return "\n".join(f"{part.rstrip()}\n" for part in parts)


def _describe(yardstick: Yardstick, cells: Sequence[Cell]) -> str:
    """How to read the numbers."""
    seeds = sorted({len(cell.score.by_seed) for cell in cells if cell.score})
    same = f"seed and drive, the mean over {listed(yardstick.drives, most=None)}" if yardstick.drives else "seed"
    folds = " Each drive is held out in turn; a seed's value is the mean over them." if yardstick.drives else ""
    return (
        f"mIoU in percent after {counted(_usual_length(cells), 'iteration')}, the last, mean ± sample deviation over "
        f"{counted(seeds, 'seed', joint=' or ')}.{folds} Signed: the difference to `{BASELINE}` of the same {same}, ± "
        "its standard error over seeds."
    )


def _scores(yardstick: Yardstick, cells: Sequence[Cell]) -> str:
    usual, most = _usual_length(cells), max((len(cell.score.by_seed) for cell in cells if cell.score), default=0)

    def write(cell: Cell) -> str:
        words = [_score(cell, usual)]
        if cell.difference is not None:
            words.append(f"({_difference(cell.difference)})")
        if cell.score is not None and len(cell.score.by_seed) < most:
            words.append(f"n = {len(cell.score.by_seed)}")
        return " ".join(words)

    return _grid(yardstick, cells, write)


def _grid(yardstick: Yardstick, cells: Sequence[Cell], write: Callable[[Cell], str]) -> str:
    """A row for each method, a column for each number of labels that has a cell."""
    columns = [column for column in yardstick.columns if any(cell.column == column for cell in cells)]
    rows: dict[str, dict[str, str]] = {}
    for cell in cells:
        rows.setdefault(cell.row, {})[cell.column] = write(cell)
    lines = [["method", *(f"{column} labels" for column in columns)], ["---"] * (1 + len(columns))]
    lines += [[f"`{row}`", *(found.get(column, "") for column in columns)] for row, found in rows.items()]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _usual_length(cells: Sequence[Cell]) -> int:
    """The number of iterations that most cells have."""
    (length, _), *_ = Counter(length for cell in cells for length in cell.lengths).most_common(1) or [(0, 0)]
    return length


def _score(cell: Cell, usual: int) -> str:
    if cell.score is None:
        return ""
    length = f" after {counted(cell.lengths, 'iteration')}" if cell.lengths != (usual,) else ""
    return f"{cell.score.mean:.1f}{_spread(cell.score.deviation)}{length}"


def _difference(found: Mean | None) -> str:
    return "" if found is None else f"{found.mean:+.1f}{_spread(found.standard_error)}"


def _distance(cell: Cell) -> str:
    return "" if cell.distance is None else f"{cell.distance.mean:.1f}{_spread(cell.distance.standard_error)}"


def _spread(value: float | None) -> str:
    return "" if value is None else f" ± {value:.1f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"
