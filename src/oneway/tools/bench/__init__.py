"""`oneway bench`: what the paper's tables show, against baselines that are named and measured in the same run."""

from oneway.tools.bench.command import BENCHES, Bench, bench
from oneway.tools.bench.findings import Options
