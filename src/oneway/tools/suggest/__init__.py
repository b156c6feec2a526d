"""`oneway suggest`: which images to label next."""

from oneway.tools.suggest.command import Suggestions, suggest
