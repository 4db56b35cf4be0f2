"""First process of a node's own mount and process namespaces (see node.py): `node_init.py FOLDER`.

It makes room for the kubelet and containerd without touching the machine. What they insist on writing under /var/lib,
/var/log and /run goes to an overlay and to tmpfs, and the sysctls that the kubelet sets are files of our own, mounted
over them. Then it says READY=1 and reaps orphans until it is killed, which ends every process and mount of the node.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

SYSCTLS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)


def mount(*arguments: object) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)


def main() -> None:
    folder = Path(sys.argv[1])
    for name in ("kubelet", "var-upper", "var-work", "sysctl"):
        (folder / name).mkdir()
    layers = f"lowerdir=/var/lib,upperdir={folder}/var-upper,workdir={folder}/var-work"
    mount("-t", "overlay", "-o", layers, "overlay", "/var/lib")
    Path("/var/lib/kubelet").mkdir(exist_ok=True)
    mount("--bind", folder / "kubelet", "/var/lib/kubelet")  # also seen from outside, under `folder`
    mount("-t", "tmpfs", "tmpfs", "/var/log")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in SYSCTLS:
        real, own = Path("/proc/sys") / name, folder / "sysctl" / name.replace("/", ".")
        if real.exists():
            own.write_text(real.read_text())
            mount("--bind", own, real)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto(b"READY=1", "\0" + os.environ["NOTIFY_SOCKET"][1:])
    while True:
        signal.sigwait({signal.SIGCHLD})
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    main()
