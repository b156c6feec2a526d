"""`oneway report`: one self-contained page about finished runs."""

from oneway.tools.report.brought import describe_unlabelled
from oneway.tools.report.page import write_report
