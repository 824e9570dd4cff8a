"""The pod side: agent, session, regroup."""
