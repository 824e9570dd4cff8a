"""Tests of what is applied to a cluster, as far as none is needed."""
