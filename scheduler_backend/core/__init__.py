"""The token machine: pure policy. No clock, socket, thread, file or log is reached from here; integers only.

`node.Node.handle(event, now_ns)` is the way in and returns actions; `machine.TokenMachine` is one GPU of it. What
time it is comes as an argument, and a deadline goes out as the action `WakeAt`, so that the same events at the same
times give the same actions: a recorded trace replays.
"""
