"""Tests of spare.planner, one file per module, and of what the modules promise together."""
