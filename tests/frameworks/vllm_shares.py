"""How do two vLLMs share a card? `python -m tests.frameworks.vllm_shares [eager|default] [--seconds 20]`

Two that serve a Llama of 1.24e9 dummy weights on a simulated L4, with 0.7 and 0.3 of its time and 8 GiB each, of which
they take nine tenths. It prints in JSON: of each alone, and of both, the part of the card's time by the card's own
timeline, and tokens per second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.bed import Bed
from gemini.cli.node import sim_front
from tests.frameworks.environment import python_of

PROGRAM = Path(__file__).parent / "vllm_program.py"
SIM = "profile=l4"
SHARES = {"one": 0.7, "two": 0.3}
MEMORY = 8 << 30


class Server:
    def __init__(self, bed: Bed, name: str, how: str) -> None:
        self.name, self.errors = name, bed.state_dir / f"{name}.err"
        env = {"LD_PRELOAD": " ".join([bed.environment(name)["LD_PRELOAD"], *sim_front()]), "PYTHONWARNINGS": "ignore"}
        python = python_of("vllm")
        assert python is not None, "vllm is not there; make frameworks fetches it"
        with self.errors.open("wb") as errors:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
            self.process = bed.spawn(name, [python, PROGRAM, how, "1b", "serve"], env=env, **pipes)
        self.said: list[str] = []

    def until_ready(self) -> None:
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline().strip()) != "ready":
            assert line, f"{self.name} ended: {self.errors.read_text()[-3000:]}"
            self.said.append(line)

    def end(self) -> list[list[int]]:
        """When each batch began and ended, and its tokens."""
        out, _ = self.process.communicate("\n")
        done: list[list[int]] = json.loads(out)
        return done


def rate(done: list[list[int]], begin: int, end: int) -> float:
    """Tokens a second in this window, batches at its edges in part."""
    inside = [(max(0, min(e, end) - max(b, begin)) / (e - b)) * tokens for b, e, tokens in done]
    return sum(inside) / (end - begin) * 1e9


def measure(how: str, seconds: float) -> dict[str, Any]:
    with Bed(sim=SIM) as bed:
        servers = []
        windows: dict[str, tuple[int, int, dict[str, float]]] = {}

        def watch(what: str) -> None:
            begin = time.monotonic_ns()
            had = bed.sample(seconds, step_s=0.05).shares()
            windows[what] = begin, time.monotonic_ns(), had

        for name, request in SHARES.items():
            bed.tenant(name, request, 1.0, memory=MEMORY)
            servers.append(Server(bed, name, how))
            servers[-1].until_ready()
            if len(servers) == 1:
                bed.sample(2, step_s=0.5)  # what a first batch compiles
                watch("alone")
        bed.sample(5, step_s=0.5)
        watch("both")
        done = {server.name: server.end() for server in servers}
        rates = {
            what: {name: rate(done[name], begin, end) for name in had} for what, (begin, end, had) in windows.items()
        }
        return {
            "said": {server.name: server.said for server in servers},
            "busy": {what: had for what, (_, _, had) in windows.items()},
            "tokens_per_second": rates,
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", nargs="?", choices=("eager", "default"), default="eager")
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    print(json.dumps(measure(args.how, args.seconds), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
