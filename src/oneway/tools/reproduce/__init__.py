"""`oneway reproduce`: the paper's tables and figures."""

from oneway.tools.reproduce.accuracy import Request
from oneway.tools.reproduce.experiments import EXPERIMENTS, Experiment, reproduce
