"""The run folder: the files of a training run, and functions to write and read them.

Most of them need PyTorch, and a list of runs does without: a name is imported when it is first asked for.
"""

from typing import TYPE_CHECKING

from oneway.common.importing import on_demand
from oneway.common.run_files import CONFIG, METRICS

if TYPE_CHECKING:
    from oneway.runs.environment import choose_device
    from oneway.runs.folder import ModelAlone, Run, data_of, no_run, not_ended, open_run, refuse_occupied, start_run
    from oneway.runs.model_file import TrainedModel, load_model, save_model

__getattr__ = on_demand(
    __name__,
    environment=("choose_device",),
    folder=("ModelAlone", "Run", "data_of", "no_run", "not_ended", "open_run", "refuse_occupied", "start_run"),
    model_file=("TrainedModel", "load_model", "save_model"),
)
