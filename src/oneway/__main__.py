"""`python -m oneway`."""

from oneway.cli import main

main()
