"""Services that draw a run's curves while it trains: TensorBoard, Weights & Biases, MLflow.

The run folder is the truth. Each service has a process of its own that follows `metrics.jsonl` there, so that whatever
happens to it, training neither waits nor changes.
"""

from oneway.tools.loggers.followers import follow_run
from oneway.tools.loggers.interface import TITLES, About, require_services, services_of
