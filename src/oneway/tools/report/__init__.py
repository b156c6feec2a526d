"""`oneway report`: one self-contained page about finished runs."""

from oneway.tools.report.after_training import after_training
from oneway.tools.report.gain import describe_gain
from oneway.tools.report.page import write_report
from oneway.tools.report.reading import read_runs
