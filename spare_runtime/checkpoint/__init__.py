"""Checkpoints as files: their folder, their tensors, and the thread that writes them beside the training."""
