"""One command for a machine with a real GPU and no network: `python3 -m bench.gpu_check`.

__main__.py needs nothing but Python: it brings what is missing out of the bundle (make gpu-bundle) or builds it. Then
it starts runner.py, which runs each check of checks.py in a process of its own with a time limit of its own.
"""
