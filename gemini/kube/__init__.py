"""Kubernetes as we meet it: names, quantities, pods. Only client.py may talk to an API server."""
