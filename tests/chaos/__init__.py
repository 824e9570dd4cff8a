"""The real coordinator, agents and workers in one process, in virtual time, over a network that fails by a seed."""
