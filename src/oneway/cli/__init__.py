"""The command line. A verb imports what it needs when it runs, so that `--help` answers at once."""

from oneway.cli.app import app
from oneway.cli.command import main, run
