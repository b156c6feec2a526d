"""The `oneway` command, and what it says when it fails."""

from __future__ import annotations

import atexit
import os
import platform
import shlex
import signal
import sys
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

import pydantic
from cyclopts import (
    CycloptsError,
    MissingArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)
from cyclopts.argument import Argument

from oneway import config as configuration
from oneway.cli import studying, training, using  # noqa: F401 (they add the verbs)
from oneway.cli.app import app
from oneway.common.address_space import is_out_of_memory, is_out_of_threads, require_address_space
from oneway.common.console import Console, close_streams, open_streams, warn
from oneway.common.errors import UnknownName, UserError, describe_system_error
from oneway.common.failure import BUG_STATUS, describe_bug
from oneway.common.importing import claim_process
from oneway.common.words import PROGRAM, command, first_line, listed, visible
from oneway.common.working_folder import refuse_foreign_libraries, require_working_folder
from oneway.methods import METHODS

EXAMPLES = {
    "DATA": " For a folder of images: oneway check photos",
    "RECIPE": " For images of your own: oneway train folder --data photos",
    "RUN": " `oneway runs` lists the runs below runs/.",
}
"""What is added where an argument is missing, by its name."""

USUAL = ("quickstart", "check", "train", "eval", "report", "predict", "export")
"""Verbs on the way from data to masks, in the order in which they are used."""


def run() -> None:
    """`main` in a process of its own, which the system then takes back as a whole.

    Python alone would take apart, object by object, what PyTorch and timm have made: a second of work for nothing.
    """
    status = 0

    def leave() -> None:
        close_streams()
        os._exit(status)

    # What is registered first is called last: no thread is left then, and everyone else has cleaned up.
    atexit.register(leave)
    claim_process()
    try:
        main()
    except BaseException as end:
        status = (end.code or 0) if isinstance(end, SystemExit) and isinstance(end.code, int | None) else 1
        raise


def main() -> None:
    """Run the command. An error that the user can correct is a line or two, without a traceback."""
    # PyTorch's threads wait for one another many times in a step. By default they wait long in a busy loop, and on a
    # busy computer a step can take twenty times as long; without any such loop, a step would be slower on an idle one.
    # GNU's OpenMP, which PyTorch uses on Linux, reads this when PyTorch is loaded.
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
    # What is in the working folder is nobody's module: not for the Python processes that this one starts either.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    # Figures go into files. The screen that another program would draw on (Jupyter says so here) may be one that
    # Matplotlib does not know, or no longer: importing it would fail, after days of training.
    os.environ.pop("MPLBACKEND", None)
    open_streams()
    if any(callable(method.losses) for method in METHODS.values()):  # a method of the file that was started
        PROGRAM[:] = ["python", sys.argv[0]]
    words = [word for word in sys.argv[1:] if word != "--traceback"]
    try:
        require_working_folder()
        refuse_foreign_libraries()
        if words and words[0] != "check" and not {"-h", "--help", "--version"} & {*words}:
            require_address_space()
        app(words, print_error=False, exit_on_error=False)
    except BrokenPipeError:  # `oneway eval … | head`: the reader has what it wanted, which is no error
        sys.exit(128 + signal.SIGPIPE)
    except (Exception, KeyboardInterrupt) as error:
        if len(words) < len(sys.argv) - 1:
            Console(stderr=True).print_exception()
        _fail(*_explain(error))
    finally:
        close_streams()


def _explain(error: BaseException) -> tuple[str, int]:
    """The message for an error, and the exit status."""
    from oneway.common.interrupt import Interrupted, Stopped

    match error:
        case UnusedCliTokensError():
            return _explain_unused(error), 2
        case MissingArgumentError(argument=Argument() as argument):
            return _explain_missing(error, argument), 2
        case UnknownCommandError(unused_tokens=[word, *_]):
            return _explain_verb(word), 2
        case UnknownOptionError():
            return _explain_option(error), 2
        case CycloptsError():
            cause = error.__cause__
            if not isinstance(cause, pydantic.ValidationError):
                return str(error), 2
            # Pydantic names the key of a setting; only the parser knows the name of a flag of the verb itself.
            is_setting = any(isinstance(part, str) for part in cause.errors()[0]["loc"])  # and no place in a tuple
            flag = error.argument.name if error.argument is not None and not is_setting else None
            return f"{flag}: {configuration.explain(cause)}" if flag else configuration.explain(cause), 2
        case UserError():  # a word that is none of those known has one status, be it an argument or a flag's value
            return str(error), 2 if isinstance(error, UnknownName) else 1
        case Interrupted():
            return str(error), error.exit_status
        case _ if is_out_of_memory(error):
            return f"Out of memory ({first_line(error)}).", 1
        case _ if is_out_of_threads(error):
            return (
                f"No further thread or process can be started ({first_line(error)}): their number is limited, "
                "or memory is used up. Raise the limit (`ulimit -u`; of a container, that of pids), or end others."
            ), 1
        case Stopped():
            return "Stopped.", 128 + error.number
        case KeyboardInterrupt():
            return "Stopped.", 128 + signal.SIGINT
        case OSError() if message := describe_system_error(error):
            return message, 1
        case _:
            return describe_bug(error), BUG_STATUS


