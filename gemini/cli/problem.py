"""What a person can mend: the exception whose text main.py prints as one line."""

from __future__ import annotations


def cause_of(error: BaseException) -> str:
    """The first line of what an error began with: packages wrap the loader's plain word in pages of advice."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class Problem(Exception):
    """Something that Gemini could not do. The text names the value and the mend; `status` is the exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(" ".join(text.split()))
        self.status = status
