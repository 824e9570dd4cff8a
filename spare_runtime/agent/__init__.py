"""The agent beside each worker; needs no torch."""
