"""The cells of a paired table, printed in the terminal and as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.table import Table

from oneway.common.words import counted, listed
from oneway.tools.baseline import BASELINE
from oneway.tools.reproduce.paired_cells import PairedCell
from oneway.tools.reproduce.results import markdown_table
from oneway.tools.reproduce.tables import RunTable


def to_rich(table: RunTable, cells: Sequence[PairedCell], title: str) -> Table:
    """A line for each cell, those of one number of labels together."""
    printed = Table(title=title, caption=_describe(table, cells))
    for head in ("labels", "method", "mIoU in %", "n", f"over {BASELINE}", "n", "distance closed"):
        # Names are whole in a narrow terminal too: they are what the next command is given.
        printed.add_column(head, justify="left" if head == "method" else "right", no_wrap=head == "method")
    usual = _usual_length(cells)
    for cell in sorted(cells, key=lambda cell: table.columns.index(cell.column)):
        over = cell.difference
        paired = ("", "") if over is None else (over.with_error("+"), str(len(over.by_seed)))
        count = str(len(cell.score.by_seed))
        printed.add_row(cell.column, cell.row, _score(cell, usual), count, *paired, _percent(cell.closed))
    return printed


def to_markdown(table: RunTable, cells: Sequence[PairedCell], by_drive: dict[str, list[PairedCell]]) -> str:
    """The table of all methods, the distance to all labels, and a table for each drive."""
    everything = [*cells, *(cell for found in by_drive.values() for cell in found)]
    parts = [f"{table.shows}.", _describe(table, everything)]
    parts.append(_scores(table, cells) if cells else "No seed has been trained with every drive held out.")
    if any(cell.distance for cell in cells):
        fewer = [cell for cell in cells if cell.column != table.columns[-1]]
        parts += [
            f"Points from `{BASELINE}` to `{BASELINE}` with all labels, ± standard error; below, the share of that "
            "distance that unlabelled images close.",
            _grid(table, fewer, _distance),
        ]
    for drive, found in by_drive.items():
        if found:
            parts += [f"{drive} held out:", _scores(table, found)]
    return "\n".join(f"{part.rstrip()}\n" for part in parts)


def _describe(table: RunTable, cells: Sequence[PairedCell]) -> str:
    """How to read the numbers."""
    seeds = sorted({len(cell.score.by_seed) for cell in cells})
    same = f"seed and drive, the mean over {listed(table.drives, most=None)}" if table.drives else "seed"
    folds = " Each drive is held out in turn; a seed's value is the mean over them." if table.drives else ""
    return (
        f"mIoU in percent after {counted(_usual_length(cells), 'iteration')}, the last, mean ± sample deviation over "
        f"{counted(seeds, 'seed', joint=' or ')}.{folds} Signed: the difference to `{BASELINE}` of the same {same}, ± "
        "its standard error over seeds."
    )


def _scores(table: RunTable, cells: Sequence[PairedCell]) -> str:
    usual, most = _usual_length(cells), max(len(cell.score.by_seed) for cell in cells)

    def write(cell: PairedCell) -> str:
        words = [_score(cell, usual)]
        if cell.difference is not None:
            words.append(f"({cell.difference.with_error('+')})")
        if len(cell.score.by_seed) < most:
            words.append(f"n = {len(cell.score.by_seed)}")
        return " ".join(words)

    return _grid(table, cells, write)


def _grid(table: RunTable, cells: Sequence[PairedCell], write: Callable[[PairedCell], str]) -> str:
    """A row for each method, a column for each number of labels that has a cell."""
    columns = [column for column in table.columns if any(cell.column == column for cell in cells)]
    rows: dict[str, dict[str, str]] = {}
    for cell in cells:
        rows.setdefault(f"`{cell.row}`", {})[f"{cell.column} labels"] = write(cell)
    return markdown_table("method", [f"{column} labels" for column in columns], rows)


def _usual_length(cells: Sequence[PairedCell]) -> int:
    """The number of iterations that most cells have."""
    (length, _), *_ = Counter(length for cell in cells for length in cell.lengths).most_common(1) or [(0, 0)]
    return length


def _score(cell: PairedCell, usual: int) -> str:
    length = f" after {counted(cell.lengths, 'iteration')}" if cell.lengths != (usual,) else ""
    return f"{cell.score}{length}"


def _distance(cell: PairedCell) -> str:
    """From labels alone to all labels, or the share of it that a method closes."""
    if cell.row != BASELINE:
        return _percent(cell.closed)
    return "" if cell.distance is None else cell.distance.with_error()


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"
