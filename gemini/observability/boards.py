"""What the dashboards show, as data: three boards, one for each who looks. grafana.py makes Grafana's JSON of it, and
the tests ask a real Prometheus every query of it.

$rate and $long are filled in as in rules.py; $tenant and $instance are Grafana's, chosen by who looks.
"""

from __future__ import annotations

from typing import NamedTuple

from gemini.observability.rules import RATE_SCRAPES


class Query(NamedTuple):
    """`legend` names each line by its labels; `line`: solid, or what it is measured against, dashed or dotted."""

    expr: str
    legend: str
    line: str = "solid"


class Panel(NamedTuple):
    """`unit` is Grafana's name of it; `kind`: lines, stacked (parts of a whole) or bars (only how it is now)."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "lines"
    width: int = 12  # of 24


class Board(NamedTuple):
    uid: str
    title: str
    text: str
    variables: tuple[tuple[str, str], ...]  # name, and the series whose label of that name it is chosen from
    panels: tuple[Panel, ...]


OPERATORS = Board(
    "gemini-operators",
    "Gemini: operators",
    "Does everybody get what was promised; what is left; who waits and why; what nobody holds to its share.",
    (),
    (
        Panel("Achieved share of each tenant, its request and its limit",
              f"GPU time held / elapsed over {RATE_SCRAPES} scrapes; dashed the request, dotted the limit. A line "
              "below its dashes is a tenant that wants less, or one that is cheated: the next panel tells.",
              "percentunit",
              (Query("gemini:held:ratio", "{{tenant}}"), Query("gemini_request_ratio", "{{tenant}} request", "dashed"),
               Query("gemini_limit_ratio", "{{tenant}} limit", "dotted")), width=24),
        Panel("Share missed", "What a tenant did not get of its request, for as much of the time as it wanted the "
              "card.",
              "percentunit", (Query("gemini:missed:ratio", "{{tenant}}"),)),
        Panel("Alerts that fire", "As Prometheus has them.", "none",
              (Query('sum by (alertname, severity) (ALERTS{alertname=~"Gemini.*", alertstate="firing"})',
                     "{{alertname}} ({{severity}})"),), "bars"),
        Panel("Free, promised, used", "In whole cards: what the extender may still promise, what it has promised, and "
              "what tenants really hold.", "none",
              (Query('max(gemini_extender_core_ratio{of="free"})', "free"),
               Query('max(gemini_extender_core_ratio{of="promised"})', "promised"),
               Query("sum(gemini_gpu:held:ratio)", "used"),
               Query('max(gemini_extender_core_ratio{of="all"})', "all", "dashed"))),
        Panel("Fragmented", "The part of the free time that is on partly used cards, where no whole card can be had.",
              "percentunit",
              (Query('max(gemini_extender_core_ratio{of="fragmented"}) / '
                     '(max(gemini_extender_core_ratio{of="free"}) > 0)', "of the free time"),)),
        Panel("Pods that wait, and why", "Sharepods without a card, by the first reason; kubectl gemini has the rest.",
              "none", (Query("max by (reason) (gemini_extender_waiting_pods)", "{{reason}}"),), "stacked"),
        Panel("Cards", "By what they are.", "none",
              (Query("max by (state) (gemini_extender_cards)", "{{state}}"),), "stacked"),
        Panel("Not enforced", "Processes on cards that no share holds: of tenants, and of nobody; and driver calls "
              "newer than the library.", "none",
              (Query("sum by (tenant) (gemini_outside_processes)", "{{tenant}}: processes outside"),
               Query("sum(gemini_stranger_processes)", "strangers"),
               Query("sum by (tenant) (gemini_ungated_lookups_total)", "{{tenant}}: ungated calls"))),
        Panel("Time until a pod's card is chosen", "99th percentile of the extender's calls.", "s",
              (Query("histogram_quantile(0.99, sum by (verb, le) (rate(gemini_extender_seconds_bucket[$long])))",
                     "{{verb}}"),)),
        Panel("Admission", "Reviews of the webhook: what was allowed, changed and refused.", "none",
              (Query("sum by (path, result) (gemini_webhook_reviews_total)", "{{path}} {{result}}"),)),
        Panel("Parts that answer", "1: Prometheus reaches it.", "none",
              (Query('min by (job) (up{job=~"(.*/)?gemini(-.*)?"})', "{{job}}"),), "bars"),
    ),
)  # fmt: skip

_MINE = '{tenant=~"$tenant"}'
TENANTS = Board(
    "gemini-tenants",
    "Gemini: my share",
    "For whoever runs a tenant: do I get my share, how long do I wait, how far do I run over, how much memory have I.",
    (("tenant", "gemini_request_ratio"),),
    (
        Panel("My share", "GPU time held / elapsed; dashed my request, dotted my limit.", "percentunit",
              (Query(f"gemini:held:ratio{_MINE}", "{{tenant}} on {{gpu}}"),
               Query(f"gemini_request_ratio{_MINE}", "request", "dashed"),
               Query(f"gemini_limit_ratio{_MINE}", "limit", "dotted")), width=24),
        Panel("What I made of it", "Work, as the library measured it, within the time that I held the card. A gap "
              "between the two is host time that others could have used.", "percentunit",
              (Query(f"gemini:busy:ratio{_MINE}", "worked"), Query(f"gemini:held:ratio{_MINE}", "held", "dashed"))),
        Panel("My waiting", "Part of the time in which I waited for the token.", "percentunit",
              (Query(f"gemini:waiting:ratio{_MINE}", "{{tenant}}"),)),
        Panel("A wait", "How long one wait for the token takes.", "s",
              (Query('gemini_wait_seconds{tenant=~"$tenant", quantile="0.5"}', "median"),
               Query('gemini_wait_seconds{tenant=~"$tenant", quantile="0.99"}', "99th percentile"))),
        Panel("My overuse", "Part of the time that I held the token past my quota: kernels longer than the quota. I "
              "pay for it.", "percentunit", (Query(f"gemini:overuse:ratio{_MINE}", "{{tenant}}"),)),
        Panel("My memory", "Bytes on the card, contexts included; dashed my limit.", "bytes",
              (Query(f"gemini_memory_bytes{_MINE}", "{{tenant}} on {{gpu}}"),
               Query(f"gemini_memory_limit_bytes{_MINE} > 0", "limit", "dashed"))),
        Panel("Memory refused", "Allocations that my limit forbade.", "none",
              (Query(f"gemini_memory_refusals_total{_MINE}", "{{tenant}}"),)),
        Panel("Am I held to my share", "1: all that I have on the cards is under the library.", "none",
              (Query(f"gemini_enforced{_MINE}", "{{tenant}}"),
               Query(f"gemini_clients{_MINE}", "processes", "dashed"))),
        Panel("Copies", "Between host and card; they are metered, not gated.", "Bps",
              (Query(f"rate(gemini_copied_to_device_bytes_total{_MINE}[$rate])", "to the card"),
               Query(f"rate(gemini_copied_to_host_bytes_total{_MINE}[$rate])", "to the host"))),
    ),
)  # fmt: skip

_HERE = '{instance=~"$instance"}'
NODE = Board(
    "gemini-node",
    "Gemini: a node",
    "One node's cards: who holds them, what is left, how smoothly they change hands, what went wrong.",
    (("instance", "gemini_gpu_memory_bytes"),),
    (
        Panel("Who holds the card", "GPU time held, by tenant; the rest of the card is idle.", "percentunit",
              (Query(f"gemini:held:ratio{_HERE}", "{{tenant}} on {{gpu}}"),), "stacked", 24),
        Panel("Promised and held", "Of each card.", "percentunit",
              (Query(f"gemini_gpu:held:ratio{_HERE}", "{{gpu}} held"),
               Query(f"gemini_gpu:promised:ratio{_HERE}", "{{gpu}} promised", "dashed"),
               Query(f"gemini_gpu:free:ratio{_HERE}", "{{gpu}} free", "dotted"))),
        Panel("Memory", "Bytes that tenants hold; dashed what the card has.", "bytes",
              (Query(f"gemini_memory_bytes{_HERE}", "{{tenant}}"),
               Query(f"gemini_gpu_memory_bytes{_HERE}", "{{gpu}}", "dashed"))),
        Panel("Who waits", "Part of the time in which a tenant waited for the token.", "percentunit",
              (Query(f"gemini:waiting:ratio{_HERE}", "{{tenant}}"),)),
        Panel("Hand-over", "Idle time of the card between drain confirmed and next grant.", "s",
              (Query('gemini_handover_gap_seconds{instance=~"$instance", quantile="0.5"}', "{{gpu}} median"),
               Query('gemini_handover_gap_seconds{instance=~"$instance", quantile="0.99"}', "{{gpu}} 99th percentile",
                     "dashed"))),
        Panel("Grants", "Times the token was handed out, and asked back early.", "ops",
              (Query(f"sum by (gpu) (rate(gemini_grants_total{_HERE}[$rate]))", "granted"),
               Query(f"sum by (gpu) (rate(gemini_revokes_total{_HERE}[$rate]))", "asked back"))),
        Panel("Without the library", "Processes on the cards that the daemon does not know.", "none",
              (Query(f"gemini_outside_processes{_HERE}", "{{tenant}}"),
               Query(f"gemini_stranger_processes{_HERE}", "strangers on {{gpu}}"))),
        Panel("What went wrong", "Leases lost, holders that did not drain, memory refused, protocol errors, pauses of "
              "who said too much, events that no disk took.", "none",
              (Query(f"sum(increase(gemini_leases_lost_total{_HERE}[$long]))", "leases lost"),
               Query(f"sum(increase(gemini_overruns_total{_HERE}[$long]))", "overruns"),
               Query(f"sum(increase(gemini_memory_refusals_total{_HERE}[$long]))", "memory refused"),
               Query(f"sum(increase(gemini_protocol_errors_total{_HERE}[$long]))", "protocol errors"),
               Query(f"sum(increase(gemini_flood_pauses_total{_HERE}[$long]))", "pauses"),
               Query(f"sum(increase(gemini_trace_lost_events_total{_HERE}[$long]))", "trace events lost"))),
        Panel("Device plugin", "Slots by health of their card, on all nodes; and what the kubelet asked.", "none",
              (Query("sum by (health) (gemini_plugin_slots)", "{{health}} slots"),
               Query("sum by (what, result) (gemini_plugin_calls_total)", "{{what}} {{result}}"))),
        Panel("Registered", "1: the kubelet that runs knows the device plugin.", "none",
              (Query("gemini_plugin_registered", "{{instance}}"),), "bars"),
    ),
)  # fmt: skip

BOARDS = (OPERATORS, TENANTS, NODE)
