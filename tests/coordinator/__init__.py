"""Tests of spare.coordinator, in virtual time."""
