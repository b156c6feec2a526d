"""What can be wrong with a data set: rules of each kind in a file, behind one interface, in one table."""

from oneway.data.check.rules.files import decoding_errors, unreadable_without_labels
from oneway.data.check.rules.interface import WHOLE_SET, Finding, Surveys
from oneway.data.check.rules.table import RULES
