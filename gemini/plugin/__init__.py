"""The device plugin: what the kubelet gives a sharepod, and that it is what the scheduler promised. One a node.

slots.py (ids), claims.py (what a pod on this node was promised), matching.py (which pod the kubelet means), repair.py
(what to do when it meant another), reply.py (environment and mounts) and cores.py are data in, data out. service.py
orders them, with the API server, the kubelet and the daemon given to it; app.py, kubelet.py, daemon.py, host.py do the
I/O. The cards come from the node's Device object, as the reporter wrote it: no NVML here.
"""
