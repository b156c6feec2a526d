"""The training engine: data feeding, the step with its guard and optimiser, CUDA graphs, distributed training."""
