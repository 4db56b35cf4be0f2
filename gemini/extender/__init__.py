"""The scheduler extender: what kube-scheduler asks over HTTP. Only app.py may do I/O."""
