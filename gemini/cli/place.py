"""gemini place SCENARIO.json [--json]: where pods would go, and why not elsewhere.

Runs the very allocator of the cluster's extender on a file; nothing is placed anywhere. SCENARIO.json may be - for
standard input. Format and rules: docs/placement.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from gemini.cli.problem import Problem
from gemini.cli.scenario import Scenario
from gemini.cli.scenario_parts import BadScenario
from gemini.placement.explain import format_bytes

SIZE_LIMIT = 256 * 2**20  # bytes; a scenario of 5,000 nodes x 8 cards is 6 MB


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "scenario", metavar="SCENARIO.json", help="nodes, what is placed, and asks; - reads standard input"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def main(args: argparse.Namespace) -> int:
    try:
        scenario = Scenario(_load(args.scenario))
    except BadScenario as error:
        raise Problem(f"{args.scenario}: {error}", status=2) from None
    for note in scenario.notes:
        print(f"gemini: {args.scenario}: {note}", file=sys.stderr)
    answer = scenario.run()
    if args.json:
        json.dump(answer, sys.stdout, indent=1)
        print()
    else:
        print(table(answer), end="")
    return 0


def _load(path: str) -> Any:
    try:
        if path == "-":
            text = sys.stdin.buffer.read(SIZE_LIMIT + 1)
        else:
            with open(path, "rb") as file:
                text = file.read(SIZE_LIMIT + 1)
    except OSError as error:
        raise Problem(f"{path}: {error.strerror}; give the file of a scenario", status=2) from None
    if len(text) > SIZE_LIMIT:
        raise Problem(f"{path}: is above {format_bytes(SIZE_LIMIT)}; give a smaller scenario", status=2)
    try:
        return json.loads(text)
    except RecursionError:
        raise Problem(f"{path}: is nested too deeply to be a scenario; mend it there", status=2) from None
    except json.JSONDecodeError as error:
        raise Problem(f"{path}: is not JSON ({error}); mend it there", status=2) from None
    except UnicodeDecodeError:
        raise Problem(f"{path}: is not JSON, for it is not UTF-8; mend it there", status=2) from None
    except ValueError:  # Python reads whole numbers of up to 4300 digits
        raise Problem(f"{path}: holds a whole number of thousands of digits; mend it there", status=2) from None


def table(answer: dict[str, Any]) -> str:
    """The answer for people: a row for each device, and the reasons below each pod that found no place."""
    rows = [("POD", "NODE", "DEVICE", "CORE", "MEMORY", "")]
    for entry in answer["placements"]:
        pod = entry["pod"] or "(no name)"
        if "refused" in entry:
            rows.append((pod, "-", "-", "-", "-", "refused"))
            for node, refusal in entry["refused"].items():
                rows.append(("", "" if node == "*" else node, "", "", "", f"{refusal['reason']}: {refusal['message']}"))
                for device, text in refusal.get("devices", {}).items():
                    rows.append(("", "", device if "/" in device else f"gpu/{device}", "", "", text))
            continue
        for i, device in enumerate(entry["devices"]):
            name = f"{device['type']}/{device['minor']}"
            memory = format_bytes(device["memory"]) if device["memory"] else "-"
            first = (pod, entry["node"]) if i == 0 else ("", "")
            rows.append((*first, name, f"{device['core']}%", memory, device["uuid"]))
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[5]]).rstrip())
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    from gemini.cli.main import main as gemini

    sys.exit(gemini(["place", *sys.argv[1:]]))
