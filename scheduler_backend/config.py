"""Settings: one table of options, a TOML file and command-line arguments in, a frozen Settings out.

    quota_ms = 10
    [tenants.a]
    request = 0.5
    limit = "60%"
    memory = "4GiB"

    [users.default]
    request = 0.5

Every constant of the policy (core/policy.py) is an option: `_ns` there is `_ms` here. The rest stands in DAEMON.
Shares of `[tenants]` and bounds of `[users]` (users.py) are read again on SIGHUP or when the file changes; the other
options hold until the daemon ends.
"""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scheduler_backend import private, readers
from scheduler_backend.core.policy import MS, Policy
from scheduler_backend.core.tenant import WHOLE_PPM, InvalidSpec, TenantSpec, share_text, validate
from scheduler_backend.problem import Problem
from scheduler_backend.users import Bounds, Users

SYSTEM_STATE_DIR = Path("/run/gemini")  # the daemon on it is the machine's own, and its shares are everybody's


@dataclass(frozen=True)
class TenantSettings:
    """A tenant of the file. `gpus` as written: indices or UUIDs; empty is all."""

    name: str
    request_ppm: int
    limit_ppm: int
    memory_bytes: int = 0
    latency: bool = False
    gpus: tuple[Any, ...] = ()

    def spec(self, find: Callable[[Any], int], gpu_count: int) -> TenantSpec:
        """The promise, with its GPUs found."""
        gpus = tuple(find(gpu) for gpu in self.gpus) or tuple(range(gpu_count))
        return TenantSpec(self.name, self.request_ppm, self.limit_ppm, self.memory_bytes, self.latency, gpus)


@dataclass(frozen=True)
class Settings:
    """Everything the daemon was told, parsed once."""

    state_dir: Path
    config: Path | None = None
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"
    wait: bool = False  # for a daemon on the same state directory to end
    ready_file: Path | None = None  # made once we serve, or wait to
    sim: str | None = None  # a GEMINI_SIM text; None: the real GPUs
    idle_exit_seconds: float | None = None  # end so long after the last tenant
    trace: bool = True
    trace_bytes: int = 256 << 20
    log: str = "warning"
    cdi_dir: Path | None = None  # where CDI specs of shares go; None: as gemini/cli/serve.py chooses
    policy: Policy = field(default_factory=Policy)
    tenants: tuple[TenantSettings, ...] = ()
    users: Users = field(default_factory=Users)
    group: str | None = None  # whose members may use the control socket, besides its owner


# Options of the daemon: name in the file (and, with dashes, on the command line) -> (reader, what it does).
DAEMON: dict[str, tuple[readers.Reader, str]] = {
    "metrics_port": (readers.port, "also serve /metrics /healthz /readyz on this port, over HTTP (0: any free port)"),
    "metrics_host": (readers.text, "address of metrics_port (127.0.0.1); 0.0.0.0 lets other machines read"),
    "wait": (readers.flag, "wait until a daemon on the same state directory ends, and take over from it"),
    "ready_file": (readers.path, "make this file once the daemon serves, or waits to"),
    "sim": (readers.text, "simulated GPUs, such as gpus=2,memory=80GiB; empty: one"),
    "idle_exit_seconds": (readers.seconds, "end so many seconds after the last tenant"),
    "trace": (readers.flag, "record events and actions in trace.jsonl"),
    "trace_bytes": (readers.trace_bytes, "trace.jsonl of this size goes on in a new part, 64KiB at least"),
    "log": (readers.level, "error, warning, info or debug"),
    "group": (readers.text, "group whose members may use the daemon, each user for tenants of his own"),
    "cdi_dir": (
        readers.path,
        "folder of the shares' CDI specs; on /run/gemini /var/run/cdi, else STATE_DIR/cdi",
    ),
}
_POLICY_READERS: dict[str, readers.Reader] = {
    "ordering": readers.ordering,
    "preemption": readers.flag,
    "shared": readers.flag,
    "shared_limits": readers.flag,
    "extend_silent": readers.count,
    "ahead": readers.count,
}
# Options of the policy: name in the file -> (field of Policy, reader).
POLICY: dict[str, tuple[str, readers.Reader]] = {
    (name.removesuffix("_ns") + "_ms" if name.endswith("_ns") else name): (
        name,
        readers.milliseconds if name.endswith("_ns") else _POLICY_READERS[name],
    )
    for name in Policy._fields
}
MOST_BYTES = 1 << 20  # of a file: thousands of tenants; /dev/zero has no end
_USER_KEYS: dict[str, readers.Reader] = {  # of [users.NAME], and how each is read
    "request": readers.share,
    "limit": readers.share,
    "memory": readers.parse_bytes,
    "tenants": readers.count,
    "latency": readers.flag,
}
_TENANT_KEYS = ("request", "limit", "memory", "class", "gpus")


