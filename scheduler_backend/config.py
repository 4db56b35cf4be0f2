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
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from scheduler_backend import private
from scheduler_backend.core.policy import MS, ORDERINGS, Policy
from scheduler_backend.core.tenant import WHOLE_PPM, InvalidSpec, TenantSpec, share_text, validate
from scheduler_backend.problem import Problem
from scheduler_backend.users import Bounds, Users

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGTPE]?)(i?)B?")
LONGEST_NUMBER = 64  # characters of a share or a size; whoever writes more means none
SYSTEM_STATE_DIR = Path("/run/gemini")  # the daemon on it is the machine's own, and its shares are everybody's
LEAST_TRACE_BYTES = 64 << 10  # the opening of a file takes up to 4 KiB, and events are written a hundred at a time


def parse_share(value: object, what: str) -> int:
    """0.3, "0.3" or "30%" as ppm; raises Problem with the value. The range is the tenant's matter."""
    text = _short(value)
    try:
        if isinstance(value, bool) or len(text) > LONGEST_NUMBER:
            raise InvalidOperation
        number = Decimal(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
        if not number.is_finite() or abs(number) > 1000:
            raise InvalidOperation
    except InvalidOperation:
        raise Problem(f"{what} {text!r} is no share; write it such as 0.3 or 30%") from None
    return round(number * WHOLE_PPM)


def _short(value: object) -> str:
    """A value's text without the blanks around it, and no longer than can be told from one that is too long."""
    text = str(value).strip()
    return text if len(text) <= LONGEST_NUMBER else f"{text[:LONGEST_NUMBER]}..."


def parse_bytes(value: object, what: str) -> int:
    """4294967296, "4Gi", "4GiB", "4G" or "512Mi" as bytes; raises Problem with the value."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63:
        return value
    text = _short(value)
    match = _SIZE.fullmatch(text) if isinstance(value, str) and len(text) <= LONGEST_NUMBER else None
    if match is None:
        told = repr(text) if isinstance(value, str) else text
        raise Problem(f"{what} {told} is no size; write it such as 4GiB, 512Mi or 4G")
    power = " KMGTPE".index(match[2].upper()) if match[2] else 0
    size = int(Decimal(match[1]) * (1024 if match[3] else 1000) ** power)
    if size >= 1 << 63:
        raise Problem(f"{what} {value!r} is more than any card has; write it such as 4GiB")
    return size


def resolve(request: object, limit: object, name: str) -> tuple[int, int]:
    """Request and limit in ppm with Kubernetes' defaults: no limit is 1, no request beside a limit equals it."""
    limit_ppm = parse_share(limit, f"tenant {name}: limit") if limit is not None else WHOLE_PPM
    if request is not None:
        return parse_share(request, f"tenant {name}: request"), limit_ppm
    return (limit_ppm if limit is not None else 0), limit_ppm


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


def _flag(value: object, what: str) -> bool:
    if isinstance(value, bool):
        return value
    raise Problem(f"{what} {value!r} is neither true nor false; write one of them")


def _milliseconds(value: object, what: str) -> int:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 3_600_000:
        return round(value * MS)
    raise Problem(f"{what} {value!r} is no time; give milliseconds above 0, such as 10")


def _count(value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 1000:
        return value
    raise Problem(f"{what} {value!r} is no count; give a whole number from 0 to 1000")


def _trace_bytes(value: object, what: str) -> int:
    size = parse_bytes(value, what)
    if size < LEAST_TRACE_BYTES:
        raise Problem(f"{what} {value!r} is too little for a trace; give 64KiB or more, or trace = false")
    return size


def _ordering(value: object, what: str) -> str:
    if isinstance(value, str) and value in ORDERINGS:
        return value
    raise Problem(f"{what} {value!r} is unknown; there are {', '.join(ORDERINGS)}")


def _port(value: object, what: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 65535:
        return value
    raise Problem(f"{what} {value!r} is no port; give a number from 1 to 65535, or 0 for any free one")


def _seconds(value: object, what: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    raise Problem(f"{what} {value!r} is no time; give seconds, 0 or more")


def _level(value: object, what: str) -> str:
    if isinstance(value, str) and value in ("error", "warning", "info", "debug"):
        return value
    raise Problem(f"{what} {value!r} is unknown; there are error, warning, info, debug")


def _text(value: object, what: str) -> str:
    if isinstance(value, str):
        return value
    raise Problem(f"{what} {value!r} is no text; write it in quotes")


def _path(value: object, what: str) -> Path:
    if isinstance(value, str | Path) and str(value):
        return Path(value).absolute()
    raise Problem(f"{what} {value!r} is no path; give one")


Reader = Callable[[object, str], Any]
# Options of the daemon: name in the file (and, with dashes, on the command line) -> (reader, what it does).
DAEMON: dict[str, tuple[Reader, str]] = {
    "metrics_port": (_port, "also serve /metrics /healthz /readyz on this port, over HTTP (0: any free port)"),
    "metrics_host": (_text, "address of metrics_port (127.0.0.1); 0.0.0.0 lets other machines read"),
    "wait": (_flag, "wait until a daemon on the same state directory ends, and take over from it"),
    "ready_file": (_path, "make this file once the daemon serves, or waits to"),
    "sim": (_text, "simulated GPUs, such as gpus=2,memory=80GiB; empty: one"),
    "idle_exit_seconds": (_seconds, "end so many seconds after the last tenant"),
    "trace": (_flag, "record events and actions in trace.jsonl"),
    "trace_bytes": (_trace_bytes, "trace.jsonl of this size goes on in a new part, 64KiB at least"),
    "log": (_level, "error, warning, info or debug"),
    "group": (_text, "group whose members may use the daemon, each user for tenants of his own"),
    "cdi_dir": (
        _path,
        "folder of the shares' CDI specs; on /run/gemini /var/run/cdi, else STATE_DIR/cdi",
    ),
}
_POLICY_READERS: dict[str, Reader] = {
    "ordering": _ordering,
    "preemption": _flag,
    "shared": _flag,
    "shared_limits": _flag,
    "extend_silent": _count,
    "ahead": _count,
}
# Options of the policy: name in the file -> (field of Policy, reader).
POLICY: dict[str, tuple[str, Reader]] = {
    (name.removesuffix("_ns") + "_ms" if name.endswith("_ns") else name): (
        name,
        _milliseconds if name.endswith("_ns") else _POLICY_READERS[name],
    )
    for name in Policy._fields
}
MOST_BYTES = 1 << 20  # of a file: thousands of tenants; /dev/zero has no end
_USER_KEYS: dict[str, Callable[[object, str], Any]] = {  # of [users.NAME], and how each is read
    "request": lambda value, where: _share(value, where),
    "limit": lambda value, where: _share(value, where),
    "memory": lambda value, where: parse_bytes(value, where),
    "tenants": lambda value, where: _count(value, where),
    "latency": lambda value, where: _flag(value, where),
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
            values[name] = DAEMON[name][0](_number(given), "--" + name.removesuffix("_seconds").replace("_", "-"))
    if (sim := values.get("sim", os.environ.get("GEMINI_SIM") or None)) is not None:
        values["sim"] = sim or os.environ.get("GEMINI_SIM") or "gpus=1"
    state_dir = (args.state_dir or default_state_dir()).absolute()
    return Settings(state_dir=state_dir, config=args.config, policy=policy, tenants=tenants, **values)


def _number(value: object) -> object:
    """A number written on the command line, as TOML would give it."""
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
    return value


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
        request, limit = resolve(entry.get("request"), entry.get("limit"), name)
        memory = parse_bytes(entry.get("memory", 0), f"{where}.{name}.memory")
        try:
            validate(TenantSpec(name, request, limit, memory), 1)
        except InvalidSpec as error:
            raise Problem(f"{where}.{name}: {error}") from None
        found.append(TenantSettings(name, request, limit, memory, service == "latency", gpus))
    _check_sums(found, where)
    return tuple(found)


def _share(value: object, what: str) -> int:
    ppm = parse_share(value, what)
    if not 0 <= ppm <= WHOLE_PPM:
        raise Problem(f"{what} {value!r} is not within 0..1; write it such as 0.3 or 30%")
    return ppm


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
