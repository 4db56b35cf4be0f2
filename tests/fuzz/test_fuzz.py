"""The fuzzers of the decoders: a short run each, and each of them finds a decoder that was broken on purpose."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.bed import wait_for
from bench.fuzz import SANITIZED, TARGETS, build, play

ROOT = Path(__file__).parents[2]
SECONDS = 20  # each, all at once; the hour of each is `python -m bench.fuzz --seconds 3600`
# Target, file, the check that is taken out of it.
BROKEN = [
    ("zmtp", "core/zmtp.c", "if (body > ZMTP_MESSAGE_MAX)\n        return -EMSGSIZE;"),
    ("zmtp", "core/zmtp.c", "if (left < 2 || left > 2 + 16)"),
    ("zmtp", "core/zmtp.c", "if (value > size - (1 + name + 4))\n            return -EPROTO;"),
    ("door", "core/zmtp.c", "if (left < 2 || left > 2 + 16)"),
    ("door", "core/zmtp.c", "if (in[0] & MORE)\n        return -E2BIG;"),
    ("door", "core/zmtp.c", "if (header_size + size > zmtp->out_room - zmtp->out_size)"),
    ("door", "core/wire.c", "if (header.size != size || layout->size != size)"),
    ("wire", "core/wire.c", "if (header.size != size || layout->size != size)"),
    ("wire", "core/wire.c", "if (header.type == WIRE_WELCOME)"),
    ("wire", "core/token.c", "epoch != token->epoch || "),
    ("options", "runtime/options.c", "|| strlen(value) >= sizeof options->socket"),
    ("options", "sim/model/spec.c", "if ((size_t)(end - equals - 1) >= value_size)\n        return NULL;"),
]


def test_no_input_breaks_a_decoder(tmp_path: Path) -> None:
    with ThreadPoolExecutor(len(TARGETS)) as pool:
        runs = list(pool.map(lambda target: play(target, SECONDS, tmp_path, None), TARGETS))
    for target, run in zip(TARGETS, runs, strict=True):
        log = tmp_path / f"{target}-findings" / "log"
        assert run["exit_status"] == 0, log.read_text() if log.exists() else run
        assert run["inputs"] > 1000


def processor_s(pid: str, program: str) -> float:
    """How long a process has run, if it is of that program; 0 for any other and for one that is gone."""
    process = Path("/proc") / pid
    with contextlib.suppress(OSError):
        if os.readlink(process / "exe").endswith(program):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0


@pytest.mark.timeout(300)
def test_a_run_that_is_ended_early_tells_how_far_it_came(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.fuzz", "wire", "--plain", "--seconds", "3600", "--corpus", str(tmp_path)]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def plays() -> bool:
        children = " ".join(path.read_text() for path in Path(f"/proc/{run.pid}/task").glob("*/children"))
        return any(processor_s(pid, "/wire-plain") > 0.5 for pid in children.split())

    wait_for(plays, 120, "the fuzzer at work")
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate(timeout=60)
    said = json.loads(out)
    assert said["targets"]["wire"]["inputs"] > 0
    assert said["targets"]["wire"]["cpu_s"] > 0.4
    assert said["targets"]["wire"]["exit_status"] == 0


def weakened(source: str, check: str) -> str:
    """The source without that check: a condition that never holds, or nothing at all."""
    assert source.count(check) == 1, f"the check is not there any more; give another: {check!r}"
    if check.endswith(";") or not check.startswith("if"):
        return source.replace(check, "")
    return source.replace(check, "if (source_of_doubt())")


@pytest.mark.parametrize(("target", "name", "check"), BROKEN, ids=[f"{t}-{i}" for i, (t, _, _) in enumerate(BROKEN)])
def test_a_decoder_without_one_of_its_checks_is_found(target: str, name: str, check: str, tmp_path: Path) -> None:
    sources = tmp_path / "libhook"
    for part in TARGETS[target]:
        (sources / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "libhook" / part, sources / part)
    never = "static inline int source_of_doubt(void) { return 0; }\n"
    (sources / name).write_text(never + weakened((ROOT / "libhook" / name).read_text(), check))
    fuzzer = build(target, tmp_path, sources=sources)
    done = subprocess.run([fuzzer, "--seconds", "200"], cwd=tmp_path, env=SANITIZED, capture_output=True, text=True)
    assert done.returncode < 0, done.stdout
    assert "does not hold" in done.stderr or "ERROR: AddressSanitizer" in done.stderr
