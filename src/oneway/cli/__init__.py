"""The command line. A verb imports what it needs when it runs, so that `--help` answers at once."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pydantic
from cyclopts import CycloptsError, MissingArgumentError, UnusedCliTokensError
from cyclopts.argument import Argument
from rich.console import Console
from rich.text import Text

from oneway import config as configuration
from oneway.cli import studying, training, using  # noqa: F401 (they add their verbs)
from oneway.cli.app import app
from oneway.common.errors import UserError
from oneway.common.failure import BUG_STATUS, describe_bug

__all__ = ["app", "main"]


def main() -> None:
    """The `oneway` command: what the user can mend is said in a line or two, without a traceback."""
    # PyTorch's threads wait for one another many times in a step. By default they spin for long, and on a computer that
    # has other things to do a step can take twenty times as long; if they slept at once, an idle one would be slower.
    # GNU's OpenMP, that of PyTorch on Linux, reads this when PyTorch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    words = [word for word in sys.argv[1:] if word != "--traceback"]
    try:
        try:
            app(words, print_error=False, exit_on_error=False)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # of `oneway … | head`: nobody reads on, which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more as it ends
        sys.exit(128 + signal.SIGPIPE)
    except (Exception, KeyboardInterrupt) as error:
        if len(words) < len(sys.argv) - 1:
            Console(stderr=True).print_exception()
        _fail(*_explained(error))


def _explained(error: BaseException) -> tuple[str, int]:
    """What to say about an error, and the exit status."""
    from oneway.common.interrupt import Interrupted

    match error:
        case UnusedCliTokensError():
            return _surplus(error), 2
        case MissingArgumentError(argument=Argument() as argument):
            return _missing(error, argument), 2
        case CycloptsError():
            cause = error.__cause__
            if not isinstance(cause, pydantic.ValidationError):
                return str(error), 2
            # Of a setting pydantic tells the key; a flag of the verb itself is known to the parser alone.
            flag = error.argument.name if error.argument is not None and not cause.errors()[0]["loc"] else None
            return f"{flag}: {configuration.explain(cause)}" if flag else configuration.explain(cause), 2
        case UserError():
            return str(error), 1
        case Interrupted():
            return str(error), error.exit_status
        case KeyboardInterrupt():
            return "Stopped.", 128 + signal.SIGINT
        case _:
            return describe_bug(error), BUG_STATUS


def _missing(error: MissingArgumentError, argument: Argument) -> str:
    """What to say about a value that is not there, or about a flag that takes several and has fewer."""
    count, _ = argument.token_count()
    if count > 1:
        return (
            f"{argument.name} takes {count} values, and has {len(error.tokens_so_far)}. {argument.parameter.help or ''}"
        )
    problem = "is missing" if error.keyword is None else "needs a value"
    return f"{argument.name} {problem}; `{_verb(error)} --help` says what it is."


def _surplus(error: UnusedCliTokensError) -> str:
    """What to say about words that no option and no argument takes."""
    words = error.unused_tokens or [""]
    if {word.lower() for word in words} & {"true", "false", "yes", "no", "on", "off"}:
        return f"{words[0]!r} has no place here: a switch stands alone, or is given as --flag=no or --no-flag."
    if Path(words[0]).is_dir():
        return f"{words[0]!r} has no place here. If it holds the images: --data {words[0]}."
    return f"{words[0]!r} has no place here; `{_verb(error)} --help` shows what has."


def _verb(error: CycloptsError) -> str:
    return " ".join(["oneway", *(error.command_chain or ())])


def _fail(message: str, status: int) -> None:
    Console(stderr=True).print(Text.assemble(("oneway: ", "bold red"), message), soft_wrap=True)
    sys.exit(status)
