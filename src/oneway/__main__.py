"""`python -m oneway`."""

import sys

# Python looks for modules in the working folder first then, where a file of anyone's may be called like one of them.
if not sys.flags.safe_path:
    del sys.path[0]

from oneway.cli import run

run()