def folder(text: str) -> Path:
    """A folder that was named; an empty text, as of a variable that is not set, would be the current one."""
    if not text:
        raise argparse.ArgumentTypeError("'' is no folder; name one")
    return Path(text)


def default_state_dir() -> Path:
    """/run/gemini for root, else below XDG_RUNTIME_DIR if that is this user's, else in /tmp."""
    if os.geteuid() == 0:
        return SYSTEM_STATE_DIR
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime) / "gemini" if runtime and _is_mine(runtime) else private.own_folder(os.getuid())


def _is_mine(folder: str) -> bool:
    """su and sudo may leave a variable behind that names another user's."""
    try:
        return os.stat(folder).st_uid == os.geteuid()
    except OSError:
        return False


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the daemon's options to a parser."""
    parser.add_argument("--config", metavar="FILE", type=Path, help="TOML file with settings and tenants")
    parser.add_argument("--state-dir", metavar="DIR", type=folder, help="where sockets and state lie")
    parser.add_argument("--metrics-port", metavar="N", help=DAEMON["metrics_port"][1])
    parser.add_argument("--metrics-host", metavar="ADDRESS", help=DAEMON["metrics_host"][1])
    parser.add_argument("--wait", action="store_true", default=None, help=DAEMON["wait"][1])
    parser.add_argument("--ready-file", metavar="FILE", help=DAEMON["ready_file"][1])
    parser.add_argument("--sim", metavar="SPEC", nargs="?", const="", help=DAEMON["sim"][1])
    parser.add_argument("--idle-exit", metavar="S", dest="idle_exit_seconds", help=DAEMON["idle_exit_seconds"][1])
    parser.add_argument("--no-trace", dest="trace", action="store_false", default=None, help="record no trace.jsonl")
    parser.add_argument("--log", metavar="LEVEL", help=DAEMON["log"][1])
    parser.add_argument("--group", metavar="NAME", help=DAEMON["group"][1])
    parser.add_argument("--cdi-dir", metavar="DIR", type=folder, help=DAEMON["cdi_dir"][1])


def read_settings(args: argparse.Namespace) -> Settings:
    """File and arguments to Settings; an argument wins over the file. Raises Problem."""
    values, policy, tenants = read_file(args.config) if args.config is not None else ({}, Policy(), ())
    for name in DAEMON:
        given = getattr(args, name, None)
        if given is not None:
            option = "--" + name.removesuffix("_seconds").replace("_", "-")
            values[name] = DAEMON[name][0](readers.number(given), option)
    if (sim := values.get("sim", os.environ.get("GEMINI_SIM") or None)) is not None:
        values["sim"] = sim or os.environ.get("GEMINI_SIM") or "gpus=1"
    state_dir = (args.state_dir or default_state_dir()).absolute()
    return Settings(state_dir=state_dir, config=args.config, policy=policy, tenants=tenants, **values)


def read_file(path: Path) -> tuple[dict[str, Any], Policy, tuple[TenantSettings, ...]]:
    """The daemon's values, the policy and the tenants of a TOML file; raises Problem naming the line or the key."""
    try:
        with path.open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise Problem(f"config {path} is longer than {MOST_BYTES >> 10} KiB; name a TOML file with settings")
        raw = tomllib.loads(text.decode("utf-8"))
    except OSError as error:
        raise Problem(f"config {path}: {error.strerror}; name a file that can be read") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Problem(f"config {path} is no TOML: {error}; mend it there") from None
    values: dict[str, Any] = {}
    changes: dict[str, Any] = {}
    tenants: tuple[TenantSettings, ...] = ()
    for key, value in raw.items():
        where = f"config {path}: {key}"
        if key == "tenants":
            tenants = _tenants(value, where)
        elif key == "users":
            values["users"] = _users(value, where)
        elif key in DAEMON:
            values[key] = DAEMON[key][0](value, where)
        elif key in POLICY:
            name, reader = POLICY[key]
            changes[name] = reader(value, where)
        else:
            raise Problem(f"{where} is unknown; there are {', '.join([*DAEMON, *POLICY, 'tenants', 'users'])}")
    policy = Policy(**changes)
    if policy.least_quota_ns > policy.quota_ns:
        raise Problem(
            f"config {path}: least_quota_ms {policy.least_quota_ns / MS:g} is above quota_ms {policy.quota_ns / MS:g}; "
            f"lower it"
        )
    return values, policy, tenants


