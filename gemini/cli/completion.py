"""Completion for shells and manual pages, made of the same parsers as --help.

gemini completion bash > ~/.local/share/bash-completion/completions/gemini
gemini completion zsh > DIR/_gemini        # DIR: one of zsh's $fpath
gemini completion fish > ~/.config/fish/completions/gemini.fish
gemini completion man --out ~/.local/share/man/man1
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gemini.cli.main import COMMANDS, parser_of, parsers
from gemini.cli.problem import Problem

SHELLS = ("bash", "zsh", "fish")
FILES, FOLDERS = ("FILE", "FILE.json", "SCENARIO.json"), ("DIR",)
SUMMARY = "share one NVIDIA GPU between programs"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=(*SHELLS, "man"), help="the shell whose completion is printed; man: pages")
    parser.add_argument("--out", metavar="DIR", type=Path, help="where the manual pages go, one for each command")


def main(args: argparse.Namespace) -> int:
    if (args.what == "man") != (args.out is not None):
        raise Problem("gemini completion man needs --out DIR; a shell's completion is printed", status=2)
    if args.what != "man":
        print(script(args.what), end="")
        return 0
    try:
        args.out.mkdir(parents=True, exist_ok=True)
        for name, text in pages().items():
            (args.out / name).write_text(text)
            print(args.out / name)
    except OSError as error:
        raise Problem(f"--out {args.out}: {error.strerror}; name a folder that you may write") from None
    return 0


def script(shell: str) -> str:
    """What that shell reads."""
    import shtab

    whole, each = parsers()
    for parser in each.values():
        for action in parser._actions:
            if action.metavar in (*FILES, *FOLDERS):
                action.complete = shtab.DIRECTORY if action.metavar in FOLDERS else shtab.FILE  # type: ignore[attr-defined]
    made: str = shtab.complete(whole, shell)
    return made


def pages() -> dict[str, str]:
    """File name -> manual page: gemini(1), and one for each command."""
    from argparse_manpage.manpage import Manpage

    from libhook import info

    whole, _ = parsers()
    found = {}
    for name in ("", *COMMANDS):
        parser = parser_of(name) if name else whole
        page = Manpage(parser)
        page.prog = f"gemini-{name}" if name else "gemini"
        page.description = COMMANDS[name][1] if name else SUMMARY
        page.source, page.manual = f"Gemini {info.version()}", "Gemini"
        found[f"{page.prog}.1"] = str(page)
    return found
