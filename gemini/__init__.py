"""Shares of a GPU: what people, programs and clusters call. The commands, the Python API, and the cluster's parts.

The API is `share`, `status`, `current` and `set_share` (gemini/api.py); it is imported when it is asked for, so that
`gemini run` starts without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["Card", "OutsideShare", "Problem", "Share", "Status", "Tenant", "current", "set_share", "share", "status"]

if TYPE_CHECKING:
    from gemini.api import Card, OutsideShare, Problem, Share, Status, Tenant, current, set_share, share, status

    __version__: str
else:

    def __getattr__(name: str) -> object:
        if name == "__version__":
            from libhook import info

            return info.version()
        if name in __all__:
            from gemini import api

            return getattr(api, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted([*globals(), *__all__])
