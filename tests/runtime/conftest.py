"""Settings of these tests."""

from __future__ import annotations

from hypothesis import settings

# A busy machine, and torch's first call of each kind, take longer than hypothesis grants; pytest has a deadline anyway.
settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
