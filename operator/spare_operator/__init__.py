"""Backend on Kubernetes and the kopf handlers."""
