"""The `spare` command."""
