"""What a person did wrong, or this machine lacks: one line with the value and the mend, never a traceback."""

from __future__ import annotations


class Problem(ValueError):
    """The daemon cannot do this. Whoever started it prints the text and ends with status 2 where the options or the
    config file are wrong in themselves, else with 1."""
