"""Shares from within a Python program: `gemini.share`, `gemini.status`, `gemini.current`, `gemini.set_share`.

A share is of processes that are started in it: the library is preloaded, so it is there before the driver, and nothing
brings it into a process that runs. So a Share is an environment, for subprocess by name and for all else, such as
multiprocessing, by a `with` block. It stands as long as this process, or as a process of it that was left running.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NoReturn

from gemini import pools
from gemini.cli import keeper, tenancy
from gemini.cli.comeback import Comeback
from gemini.cli.control import ask, tenant_path
from gemini.cli.node import HOOK, Node, simulation
from gemini.cli.problem import Problem as Problem
from gemini.cli.where import meant
from gemini.units import BadValue, parse_memory, parse_share, resolve_shares

DRIVER = "libcuda.so"
log = logging.getLogger("gemini")


class OutsideShare(RuntimeWarning):
    """A process that was meant to be in a share is not, for it is too late."""


@dataclass(frozen=True)
class Card:
    """A GPU of the machine. `memory`: bytes, 0 where that is not known; `promised`: the sum of the requests on it."""

    index: int
    uuid: str
    name: str
    memory: int
    simulated: bool
    promised: float


@dataclass(frozen=True)
class Tenant:
    """What one was promised and what it gets, as gemini ps shows it. Memory is bytes; limit 0: the whole card.

    `duty`: the part of the time that it holds the card in which its work runs there; None where it is not known.
    """

    name: str
    user: str | None
    request: float
    limit: float
    latency: bool
    entitled: float
    achieved: float
    memory: int
    memory_limit: int
    wait_p99_ms: float | None
    duty: float | None
    gpus: tuple[int, ...]
    pids: tuple[int, ...]
    enforced: str


@dataclass(frozen=True)
class Status:
    """What there is on the machine."""

    cards: tuple[Card, ...]
    tenants: tuple[Tenant, ...]


class Share:
    """A share that processes are started in: by `environment`, or within a `with` block, which it ends with."""

    def __init__(self, node: Node, spec: dict[str, Any], words: list[str], count: int | None) -> None:
        tenant, some = tenancy.placed(node, spec, words, count)
        self.name: str = spec["name"]
        self.request: float = spec["request"]
        self.limit: float = spec["limit"]
        self.memory: int = spec["memory_bytes"]  # 0: the whole card
        self.gpus: tuple[str, ...] = tuple(tenant["gpus"])  # by UUID
        self.variables: dict[str, str] = tenancy.environment(node, spec, tenant, bool(words) or some)
        self._node, self._spec, self._pid = node, spec, os.getpid()
        self._before: dict[str, str | None] = {}
        self._pools: set[str] = set()
        self._open = True
        _here[self._pid, node.state_dir, self.name] = self
        for note in tenancy.notes(node, spec, self.gpus):
            log.warning("%s", note)
        self._comeback = Comeback(node, spec, lambda text: log.warning("%s", text))
        self._comeback.start()
        atexit.register(self.close)

    @property
    def environment(self) -> dict[str, str]:
        """All of the environment of a process in it, for subprocess's `env`."""
        return {**os.environ, **self.variables}

    def __enter__(self) -> Share:
        if not self._open:
            raise Problem(f"the share {self.name} has ended; make a new one with gemini.share()")
        if self._before:
            raise Problem(f"the share {self.name} is entered already; a second with block needs a share of its own")
        if loaded(DRIVER) and not _within(self):
            _warn(
                f"this process has loaded the driver already, so what it does itself, or a process that it forks, is "
                f"outside of the share {self.name}; processes that it starts by spawn or subprocess are within"
            )
        self._pools = pools.running()
        for pool in sorted(self._pools):
            _warn(f"{pools.NAMES[pool]} already, outside of the share {self.name}; {pools.MENDS[pool]}")
        self._before = {name: os.environ.get(name) for name in self.variables}
        os.environ.update(self.variables)
        _entered.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self in _entered:
            _entered.remove(self)
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._before = {}
        pools.end(pools.running() - self._pools)
        self.close()

    def close(self) -> None:
        """No more processes: it ends with the last of those that run."""
        if not self._open or os.getpid() != self._pid:
            return
        self._open = False
        del _here[self._pid, self._node.state_dir, self.name]
        atexit.unregister(self.close)
        self._comeback.stop()
        with suppress(Problem):
            keeper.leave(self._node, self._spec, self.variables["GEMINI_SOCKET"])
            if not _within(self):  # else with this process
                ask(self._node, "DELETE", tenant_path(self.name), timeout=5.0)

    def restart(self) -> None:
        """Begin this program anew within the share, by exec; returns where it is within already. For a program's
        first lines, and not for a notebook."""
        if _within(self):
            return
        if loaded(DRIVER):
            raise Problem(
                f"this process has loaded the driver already: it is too late to begin anew in the share {self.name}; "
                "do so before the first import that uses the GPU, or start it with gemini run"
            )
        _exec(self.environment)


