"""The protocol's model: every interleaving of small jobs, explored breadth first (docs/protocol.md)."""
