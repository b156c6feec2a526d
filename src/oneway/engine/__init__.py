"""Runs a method: batches, gradients, the guard, the optimiser; on a GPU as one captured graph."""
