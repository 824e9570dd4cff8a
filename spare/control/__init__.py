"""Pure: what is known, what happened, and what to do about it."""
