"""The admission webhook: what the API server asks before it stores a pod. Only app.py may do I/O."""
