"""`oneway reproduce`: the paper's tables and figures."""

from oneway.tools.reproduce.experiments import EXPERIMENTS, Experiment, reproduce
from oneway.tools.reproduce.jobs import Request
