"""Pure: placement, scheduling, patch assignment, theory, and the judge."""
