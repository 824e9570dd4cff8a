"""SPARe: stacked parallelism with adaptive reordering, run for real."""
