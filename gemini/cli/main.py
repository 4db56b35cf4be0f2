"""`gemini`: finds the command, reads its options, and turns whatever goes wrong into one line on stderr.

A command is a module with `configure(parser)` and `main(args) -> exit status`; the table below names them. A person's
mistake is a Problem (or a BadValue from units): its text is the line, never a traceback. Exit status 2: wrong use;
1: could not be done; `gemini run` says 125 for both, for every other status is its command's own.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from gemini.cli.problem import Problem, cause_of
from gemini.units import BadValue
from scheduler_backend.logs import printable
from scheduler_backend.problem import Problem as DaemonProblem

COMMANDS = {  # name -> (module, what it does)
    "serve": ("gemini.cli.serve", "the node daemon, in the foreground"),
    "run": ("gemini.cli.run", "run a command as a tenant with a share of the GPU"),
    "logs": ("gemini.cli.follow", "what a program of gemini run --detach writes, or the daemon"),
    "wait": ("gemini.cli.follow", "wait until a tenant is gone; the exit status of one of gemini run --detach"),
    "ps": ("gemini.cli.status", "tenants with their promised and achieved share, memory and waiting time"),
    "top": ("gemini.cli.top", "the same, live"),
    "set": ("gemini.cli.status", "change a running tenant's share"),
    "advise": ("gemini.cli.advise", "what a tenant should ask for, read from what it did"),
    "share": ("gemini.cli.share", "named shares for containers: podman run --device gemini.io/share=NAME"),
    "demo": ("gemini.cli.demo", "three busy tenants on one GPU: promised against achieved, with a plot"),
    "load": ("gemini.cli.load", "the load generator"),
    "place": ("gemini.cli.place", "where pods would go in a cluster, and why not elsewhere"),
    "extender": ("gemini.cli.extender", "the scheduler extender of a Kubernetes cluster"),
    "reporter": ("gemini.cli.reporter", "tells a Kubernetes cluster of this node's cards"),
    "webhook": ("gemini.cli.webhook", "the admission webhook of a Kubernetes cluster"),
    "kubectl": ("gemini.cli.kubectl", "a cluster's cards, who holds them, who waits and why: also `kubectl gemini`"),
    "device-plugin": ("gemini.cli.deviceplugin", "the device plugin of a Kubernetes node"),
    "migrate": ("gemini.cli.migrate", "manifests of HAMi, Volcano or KAI, rewritten in gemini.io's keys"),
    "uninstall": ("gemini.cli.uninstall", "takes off a Kubernetes cluster what helm uninstall does not know of"),
    "trace": ("gemini.cli.trace", "a recorded run: who held the card when, as a picture or for Perfetto; or replayed"),
    "dashboards": ("gemini.cli.dashboards", "alert rules for Prometheus, dashboards for Grafana"),
    "install-service": ("gemini.cli.service", "the machine's own daemon, which its users share, as a systemd service"),
    "completion": ("gemini.cli.completion", "completion for bash, zsh and fish, and manual pages"),
    "check": ("gemini.cli.check", "what is wrong on this machine, and what to do about it"),
}
# What a machine runs out of or has no room for, and what then helps. Any other OSError that nobody expected is our own.
EXHAUSTED = {
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "close something, or raise fs.file-max",
    errno.ENAMETOOLONG: "give a shorter one",
}
EXTRAS = {  # what only some commands import -> the part of pyproject.toml's optional-dependencies that brings it
    **dict.fromkeys(("kubernetes", "orjson", "grpc", "google"), "cluster"),
    **dict.fromkeys(("grafana_foundation_sdk", "yaml"), "dashboards"),
    **dict.fromkeys(("shtab", "argparse_manpage"), "shell"),
    "matplotlib": "plots",
}
SIM_SPEC = re.compile(r"[a-z_]+=")
OWN_FAILURE = 125  # `gemini run`: Gemini itself could not; as docker run, env and timeout say it


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one line that ends with where to read on."""

    def error(self, message: str) -> NoReturn:
        raise Problem(f"{message}; see {self.prog} --help", status=2)