def fixed_options(path: Path) -> dict[str, Any]:
    """What the file says of everything that holds until the daemon ends, by the keys as written; raises Problem."""
    values, policy, _ = read_file(path)
    values.pop("users", None)
    return {**values, **{key: getattr(policy, name) for key, (name, _) in POLICY.items()}}


def changed_options(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The keys whose values differ, sorted: what takes effect with a restart only."""
    return sorted(key for key in {*before, *now} if before.get(key) != now.get(key))


def _tenants(raw: object, where: str) -> tuple[TenantSettings, ...]:
    if not isinstance(raw, dict):
        raise Problem(f"{where} is no table; write [tenants.NAME]")
    found = []
    for name, entry in raw.items():
        if not isinstance(entry, dict):
            raise Problem(f"{where}.{name} is no table; write [tenants.{name}]")
        for key in entry:
            if key not in _TENANT_KEYS:
                raise Problem(f"{where}.{name}.{key} is unknown; there are {', '.join(_TENANT_KEYS)}")
        service = entry.get("class", "batch")
        if service not in ("latency", "batch"):
            raise Problem(f"{where}.{name}.class {service!r} is unknown; there are latency, batch")
        given = entry.get("gpus", [])
        gpus = tuple(given) if isinstance(given, list) else (given,)
        if not all(type(gpu) in (int, str) for gpu in gpus) or len({str(gpu) for gpu in gpus}) < len(gpus):
            raise Problem(f"{where}.{name}.gpus {given!r} is no list of GPUs, each once; give indices or UUIDs, as [0]")
        request, limit = readers.resolve(entry.get("request"), entry.get("limit"), name)
        memory = readers.parse_bytes(entry.get("memory", 0), f"{where}.{name}.memory")
        try:
            validate(TenantSpec(name, request, limit, memory), 1)
        except InvalidSpec as error:
            raise Problem(f"{where}.{name}: {error}") from None
        found.append(TenantSettings(name, request, limit, memory, service == "latency", gpus))
    _check_sums(found, where)
    return tuple(found)


def _users(raw: object, where: str) -> Users:
    if not isinstance(raw, dict):
        raise Problem(f"{where} is no table; write [users.NAME]")
    tables = {}
    for name, entry in raw.items():
        if not isinstance(entry, dict):
            raise Problem(f"{where}.{name} is no table; write [users.{name}]")
        if unknown := [key for key in entry if key not in _USER_KEYS]:
            raise Problem(f"{where}.{name}.{unknown[0]} is unknown; there are {', '.join(_USER_KEYS)}")
        read = {key: _USER_KEYS[key](value, f"{where}.{name}.{key}") for key, value in entry.items()}
        fields = {"request": "request_ppm", "limit": "limit_ppm", "memory": "memory_bytes"}
        tables[name] = Bounds(**{fields.get(key, key): value for key, value in read.items()})
    return Users(tables)


def _check_sums(tenants: list[TenantSettings], where: str) -> None:
    """Raise Problem where more than the whole of a card is promised, whatever cards there are: by `gpus` as written."""
    named = sorted({str(gpu) for tenant in tenants for gpu in tenant.gpus})
    for gpu in ("", *named):
        on_it = [
            tenant for tenant in tenants if tenant.request_ppm and (not tenant.gpus or gpu in map(str, tenant.gpus))
        ]
        promised = sum(tenant.request_ppm for tenant in on_it)
        if promised > WHOLE_PPM:
            requests = " + ".join(f"{tenant.name} {share_text(tenant.request_ppm)}" for tenant in on_it)
            card = f"GPU {gpu}" if gpu else "each GPU"
            raise Problem(f"{where}: {requests} promise {share_text(promised)} of {card}; lower them to 1 together")
