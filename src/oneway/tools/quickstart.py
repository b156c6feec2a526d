"""The first thing a newcomer runs: what unlabelled images are worth, on embedded data, in minutes."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from oneway.common.errors import UserError
from oneway.common.run_files import CONFIG, SUMMARY
from oneway.common.words import say
from oneway.config import Config
from oneway.config.recipes import configured
from oneway.runs.atomic import write_json
from oneway.tools.report import write_report
from oneway.tools.train import train

COMPARED: tuple[str, str] = ("supervised", "simple-phtps")


def quickstart(out: Path, seed: int, console: Console) -> None:
    """Trains both methods with the same labels and iterations; writes `summary.json` and `report.html` beside them."""
    if (out / CONFIG).is_file():
        raise UserError(f"{out}: holds a run, whose summary would be overwritten. Choose another folder with --out.")
    values: dict[str, float] = {}
    for method in COMPARED:
        folder = out / method
        config = quickstart_config(method, seed)
        values[method] = train(config, folder, resume=(folder / CONFIG).is_file(), console=console)["value"]
    supervised, semi_supervised = (values[method] for method in COMPARED)
    summary = {**values, "gain": semi_supervised - supervised}
    write_json(out / SUMMARY, summary)
    page = write_report([out / method for method in COMPARED], out / "report.html")
    say(
        console,
        f"{config.labels} labels: {supervised:.1f} → {semi_supervised:.1f} % mIoU "
        f"({summary['gain']:+.1f} with unlabelled images)\nReport: {page}",
    )


def quickstart_config(method: str, seed: int) -> Config:
    """The `streets` recipe; the method is the only difference between the two runs."""
    return configured("streets", {"method": method, "seed": seed}, source="quickstart")
