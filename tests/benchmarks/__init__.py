"""The benchmarks' bookkeeping."""
