"""The daemon's fixed limits, each once."""

from __future__ import annotations

from scheduler_backend.http_door import DoorBounds

# Whoever reaches the metrics port: each connection is answered once.
METRICS_DOOR = DoorBounds(connections=64, seconds=10.0, grace_seconds=1.0, bytes=8 << 10)
METRICS_BACKLOG = 128  # connections that wait in the kernel for room
METRICS_SECONDS = 0.1  # between two renderings: whoever asks meanwhile gets the next one
# Whoever may open the control socket.
CONTROL_DOOR = DoorBounds(connections=128, seconds=60.0, grace_seconds=5.0, bytes=80 << 10)
CONTROL_BACKLOG = 128
CONTROL_BODY_BYTES = 64 << 10