def usage() -> str:
    lines = [f"  {name:<15} {text}" for name, (_, text) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: gemini COMMAND [OPTION]...",
            "",
            "Share one NVIDIA GPU between programs by promised parts of its time and memory.",
            "",
            *lines,
            "",
            "gemini COMMAND --help tells more. Start with: gemini demo",
        ]
    )


def split_sim(arguments: Sequence[str]) -> list[str]:
    """`--sim` alone becomes `--sim=`: argparse would take the next word for its value. One that can be nothing but its
    value (`gpus=2`) is taken."""
    words = list(arguments)
    at = 0
    while at < len(words) and words[at] != "--":
        if words[at] == "--sim":
            told = at + 1 < len(words) and SIM_SPEC.match(words[at + 1])
            words[at : at + 2 if told else at + 1] = ["--sim=" + (words[at + 1] if told else "")]
        at += 1
    return words


def parser_of(name: str) -> Parser:
    """What reads a command's options."""
    module = importlib.import_module(COMMANDS[name][0])
    parser = Parser(prog=f"gemini {name}", description=module.__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    module.configure(parser)
    return parser


def parsers() -> tuple[Parser, dict[str, argparse.ArgumentParser]]:
    """One parser over all commands, for what is made of them; and theirs by name."""
    whole = Parser(prog="gemini", description="Share one NVIDIA GPU between programs by promised parts of its time.")
    commands = whole.add_subparsers(metavar="COMMAND", parser_class=argparse.ArgumentParser)
    each = {}
    for name, (_, text) in COMMANDS.items():
        each[name] = commands.add_parser(name, help=text, parents=[parser_of(name)], add_help=False)
    return whole, each


def dispatch(name: str, arguments: Sequence[str]) -> int:
    args = parser_of(name).parse_args(split_sim(arguments))
    status: int = importlib.import_module(COMMANDS[name][0]).main(args)
    return status


def open_streams() -> None:
    """Standard streams that were closed are the null device, lest a file or socket of ours gets their number."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115


def give_up_output() -> None:
    """What stdout still holds goes nowhere: the interpreter would fail on it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def lacking(error: ImportError) -> str:
    """What this installation lacks, and what brings it."""
    package = (error.name or "").partition(".")[0]
    if isinstance(error, ModuleNotFoundError) and package in EXTRAS:
        from gemini.cli.installed import with_extra

        return f"{package} is not installed; {with_extra(EXTRAS[package])}"
    return f"{cause_of(error)}; gemini check tells what is missing"


def answer(words: Sequence[str]) -> int:
    """What the words ask for; whatever goes wrong is raised."""
    if len(words) > 1 and words[0] == "help" and words[1] in COMMANDS:
        return dispatch(words[1], ["--help"])
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else 2
    if words[0] in ("-V", "--version", "version"):
        from libhook import info

        print("gemini {version} (commit {commit}, library {library})".format_map(info.build()))
        return 0
    if words[0] not in COMMANDS:
        raise Problem(f"{words[0]} is no command; see gemini --help", status=2)
    return dispatch(words[0], words[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    open_streams()
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = words[0] if words else ""
    try:
        status = answer(words)
        sys.stdout.flush()
        return status
    except (Problem, BadValue, DaemonProblem) as problem:
        print("gemini:", printable(" ".join(str(problem).split())), file=sys.stderr)
        if name == "run":
            return OWN_FAILURE
        return problem.status if isinstance(problem, Problem) else 2 if isinstance(problem, BadValue) else 1
    except ImportError as error:
        print(f"gemini: {lacking(error)}", file=sys.stderr)
        return OWN_FAILURE if name == "run" else 1
    except BrokenPipeError:  # `gemini ps | head`
        give_up_output()
        return 0
    except OSError as error:
        if error.errno not in EXHAUSTED:
            raise
        give_up_output()
        where = f"{error.filename}: " if error.filename else ""
        print(f"gemini: {where}{os.strerror(error.errno)}; {EXHAUSTED[error.errno]}", file=sys.stderr)
        return OWN_FAILURE if name == "run" else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
