"""Tests of spare.control."""
