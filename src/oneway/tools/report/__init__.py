"""`oneway report`: one self-contained page about finished runs."""

from oneway.tools.report.page import write_report
