"""The scheduler extender: what kube-scheduler asks over HTTP. Only app.py does I/O; others may be given a client."""
