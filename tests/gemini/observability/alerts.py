"""When each alert fires and when it does not, as series of a paper Prometheus: the table that promtool plays.

A series is written as promtool reads it (`0+6x40`: 41 samples from 0, each 6 more), a sample every 15 s. Every alert
of the table has one case that fires it, and one close by that must not.
"""

from __future__ import annotations

from typing import NamedTuple

SCRAPE = 15
LABELS = {"instance": "n1", "job": "gemini-daemon"}
SEAT = {**LABELS, "tenant": "a", "gpu": "GPU-0"}
TENANT = {**LABELS, "tenant": "a"}
CARD = {**LABELS, "gpu": "GPU-0"}
EXTENDER = {"instance": "e1", "job": "gemini-extender"}
PLUGIN = {"instance": "n1", "job": "gemini-plugin"}

Series = dict[tuple[str, tuple[tuple[str, str], ...]], str]


def series(name: str, labels: dict[str, str], values: str) -> Series:
    return {(name, tuple(labels.items())): values}


def seat(held: float, waited: float, request: float = 0.7, limit: float = 1.0, scrapes: int = 60) -> Series:
    """A tenant that holds and waits so many seconds in each second."""
    return {
        **series("gemini_request_ratio", SEAT, f"{request}x{scrapes}"),
        **series("gemini_limit_ratio", SEAT, f"{limit}x{scrapes}"),
        **series("gemini_held_seconds_total", SEAT, f"0+{SCRAPE * held:g}x{scrapes}"),
        **series("gemini_wait_seconds_sum_total", SEAT, f"0+{SCRAPE * waited:g}x{scrapes}"),
    }


def grown(name: str, labels: dict[str, str], scrapes: int = 60) -> Series:
    """A counter that grows by one halfway."""
    return series(name, labels, f"0x{scrapes // 2 - 1} 1x{scrapes // 2}")


class Case(NamedTuple):
    alert: str
    why: str
    series: Series
    minutes: float  # when Prometheus is asked
    firing: dict[str, str] | None  # the labels of the alert; None: it does not fire


def quantile(value: float) -> Series:
    return series("gemini_handover_gap_seconds", {**CARD, "quantile": "0.5"}, f"{value}x60")


def buckets(fast: int, slow: int) -> Series:
    found: Series = {}
    for le, step in (("0.1", fast), ("0.25", fast + slow), ("+Inf", fast + slow)):
        labels = {**EXTENDER, "verb": "filter", "le": le}
        found |= series("gemini_extender_seconds_bucket", labels, f"0+{step}x60")
    return found


