"""The machine's own daemon as a systemd service, which the users of a group share.

    gemini install-service                 as root: the group, a config file, the unit; and starts it
    gemini install-service --print         only shows the unit
    gemini install-service --remove        takes the unit away; config file and group stay

Who is in the group uses it by `gemini run`, `ps` and the rest, each user for tenants of his own; the config file bounds
what a user may have. Nothing else of this machine is changed.
"""

from __future__ import annotations

import argparse
import grp
import os
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

from gemini.cli.control import answers
from gemini.cli.node import Node
from gemini.cli.problem import Problem
from scheduler_backend import private
from scheduler_backend.config import SYSTEM_STATE_DIR

UNIT = Path("etc/systemd/system/gemini.service")
CONFIG = Path("etc/gemini/gemini.toml")
RUNNING = Path("/run/systemd/system")  # there where systemd runs this machine
START_SECONDS = 20.0

TEMPLATE = """\
[Unit]
Description=Gemini: hands out the time of this machine's GPUs
After=systemd-modules-load.service nvidia-persistenced.service
StartLimitIntervalSec=0

[Service]
Type=exec
ExecStartPre=+-/usr/bin/nvidia-modprobe -c 0 -u
ExecStart={command}
Restart=always
RestartSec=1
OOMScoreAdjust=-900
LimitNOFILE=65536
RuntimeDirectory=gemini
RuntimeDirectoryMode=0711
RuntimeDirectoryPreserve=yes

# Root with few of root's powers: it gives tenants' folders to their users, and reads whose a process is.
CapabilityBoundingSet=CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_SYS_PTRACE
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths=/run
ProtectHome={home}
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
DevicePolicy=closed
DeviceAllow=char-nvidia* rw
DeviceAllow=/dev/nvidiactl rw

[Install]
WantedBy=multi-user.target
"""

SETTINGS = """\
# Settings of the machine's own Gemini daemon. docs/configuration.md has all of them.
# [users] and [tenants] are read again when this file changes; the rest with: systemctl restart gemini
group = "{group}"     # its members may use the daemon

# What each user may have at a time. [users.ann] or [users."@students"] (a group) says otherwise for some.
[users.default]
request = 0.5        # of a card, over all his tenants on it
tenants = 16
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--group", metavar="NAME", default="gemini", help="who may use the daemon (%(default)s)")
    parser.add_argument(
        "--root", metavar="DIR", type=Path, default=Path("/"), help="write into this file system, and start nothing"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--print", action="store_true", help="show the unit, write nothing")
    what.add_argument("--remove", action="store_true", help="stop the service and remove its unit")


def main(args: argparse.Namespace) -> int:
    if args.print:
        print(unit(), end="")
        return 0
    if args.root == Path("/") and os.geteuid() != 0:
        raise Problem(f"a service of the machine is root's to install; sudo {shlex.quote(sys.argv[0])} install-service")
    return remove(args.root) if args.remove else install(args.root, args.group)


def unit() -> str:
    """The unit's text, for this installation."""
    words = [sys.executable, "-m", "gemini", "serve", "--config", f"/{CONFIG}", "--state-dir", str(SYSTEM_STATE_DIR)]
    at_home = any(Path(sys.prefix).is_relative_to(home) for home in ("/home", "/root", "/run/user"))
    return TEMPLATE.format(command=" ".join(map(quoted, words)), home="read-only" if at_home else "yes")


def quoted(word: str) -> str:
    """A word of a unit's command line."""
    word = word.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    return '"' + word.replace('"', '\\"') + '"' if " " in word or '"' in word else word


def install(root: Path, group: str) -> int:
    live = root == Path("/")
    if live:
        make_group(group)
    write(root / UNIT, unit())
    if (root / CONFIG).exists():
        print(f"kept     {root / CONFIG}")
    else:
        write(root / CONFIG, SETTINGS.format(group=group))
    if closed := closed_to_others():
        print(f"gemini: {closed} may not be entered by other users, and this Gemini lies in it; install it in a place "
              "such as /opt/gemini, or give them one of their own", file=sys.stderr)  # fmt: skip
    if not live:
        return 0
    if not RUNNING.exists():
        print("systemd does not run here; once it does: systemctl enable --now gemini", file=sys.stderr)
        return 0
    control("daemon-reload")
    control("enable", "gemini.service")
    control("restart", "gemini.service")
    node = Node(SYSTEM_STATE_DIR)
    deadline = time.monotonic() + START_SECONDS
    while not answers(node):
        if time.monotonic() > deadline:
            raise Problem("gemini.service does not answer; journalctl -u gemini says why")
        time.sleep(0.1)
    print(f"runs     gemini.service; let a user in with: usermod -aG {group} USER")
    return 0


def remove(root: Path) -> int:
    """The unit goes; what the administrator may have written stays."""
    if root == Path("/") and RUNNING.exists() and (root / UNIT).exists():
        control("disable", "--now", "gemini.service")
    try:
        (root / UNIT).unlink()
    except FileNotFoundError:
        raise Problem(f"{root / UNIT} is not there; nothing to remove") from None
    if root == Path("/") and RUNNING.exists():
        control("daemon-reload")
    print(f"removed  {root / UNIT}; {root / CONFIG} and the group stay")
    return 0


def make_group(name: str) -> None:
    try:
        grp.getgrnam(name)
    except KeyError:
        if shutil.which("groupadd") is None:
            raise Problem(f"there is no group {name}, and no groupadd to make it; make it by hand") from None
        carry_out(["groupadd", "--system", name])
        print(f"made     group {name}")


def write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        private.replace_file(path, text.encode())
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}; see that it can be written") from None
    print(f"wrote    {path}")


def closed_to_others() -> Path | None:
    """A folder above this installation that other users may not enter."""
    return next((folder for folder in Path(sys.prefix).parents if not folder.stat().st_mode & 0o001), None)


def control(*words: str) -> None:
    carry_out(["systemctl", *words])


def carry_out(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        raise Problem(f"{' '.join(words)}: {said[-1]}; mend that, then run it again")
