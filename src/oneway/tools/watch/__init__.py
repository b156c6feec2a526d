"""A page on this computer that shows runs while they train; it reads their folders, and touches nothing."""

from oneway.tools.watch.command import watch