_entered: list[Share] = []
_here: dict[tuple[int, Path, str], Share] = {}  # those of this process (a forked one has none)


def share(
    request: float | str | None = None,
    limit: float | str | None = None,
    memory: int | str | None = None,
    name: str | None = None,
    *,
    latency: bool = False,
    gpu: int | str | Iterable[int | str] | None = None,
    gpus: int | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    sim: str | None = None,
) -> Share:
    """A share of the GPU's time and memory, as `gemini run` gives it, for processes that this one starts.

    `request` and `limit` are parts of a card, 0.3 or "30%"; `memory` a size such as "8GiB" (default: the whole card);
    `name` the tenant's, which processes of several programs may share. `gpu` names cards as `--gpu` does, `gpus` is a
    number of them. Raises ValueError for what no share can be, Problem where there is no room or no daemon.
    """
    least, most = resolve_shares(_text(request), _text(limit))
    node = _node(state_dir, sim)
    spec: dict[str, Any] = {
        "name": name or _own_name(node),
        "request": least,
        "limit": most,
        "memory_bytes": 0 if memory is None else parse_memory(str(memory)),
        "latency": latency,
    }
    node.check_path(str(spec["name"]))
    if (os.getpid(), node.state_dir, spec["name"]) in _here:
        raise Problem(f"this process has a share {name} already; use that one, or another name")
    if name is not None and request is limit is memory is None and not latency:
        spec.update(tenancy.share_of(node, name))
    named = [gpu] if isinstance(gpu, int | str) else list(gpu or ())
    return Share(node, spec, [str(one) for one in named], gpus)


def status(*, state_dir: str | os.PathLike[str] | None = None, sim: str | None = None) -> Status:
    """All cards and tenants of the daemon. Raises Problem where none answers."""
    return _status(_node(state_dir, sim))


def current() -> Tenant | None:
    """The tenant that this process runs in; None: it is in none. Raises Problem where its daemon does not answer."""
    where = _socket()
    if where is None or not loaded(HOOK.name):
        return None
    found = [one for one in _status(_node_of(where)).tenants if one.name == where.parent.name]
    return found[0] if found else None


def set_share(
    name: str | None = None,
    *,
    request: float | str | None = None,
    limit: float | str | None = None,
    memory: int | str | None = None,
    latency: bool | None = None,
    state_dir: str | os.PathLike[str] | None = None,
    sim: str | None = None,
) -> None:
    """Change a running tenant's share, from its next grant on; without a name that of this process. `memory`: a size,
    or "all" for the whole card. Raises ValueError and Problem as `share` does."""
    changed: dict[str, Any] = {}
    if request is not None:
        changed["request"] = parse_share(str(request), "request")
    if limit is not None:
        changed["limit"] = parse_share(str(limit), "limit")
    if memory is not None:
        changed["memory_bytes"] = 0 if memory == "all" else parse_memory(str(memory))
    if latency is not None:
        changed["latency"] = latency
    if not changed:
        raise BadValue("nothing to change; give request, limit, memory or latency")
    node = _node(state_dir, sim)
    if name is None:
        where = _socket()
        if where is None:
            raise Problem("this process is in no share; name the tenant to change")
        name, node = where.parent.name, _node_of(where)
    ask(node, "PATCH", tenant_path(name), changed)


