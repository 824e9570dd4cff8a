"""The protocol's model: every interleaving of small jobs, explored breadth first (design, sections 5 and 6)."""
