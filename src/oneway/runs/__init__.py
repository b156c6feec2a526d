"""The run folder: the files of a training run, and functions to write and read them."""

from oneway.common.run_files import CONFIG, METRICS
from oneway.runs.environment import choose_device
from oneway.runs.folder import ModelAlone, Run, data_of, no_run, not_ended, open_run, refuse_occupied, start_run
from oneway.runs.model_file import TrainedModel, load_model, save_model