def _explain_missing(error: MissingArgumentError, argument: Argument) -> str:
    """The message for a missing value, or for a flag with fewer values than it takes."""
    count, _ = argument.token_count()
    if count > 1:
        meaning = f" {text}" if (text := _meaning(error, argument)) else ""
        return f"{argument.name} takes {count} values, and has {len(error.tokens_so_far)}.{meaning}"
    name = argument.name if argument.name.startswith("-") else argument.name.upper()  # as the help writes it
    problem = "is missing" if error.keyword is None else "needs a value"
    example = EXAMPLES.get(name, "") if error.keyword is None else ""
    return f"{name} {problem}; `{_verb(error)} --help` says what it is.{example}"


def _meaning(error: MissingArgumentError, argument: Argument) -> str:
    """The help of a flag; that of a verb's own flags stands in its docstring, which is only read when it is needed."""
    if argument.parameter.help or error.app is None:
        return argument.parameter.help or ""
    every = error.app.assemble_argument_collection(parse_docstring=True)
    return next((known.parameter.help or "" for known in every if known.name == argument.name), "")


def _explain_verb(word: str) -> str:
    """The message for a verb that there is not: the nearest one, or those that most users need."""
    near = get_close_matches(word, [name for name in app if not name.startswith("-")], n=1)
    hint = f"Did you mean '{near[0]}'?" if near else f"The usual ones are {listed(USUAL, most=None)};"
    return f"Unknown verb '{visible(word[:200], lines=False)}'. {hint} `oneway --help` lists all."


def _explain_option(error: UnknownOptionError) -> str:
    """The message for a flag that there is not: one spelt nearly so, or with its first word or letters (`--lr`)."""
    given = (error.token.keyword or error.token.value).partition("=")[0]
    word = given.lstrip("-").replace("_", "-")
    flags = dict.fromkeys(name for known in error.argument_collection if known.parse for name in known.names)
    settings = {name: name.lstrip("-").rpartition(".")[2] for name in flags}
    nearest = get_close_matches(word, settings.values(), n=1, cutoff=0.8)
    near = (
        get_close_matches(given, settings, n=1, cutoff=0.8)
        or [name for name in flags if given.startswith(f"{name}.")]  # as config.yaml has it: data.path
        or [name for name, setting in settings.items() if setting in nearest]
        or [name for name, setting in settings.items() if setting.partition("-")[0] == word.partition("-")[0]]
        or [name for name, setting in settings.items() if "-" in setting and _initials(setting) == word]
    )
    hint = f"Did you mean {listed(near, joint='or')}? " if near else ""
    return f"Unknown flag '{visible(given[:200], lines=False)}'. {hint}`{_verb(error)} --help` lists all."


def _initials(name: str) -> str:
    return "".join(part[:1] for part in name.split("-"))


def _explain_unused(error: UnusedCliTokensError) -> str:
    """The message for words that belong to no flag and no argument."""
    words = error.unused_tokens or [""]
    if ("--json", words[0]) in pairwise(error.root_input_tokens or ()):
        file = shlex.quote(words[0])
        return f"--json takes no file: it prints to the standard output, and `> {file}` writes that to a file."
    if {word.lower() for word in words} & {"true", "false", "yes", "no", "on", "off"}:
        return f"{words[0]!r} is not expected here: a switch takes no value. To turn one off: --flag=no or --no-flag."
    if Path(words[0]).is_dir():
        return f"{words[0]!r} is not expected here. If it holds the images: {command('--data', Path(words[0]))}."
    return f"{words[0]!r} is not expected here; `{_verb(error)} --help` lists what is."


def _verb(error: CycloptsError) -> str:
    return " ".join([*PROGRAM, *(error.command_chain or ())])


def _fail(message: str, status: int) -> None:
    rank, of = os.environ.get("RANK"), os.environ.get("WORLD_SIZE", "1")
    who = f"process {rank} of {of} on {platform.node()}: " if of != "1" else ""  # one of several that torchrun started
    warn(f"{who}{message}")
    sys.exit(status)
