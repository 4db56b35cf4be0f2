"""The fault campaign: every named fault against every workload, and what must be so after it.

    python -m bench.campaign [--fault NAME]... [--workload NAME]... [--short] [--list]

Each case has a bed of its own (real processes, the simulated card): tenants are busy and their memory comes and goes.
Then the fault happens. All tenants that are alive have to be within 2 pp of their shares over the half second that
begins one second after, and the daemon's book of their memory has to equal what the driver holds. No process may have
ended, and every trace that a daemon left has to give the same actions when it is replayed. A case that fails leaves its
traces and logs in out/campaign/CASE: `gemini trace replay` runs them through the machine again. A case that failed
while the whole machine stood still for a tenth of a second (a probe beside it saw it) is played anew, and the result
says so. --short is what CI runs, in a minute.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from typing import Any

from bench.bed import ROOT, Bed
from bench.campaign_faults import FAULTS
from bench.jitter import Probe
from bench.report import report
from bench.scene import WORKLOADS, Scene, keep, replays

OUT = ROOT / "out" / "campaign"
STOOD_MS, MOST_ANEW = 100.0, 3
SHORT = [  # one of each kind
    ("Hello lost", "limits and memory"),
    ("MemRelease lost", "two busy"),
    ("Revoke lost", "two busy"),
    ("Return lost", "two busy"),
    ("newer version", "two busy"),
    ("frozen, resumed after its lease", "two busy"),
    ("daemon killed, back at once", "many processes"),
    ("socket directory removed", "two busy"),
    ("out of descriptors", "two busy"),
]


def play(fault_name: str, workload: str) -> dict[str, Any]:
    """One case; anew where it failed while the machine itself stood still, which is another fault."""
    stood: list[float] = []
    while True:
        with Probe() as probe:
            result = once(fault_name, workload)
        longest = max(((end - begin) / 1e6 for begin, end in probe.stalls), default=0.0)
        if not result["failed"] or longest < STOOD_MS or len(stood) == MOST_ANEW:
            return {**result, "stood_ms": stood}
        stood.append(longest)
        print(f"anew {fault_name} / {workload}: all stood still for {longest:.0f} ms", file=sys.stderr)


def once(fault_name: str, workload: str) -> dict[str, Any]:
    """One case, once; "failed" is empty where all is as it must be."""
    fault = FAULTS[fault_name]
    began = time.monotonic()
    with Bed() as bed:
        scene = Scene(bed, workload, proxied=fault.proxied, paged=fault.paged, wallclock=fault.wallclock)
        try:
            scene.start()
            fault.run(scene)
            result = scene.judge()
            if unseen := result.get("unseen"):
                result["failed"].append(f"no {unseen} was seen to be tampered with")
            if bed.daemon and bed.daemon.poll() is not None:
                result["failed"].append(f"the daemon ended with {bed.daemon.returncode}")
        except Exception as error:  # of the case, to be told like any other failure
            result = {
                "failed": [f"{type(error).__name__}: {error}"],
                "traceback": traceback.format_exc(),
                **scene.notes,
            }
        finally:
            scene.close()
            bed.end()
        result["failed"] += replays(bed)
        if result["failed"]:
            folder = OUT / f"{fault_name}, {workload}".replace(" ", "-").replace("'", "")
            keep(bed, folder)
            result["kept"] = str(folder)
    return {"fault": fault_name, "workload": workload, "seconds": time.monotonic() - began, **result}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), metavar="NAME", help="only this one")
    parser.add_argument("--workload", action="append", choices=sorted(WORKLOADS), help="only this one")
    parser.add_argument("--short", action="store_true", help="one fault of each kind, in a minute")
    parser.add_argument("--list", action="store_true", help="the faults by name")
    args = parser.parse_args()
    if args.list:
        print("\n".join(FAULTS))
        return 0
    cases = SHORT if args.short else [(f, w) for f in args.fault or FAULTS for w in args.workload or WORKLOADS]
    results = []
    for fault, workload in cases:
        result = play(fault, workload)
        results.append(result)
        print(
            f"{'ok  ' if not result['failed'] else 'FAIL'} {fault} / {workload} {result['failed'] or ''}",
            file=sys.stderr,
        )
    failed = [f"{r['fault']} / {r['workload']}: {'; '.join(r['failed'])}" for r in results if r["failed"]]
    figures = {
        "cases": len(results),
        "faults": len({fault for fault, _ in cases}),
        "failed": failed,
        "results": results,
    }
    return report("What is so after each fault?", figures, {"all cases end as they must": not failed})


if __name__ == "__main__":
    sys.exit(main())