def loaded(library: str) -> bool:
    """Is a file of that name part of this process?"""
    return any(library in line.rpartition("/")[2] for line in Path("/proc/self/maps").read_text().splitlines())


def _text(value: float | str | None) -> str | None:
    return None if value is None else str(value)


def _node(state_dir: str | os.PathLike[str] | None, sim: str | None) -> Node:
    machine = simulation(sim)
    return meant(machine) if state_dir is None else Node(Path(state_dir).absolute(), machine)


def _own_name(node: Node) -> str:
    """Of a share that was given none: after the program, and another for each."""
    program = sys.argv[0] if sys.argv and Path(sys.argv[0]).is_file() else "python"
    first = tenancy.own_name(program)
    others = (f"{first[:59]}-{number}" for number in range(2, 1000))
    return next(name for name in (first, *others) if (os.getpid(), node.state_dir, name) not in _here)


def _socket() -> Path | None:
    """The tenant's socket that this process was started with: what its environment says now may be for its children."""
    for word in Path("/proc/self/environ").read_bytes().split(b"\0"):
        if word.startswith(b"GEMINI_SOCKET="):
            return Path(os.fsdecode(word.partition(b"=")[2]))
    return None


def _node_of(where: Path) -> Node:
    """STATE_DIR/tenants/NAME/tenant.sock is a tenant's socket; a container has nothing but the socket."""
    if len(where.parents) < 4 or where.parents[1].name != "tenants":
        raise Problem(
            f"this process is in a share of its container ({where}), which no program in it can look at; "
            "gemini ps on its node shows it"
        )
    return Node(where.parents[2], simulation(None))


def _within(share: Share) -> bool:
    return str(_socket()) == share.variables["GEMINI_SOCKET"] and loaded(HOOK.name)


def _status(node: Node) -> Status:
    state = ask(node, "GET", "/state")
    tenants = state["tenants"]
    cards = tuple(
        Card(
            index=card["index"],
            uuid=card["uuid"],
            name=str(card.get("name", "GPU")),
            memory=int(card.get("memory_bytes") or 0),
            simulated=bool(card.get("simulated")),
            promised=sum(tenant["request"] for tenant in tenants if card["index"] in tenant["gpus"]),
        )
        for card in state["devices"]
    )
    return Status(cards, tuple(_tenant(tenant) for tenant in tenants))


def _tenant(said: dict[str, Any]) -> Tenant:
    return Tenant(
        name=said["name"],
        user=said["user"],
        request=said["request"],
        limit=said["limit"],
        latency=said["class"] == "latency",
        entitled=said["entitled"],
        achieved=said["achieved"],
        memory=said["memory_bytes"],
        memory_limit=said["memory_limit_bytes"],
        wait_p99_ms=said["wait_ms_p99"],
        duty=said["duty"],
        gpus=tuple(said["gpus"]),
        pids=tuple(said["clients"]),
        enforced=said["enforced"],
    )


def _exec(environment: dict[str, str]) -> NoReturn:
    """This program from its beginning. Its interpreter is asked with the words that it was started with."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _warn(text: str) -> None:
    warnings.warn(text, OutsideShare, stacklevel=3)


def _forked() -> None:
    """In a process that was forked: multiprocessing's, in the with block of a share, was meant to be in it."""
    frame: FrameType | None = sys._getframe()
    while _entered and frame is not None and frame.f_globals.get("__name__") != "multiprocessing.popen_fork":
        frame = frame.f_back
    if _entered and frame is not None and not loaded(HOOK.name):
        _warn(
            f"this process was forked, and so is outside of the share {_entered[-1].name}; use "
            'multiprocessing.get_context("spawn") or "forkserver"'
        )


os.register_at_fork(after_in_child=_forked)
