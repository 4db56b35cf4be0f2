"""The figures of a demo, in the shape that docs/operations.md describes, and as a table. Data in, data out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gemini import shares
from gemini.cli.stage import Record, Tenant
from gemini.units import entitled

State = Mapping[str, Any]  # an answer of the daemon's /state


def account(
    tenants: Sequence[Tenant],
    record: Record,
    before: State,
    after: State,
    launches: Mapping[str, int | None],
    baseline: Record | None,
) -> dict[str, Any]:
    """All figures of a run: `record` from the device, `before` and `after` from the daemon at its two ends."""
    owed = np.array(entitled([(tenant.request, tenant.limit) for tenant in tenants]))
    whole = shares.achieved(record.at_ns, record.busy_ns)
    windows = 100 * shares.window_errors(record.at_ns, record.busy_ns, owed)
    error = 100 * shares.errors(whole, owed)
    rows = []
    for index, tenant in enumerate(tenants):
        old, new = of_tenant(before, tenant.name), of_tenant(after, tenant.name)
        rows.append(
            {
                "name": tenant.name,
                "request": tenant.request,
                "limit": tenant.limit,
                "entitled": float(owed[index]),
                "achieved": held(old, new, before, after),
                "busy": float(whole[index]),
                "error_pp": float(error[index]),
                "error_pp_p99_1s": float(np.percentile(windows[:, index], 99)) if len(windows) else None,
                "launches": launches.get(tenant.name),
                "overuse_ms_p99": new.get("overuse_ms_p99"),
                "wait_ms_p99": new.get("wait_ms_p99"),
                "memory_bytes": new.get("memory_bytes", 0),
                "memory_limit_bytes": new.get("memory_limit_bytes", 0),
            }
        )
    return {
        "device": dict(after.get("device") or {}),
        "seconds": record.seconds,
        "window_s": 1.0,
        "utilization": float(whole.sum()),
        "handover_us": quantiles(record.idle_us) or after.get("handover_us"),
        "tenants": rows,
        "baseline": None
        if baseline is None
        else {
            "seconds": baseline.seconds,
            "utilization": float(shares.achieved(baseline.at_ns, baseline.busy_ns).sum()),
            "shares": {
                tenant.name: float(share)
                for tenant, share in zip(tenants, shares.achieved(baseline.at_ns, baseline.busy_ns), strict=True)
            },
        },
    }


def of_tenant(state: State, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next((tenant for tenant in state.get("tenants", []) if tenant.get("name") == name), {})
    return found


def held(old: Mapping[str, Any], new: Mapping[str, Any], before: State, after: State) -> float | None:
    """GPU time held / elapsed between two answers of the daemon; its own last figure where it does not count it up."""
    elapsed_s = after.get("seconds", 0) - before.get("seconds", 0)
    if "held_ns" not in old or "held_ns" not in new or elapsed_s <= 0:
        share: float | None = new.get("achieved")
        return share
    return float((new["held_ns"] - old["held_ns"]) / 1e9 / elapsed_s)


def quantiles(samples: Sequence[float]) -> dict[str, float] | None:
    if not len(samples):
        return None
    return {"p50": float(np.percentile(samples, 50)), "p99": float(np.percentile(samples, 99))}


HEAD = ("tenant", "request", "limit", "owed", "busy", "held", "error", "p99 of 1 s", "wait p99", "without Gemini")


def summary(title: str, figures: Mapping[str, Any]) -> str:
    """The closing table as text."""

    def cell(value: float | None, unit: str = "%", factor: float = 100.0, digits: int = 1) -> str:
        return "-" if value is None else f"{factor * value:.{digits}f} {unit}"

    bare = (figures["baseline"] or {}).get("shares", {})
    lines = [HEAD]
    for tenant in figures["tenants"]:
        lines.append(
            (
                tenant["name"],
                f"{tenant['request']:g}",
                f"{tenant['limit']:g}",
                cell(tenant["entitled"]),
                cell(tenant["busy"]),
                cell(tenant["achieved"]),
                cell(tenant["error_pp"], "pp", 1, 2),
                cell(tenant["error_pp_p99_1s"], "pp", 1, 2),
                cell(tenant["wait_ms_p99"], "ms", 1),
                cell(bare.get(tenant["name"])),
            )
        )
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    text = [f"{title}, {figures['seconds']:.1f} s", ""]
    for first, *rest in lines:
        cells = [first.ljust(widths[0]), *(word.rjust(width) for word, width in zip(rest, widths[1:], strict=True))]
        text.append("  ".join(cells))
    closing = f"GPU busy {100 * figures['utilization']:.1f} %"
    if figures["handover_us"]:
        idle = figures["handover_us"]
        closing += f", idle at a hand-over {idle['p50']:.0f} us (median), {idle['p99']:.0f} us (p99)"
    return "\n".join([*text, "", closing])
