"""The application that verbs are added to, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Annotated, TypeVar

from cyclopts import App, Group, Parameter
from rich.text import Text

from oneway import __version__
from oneway.common.console import Console

console = Console()
"""For progress and notes of a command that leaves files behind: nobody has to read them."""
results = Console(result=True, unbroken=True)
"""For what a command was run for."""
messages = Console(stderr=True)
"""For progress and notes, where the standard output is for results."""

app = App(
    name="oneway",
    help="Train real-time segmentation models from a few labelled and many unlabelled images.",
    version=__version__,
    version_format="plaintext",  # and no parser of Markdown is imported
    help_epilogue="New here? `oneway quickstart` needs no data and ends in a report. "
    "After any command, `--traceback` shows where an error came from.",
    default_parameter=Parameter(negative_iterable=(), negative_none=()),
    group_commands=Group("Help", sort_key=4),
    suppress_keyboard_interrupt=False,  # it is answered as all that ends a verb is
    console=Console(result=True),  # which fills its width with frames
)
app.register_install_completion_command(
    help="Let the Tab key complete verbs, flags, recipes and methods in your shell."
)

TRAIN = Group("Train a model", sort_key=1)
USE = Group("Use it", sort_key=2)
STUDY = Group("Study the method", sort_key=3)
_position = count()
_Verb = TypeVar("_Verb", bound=Callable[..., None])

Switch = Annotated[bool, Parameter(negative=(), show_default=False)]
Json = Annotated[Switch, Parameter(name="--json")]
"""Everywhere the same: prints JSON to the standard output, and nothing else there."""
Several = Annotated[tuple[str, ...], Parameter(show_default=False)]
Refresh = Annotated[Switch, Parameter(name="--data.refresh")]
Cache = Annotated[Path | None, Parameter(name="--data.cache")]
Factory = Annotated[str | None, Parameter(name="--model.factory")]


def list_names(meanings: dict[str, str]) -> None:
    """Print names and their meanings, in two columns."""
    width = max(map(len, meanings))
    for name, meaning in meanings.items():
        results.print(Text.assemble((f"{name:{width}}", "bold"), f"  {meaning}"), soft_wrap=True)


def verb(group: Group, name: str | None = None) -> Callable[[_Verb], _Verb]:
    """Make a function a verb. `--help` lists verbs in the order of their definition, in which they are used."""
    return app.command(name=name, group=group, sort_key=next(_position))
