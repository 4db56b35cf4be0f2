"""What a person can mend: the exception whose text main.py prints as one line."""

from __future__ import annotations


class Problem(Exception):
    """Something that Gemini could not do. The text names the value and the mend; `status` is the exit status."""

    def __init__(self, text: str, status: int = 1) -> None:
        super().__init__(" ".join(text.split()))
        self.status = status
