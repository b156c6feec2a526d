"""A data set is checked before anything trains on it: what is there, and what is wrong with it."""

from oneway.data.check.findings import apply_rules, refuse_errors, summarise
from oneway.data.check.result import Check, check_data
from oneway.data.check.rules.interface import Finding
