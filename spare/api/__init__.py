"""Pure: the job file, the wire messages, exit codes and event reasons: what all programs agree on."""
