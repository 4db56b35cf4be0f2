"""What people and clusters call: the commands, the extender, the webhook, the device plugin and the reporter."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """`__version__`, read when it is asked for: gemini run starts without it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from libhook import info

    return info.version()