CASES: tuple[Case, ...] = (
    Case("GeminiShareMissed", "busy, and half of its request", seat(0.35, 0.65), 10, SEAT),
    Case("GeminiShareMissed", "waits without ever holding", seat(0.0, 1.0), 10, SEAT),
    Case("GeminiShareMissed", "gets its request", seat(0.69, 0.31), 10, None),
    Case("GeminiShareMissed", "wants the card three fifths of the time, and gets a fifth", seat(0.2, 0.4), 10, SEAT),
    Case("GeminiShareMissed", "takes little, for it wants little", seat(0.35, 0.2), 10, None),
    Case("GeminiShareMissed", "1 ms of work, 1 ms of host time", seat(0.41, 0.18, request=0.5), 10, None),
    Case("GeminiShareMissed", "a short burst now and then, each after a wait", seat(0.01, 0.1), 10, None),
    Case("GeminiShareMissed", "not for long enough", seat(0.35, 0.65), 4, None),
    Case("GeminiShareMissed", "its request, though the limits leave the card idle", {
        **seat(0.2, 0.8, request=0.2, limit=0.25), **series("gemini_owed_ratio", SEAT, "0.25x60")}, 10, SEAT),
    Case("GeminiShareMissed", "its limit, as the limits leave the card idle", {
        **seat(0.248, 0.752, request=0.2, limit=0.25), **series("gemini_owed_ratio", SEAT, "0.25x60")}, 10, None),
    Case("GeminiShareMissed", "was promised nothing", seat(0.0, 1.0, request=0), 10, None),
    Case("GeminiOutside", "one process", series("gemini_outside_processes", SEAT, "1x60"), 5, SEAT),
    Case("GeminiOutside", "for a moment", series("gemini_outside_processes", SEAT, "0x10 1 0x40"), 3, None),
    Case("GeminiUngatedCalls", "one", series("gemini_ungated_lookups_total", TENANT, "3x60"), 5, TENANT),
    Case("GeminiUngatedCalls", "none", series("gemini_ungated_lookups_total", TENANT, "0x60"), 5, None),
    Case("GeminiStranger", "stays", series("gemini_stranger_processes", CARD, "2x60"), 10, CARD),
    Case("GeminiStranger", "comes and goes", series("gemini_stranger_processes", CARD, "0x9 2x9 0x40"), 5, None),
    Case("GeminiLimitPassed", "by a tenth", seat(0.5, 0.2, request=0.3, limit=0.4), 10, SEAT),
    Case("GeminiLimitPassed", "by what a window's edge may show", seat(0.43, 0.2, request=0.3, limit=0.4), 10, None),
    Case("GeminiOveruse", "a fifth", series("gemini_overuse_seconds_sum_total", SEAT, "0+3x60"), 10, SEAT),
    Case("GeminiOveruse", "a hundredth", series("gemini_overuse_seconds_sum_total", SEAT, "0+0.15x60"), 10, None),
    Case("GeminiLeaseLost", "one", grown("gemini_leases_lost_total", SEAT), 9, SEAT),
    Case("GeminiLeaseLost", "long ago", grown("gemini_leases_lost_total", SEAT), 14.75, None),
    Case("GeminiMemoryRefused", "one", grown("gemini_memory_refusals_total", TENANT), 9, TENANT),
    Case("GeminiMemoryRefused", "none", series("gemini_memory_refusals_total", TENANT, "4x60"), 9, None),
    Case("GeminiHandoverSlow", "5 ms", quantile(0.005), 10, {**CARD, "quantile": "0.5"}),
    Case("GeminiHandoverSlow", "0.1 ms", quantile(0.0001), 10, None),
    Case("GeminiProtocolErrors", "of two codes", {
        **grown("gemini_protocol_errors_total", {**LABELS, "code": "EPROTO"}),
        **series("gemini_protocol_errors_total", {**LABELS, "code": "EINVAL"}, "0x60"),
    }, 9, LABELS),
    Case("GeminiProtocolErrors", "none", series(
        "gemini_protocol_errors_total", {**LABELS, "code": "EPROTO"}, "7x60"), 9, None),
    Case("GeminiTraceLost", "one", grown("gemini_trace_lost_events_total", LABELS), 9, LABELS),
    Case("GeminiTraceLost", "none", series("gemini_trace_lost_events_total", LABELS, "0x60"), 9, None),
    Case("GeminiDown", "the daemon", series("up", LABELS, "1x20 0x40"), 8, LABELS),
    Case("GeminiDown", "another's", series("up", {"instance": "n1", "job": "node-exporter"}, "0x60"), 8, None),
    Case("GeminiAbsent", "another's alone", series("up", {"instance": "n1", "job": "node-exporter"}, "1x60"), 8, {}),
    Case("GeminiAbsent", "one that is down", series("up", LABELS, "0x60"), 8, None),
    Case("GeminiCardOutOfService", "one", series(
        "gemini_extender_cards", {**EXTENDER, "state": "unhealthy"}, "1x60"), 5, {**EXTENDER, "state": "unhealthy"}),
    Case("GeminiCardOutOfService", "none is", {
        **series("gemini_extender_cards", {**EXTENDER, "state": "unhealthy"}, "0x60"),
        **series("gemini_extender_cards", {**EXTENDER, "state": "full"}, "3x60"),
    }, 5, None),
    Case("GeminiPodsWait", "for twelve minutes", series(
        "gemini_extender_pods", {**EXTENDER, "state": "waiting"}, "2x60"), 12, {**EXTENDER, "state": "waiting"}),
    Case("GeminiPodsWait", "for five minutes", series(
        "gemini_extender_pods", {**EXTENDER, "state": "waiting"}, "2x60"), 5, None),
    Case("GeminiExtenderErrors", "one", {
        **grown("gemini_extender_calls_total", {**EXTENDER, "verb": "bind", "result": "500"}),
        **series("gemini_extender_calls_total", {**EXTENDER, "verb": "bind", "result": "ok"}, "0+1x60"),
    }, 9, EXTENDER),
    Case("GeminiExtenderErrors", "all is well", {
        **series("gemini_extender_calls_total", {**EXTENDER, "verb": "bind", "result": "500"}, "0x60"),
        **series("gemini_extender_calls_total", {**EXTENDER, "verb": "bind", "result": "ok"}, "0+1x60"),
    }, 9, None),
    Case("GeminiExtenderSlow", "a tenth of all", buckets(90, 10), 12, {"instance": "e1", "verb": "filter"}),
    Case("GeminiExtenderSlow", "one of two hundred", buckets(199, 1), 12, None),
    Case("GeminiPluginUnregistered", "for long", series("gemini_plugin_registered", PLUGIN, "0x60"), 10, PLUGIN),
    Case("GeminiPluginUnregistered", "starts", series("gemini_plugin_registered", PLUGIN, "0x9 1x50"), 10, None),
    Case("GeminiPluginRefused", "nobody's slots", {
        **grown("gemini_plugin_calls_total", {**PLUGIN, "what": "allocate", "result": "nobody"}),
        **series("gemini_plugin_calls_total", {**PLUGIN, "what": "allocate", "result": "ok"}, "0+1x60"),
    }, 9, PLUGIN),
    Case("GeminiPluginRefused", "gives and gives", series(
        "gemini_plugin_calls_total", {**PLUGIN, "what": "allocate", "result": "ok"}, "0+1x60"), 9, None),
)  # fmt: skip
