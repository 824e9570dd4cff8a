"""Backend on local processes: each group an agent and its worker."""
