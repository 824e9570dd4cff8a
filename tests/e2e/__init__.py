"""Tests on a real cluster: they know its KUBECONFIG and the names of the images, nothing of where it runs."""
