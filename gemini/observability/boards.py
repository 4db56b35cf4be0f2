"""What the dashboards show, as data: three boards, one for each who looks. grafana.py makes Grafana's JSON of it, and
the tests ask a real Prometheus every query of it.

A board begins with a row of single figures with thresholds, then come lines over time, then a table of how it is now.
$rate and $long are filled in as in rules.py; $tenant, $namespace, $pod and $instance are Grafana's, chosen by who
looks.
"""

from __future__ import annotations

from typing import NamedTuple

from gemini.observability.rules import RATE_SCRAPES, WHOLE


class Query(NamedTuple):
    """`legend` names each line by its labels; `line`: solid, or what it is measured against, dashed or dotted."""

    expr: str
    legend: str
    line: str = "solid"


class Panel(NamedTuple):
    """`unit` is Grafana's name of it; `kind`: lines, band (filled between the dashed and the dotted line), stacked
    (parts of a whole), bars and stat (only how it is now) or table (a column for each query, named by its legend)."""

    title: str
    text: str
    unit: str
    queries: tuple[Query, ...]
    kind: str = "lines"
    width: int = 12  # of 24
    steps: tuple[tuple[float | None, str], ...] = ((None, "green"),)  # colours from these values on
    units: tuple[str, ...] = ()  # of a table's columns


class Board(NamedTuple):
    uid: str
    title: str
    text: str
    variables: tuple[tuple[str, str], ...]  # name, and the series whose label of that name it is chosen from
    panels: tuple[Panel, ...]


NEUTRAL = ((None, "blue"),)
NONE_IS_GOOD = ((None, "green"), (1, "red"))
MISSED = f"gemini:missed:ratio > {1 - WHOLE:.1g} * (gemini_owed_ratio or gemini_request_ratio)"


def stat(title: str, text: str, unit: str, expr: str, steps: tuple[tuple[float | None, str], ...], width: int) -> Panel:
    return Panel(title, text, unit, (Query(expr, title),), "stat", width, steps)


OPERATORS = Board(
    "gemini-operators",
    "Gemini: operators",
    "Does everybody get what was promised; what is left; who waits and why; what nobody holds to its share.",
    (),
    (
        stat("Promised (% of all cards)", "Sum of the requests, over the cards' time.", "percentunit",
             "avg(gemini_gpu:promised:ratio)", ((None, "green"), (0.9, "yellow")), 5),
        stat("Held (% of all cards)", "Part of the cards' time in which tenants held them.", "percentunit",
             "avg(gemini_gpu:held:ratio)", NEUTRAL, 5),
        stat("Idle (% of all cards)", "Part of the cards' time in which nobody held them.", "percentunit",
             "1 - avg(gemini_gpu:held:ratio)", ((None, "green"), (0.5, "yellow")), 5),
        stat("Tenants that miss their share", f"Those that get less than {WHOLE:.0%} of what their share gives them.",
             "none", f"count({MISSED}) or vector(0)", NONE_IS_GOOD, 5),
        stat("Cards out of service", "They have failed; nobody new is placed there.", "none",
             'max(gemini_extender_cards{state="unhealthy"}) or vector(0)', NONE_IS_GOOD, 4),
        Panel("GPU time held, request and limit of each tenant (% of a card)",
              f"GPU time held / elapsed over {RATE_SCRAPES} scrapes; dashed the request, dotted the limit. A line "
              "below its dashes is a tenant that wants less, or one that is cheated: the next panel tells.",
              "percentunit",
              (Query("gemini:held:ratio", "{{tenant}}"), Query("gemini_request_ratio", "{{tenant}} request", "dashed"),
               Query("gemini_limit_ratio", "{{tenant}} limit", "dotted")), width=24),
        Panel("Share missed by each tenant (% of a card)", "What a tenant did not get of its request, for as much of "
              "the time as it wanted the card; of its limit, where the limits leave the card idle.",
              "percentunit", (Query("gemini:missed:ratio", "{{tenant}}"),)),
        Panel("Alerts that fire (number)", "As Prometheus has them.", "none",
              (Query('sum by (alertname, severity) (ALERTS{alertname=~"Gemini.*", alertstate="firing"})',
                     "{{alertname}} ({{severity}})"),), "bars"),
        Panel("GPU time free, promised and held (cards)", "In whole cards: what the extender may still promise, what "
              "it has promised, and what tenants really hold.", "none",
              (Query('max(gemini_extender_core_ratio{of="free"})', "free"),
               Query('max(gemini_extender_core_ratio{of="promised"})', "promised"),
               Query("sum(gemini_gpu:held:ratio)", "held"),
               Query('max(gemini_extender_core_ratio{of="all"})', "all", "dashed"))),
        Panel("Free GPU time on partly used cards (% of what is free)", "Where no whole card can be had of it.",
              "percentunit",
              (Query('max(gemini_extender_core_ratio{of="fragmented"}) / '
                     '(max(gemini_extender_core_ratio{of="free"}) > 0)', "fragmented"),)),
        Panel("Pods that wait, by reason (number)", "Sharepods without a card, by the first reason; kubectl gemini has "
              "the rest.", "none", (Query("max by (reason) (gemini_extender_waiting_pods)", "{{reason}}"),), "stacked"),
        Panel("Cards, by state (number)", "Free, partly used, full and out of service.", "none",
              (Query("max by (state) (gemini_extender_cards)", "{{state}}"),), "stacked"),
        Panel("Not held to a share (processes and calls)", "Processes on cards that no share holds: of tenants, and of "
              "nobody; and driver calls newer than the library.", "none",
              (Query("sum by (tenant) (gemini_outside_processes)", "{{tenant}}: processes outside"),
               Query("sum(gemini_stranger_processes)", "strangers"),
               Query("sum by (tenant) (gemini_ungated_lookups_total)", "{{tenant}}: ungated calls"))),
        Panel("Time to choose a card for a pod, p99 (s)", "99th percentile of the extender's calls.", "s",
              (Query("histogram_quantile(0.99, sum by (verb, le) (rate(gemini_extender_seconds_bucket[$long])))",
                     "{{verb}}"),)),
        Panel("Reviews of the webhook, by result (number)", "What was allowed, changed and refused since it started.",
              "none", (Query("sum by (path, result) (gemini_webhook_reviews_total)", "{{path}} {{result}}"),)),
        Panel("Parts that answer (1: yes)", "1: Prometheus reaches all of that job.", "none",
              (Query('min by (job) (up{job=~"(.*/)?gemini(-.*)?"})', "{{job}}"),), "bars"),
        Panel("Tenants now", "A row for each tenant on each card.", "percentunit",
              (Query("gemini_request_ratio", "Request"), Query("gemini_limit_ratio", "Limit"),
               Query("gemini:held:ratio", "Held"), Query("gemini:missed:ratio", "Missed"),
               Query("gemini:waiting:ratio", "Waited"), Query("gemini_memory_bytes", "Memory")), "table", 24,
              units=("percentunit",) * 5 + ("bytes",)),
    ),
)  # fmt: skip

_MINE = '{tenant=~"$tenant", namespace=~"$namespace", pod=~"$pod"}'
_MINE_AND = _MINE.removesuffix("}")
TENANTS = Board(
    "gemini-tenants",
    "Gemini: my share",
    "For whoever runs a tenant: do I get my share, how long do I wait, how far do I run over, how much memory have I.",
    (("namespace", "gemini_request_ratio"), ("pod", "gemini_request_ratio"), ("tenant", "gemini_request_ratio")),
    (
        stat("Promised (% of a card)", "My request, over all tenants that are chosen.", "percentunit",
             f"sum(gemini_request_ratio{_MINE})", NEUTRAL, 5),
        stat("Held (% of a card)", "GPU time that I held.", "percentunit", f"sum(gemini:held:ratio{_MINE})",
             NEUTRAL, 5),
        stat("Missed (% of a card)", "What I did not get of my request while I wanted the card.", "percentunit",
             f"sum(gemini:missed:ratio{_MINE})", ((None, "green"), (0.02, "yellow"), (0.1, "red")), 5),
        stat("Wait for the GPU, p99 (s)", "The 99th percentile of my waits; of several tenants, the longest.", "s",
             f'max(gemini_wait_seconds{_MINE_AND}, quantile="0.99"}})', ((None, "green"), (0.1, "yellow")), 5),
        stat("Memory used (% of my limit)", "Beyond it, allocations fail.", "percentunit",
             f"max(gemini_memory_bytes{_MINE} / (gemini_memory_limit_bytes{_MINE} > 0))",
             ((None, "green"), (0.9, "yellow"), (1.0, "red")), 4),
        Panel("GPU time held, within request and limit (% of a card)", "GPU time held / elapsed; the band is from my "
              "request (dashed) to my limit (dotted).", "percentunit",
              (Query(f"gemini:held:ratio{_MINE}", "{{tenant}} on {{gpu}}"),
               Query(f"gemini_request_ratio{_MINE}", "request", "dashed"),
               Query(f"gemini_limit_ratio{_MINE}", "limit", "dotted")), "band", 24),
        Panel("GPU time held and used (% of a card)", "Used: work, as the library measured it, within the time that I "
              "held the card. A gap between the two is host time that others could have used.", "percentunit",
              (Query(f"gemini:busy:ratio{_MINE}", "used"), Query(f"gemini:held:ratio{_MINE}", "held", "dashed"))),
        Panel("Time spent waiting for the GPU (% of the time)", "Part of the time in which I waited for my turn.",
              "percentunit", (Query(f"gemini:waiting:ratio{_MINE}", "{{tenant}}"),)),
        Panel("Wait for the GPU, p50 and p99 (s)", "How long one wait for my turn takes.", "s",
              (Query(f'gemini_wait_seconds{_MINE_AND}, quantile="0.5"}}', "p50"),
               Query(f'gemini_wait_seconds{_MINE_AND}, quantile="0.99"}}', "p99"))),
        Panel("GPU time held past my quota (% of the time)", "Kernels longer than the quota. I pay for it.",
              "percentunit", (Query(f"gemini:overuse:ratio{_MINE}", "{{tenant}}"),)),
        Panel("GPU memory used, and my limit (bytes)", "Contexts included; dashed my limit.", "bytes",
              (Query(f"gemini_memory_bytes{_MINE}", "{{tenant}} on {{gpu}}"),
               Query(f"gemini_memory_limit_bytes{_MINE} > 0", "limit", "dashed"))),
        Panel("Allocations refused (number)", "Those that my limit forbade, since the tenant began.", "none",
              (Query(f"gemini_memory_refusals_total{_MINE}", "{{tenant}}"),)),
        Panel("Held to my share (1: yes), and processes (number)", "1: all that I have on the cards is under the "
              "library.", "none",
              (Query(f"gemini_enforced{_MINE}", "{{tenant}}"),
               Query(f"gemini_clients{_MINE}", "processes", "dashed"))),
        Panel("Copies between host and card (bytes a second)", "They are metered, not gated.", "binBps",
              (Query(f"rate(gemini_copied_to_device_bytes_total{_MINE}[$rate])", "to the card"),
               Query(f"rate(gemini_copied_to_host_bytes_total{_MINE}[$rate])", "to the host"))),
        Panel("My tenants now", "A row for each on each card.", "percentunit",
              (Query(f"gemini_request_ratio{_MINE}", "Request"), Query(f"gemini_limit_ratio{_MINE}", "Limit"),
               Query(f"gemini:held:ratio{_MINE}", "Held"), Query(f"gemini_memory_bytes{_MINE}", "Memory")),
              "table", 24, units=("percentunit",) * 3 + ("bytes",)),
    ),
)  # fmt: skip

_HERE = '{instance=~"$instance"}'


def _dcgm(series: str, factor: str) -> str:
    """A series of NVIDIA's DCGM exporter, of the node's cards: it names a card in UUID, as we do in gpu."""
    named = f'label_replace({series}, "gpu", "$1", "UUID", "(.+)")'
    return f"({named} {factor}) and on (gpu) gemini_gpu_memory_bytes{_HERE}"


NODE = Board(
    "gemini-node",
    "Gemini: a node",
    "One node's cards: who holds them, what is left, how smoothly they change hands, what went wrong.",
    (("instance", "gemini_gpu_memory_bytes"),),
    (
        stat("Promised (% of its cards)", "Sum of the requests on the node's cards.", "percentunit",
             f"avg(gemini_gpu:promised:ratio{_HERE})", ((None, "green"), (0.9, "yellow")), 5),
        stat("Held (% of its cards)", "Part of the cards' time in which tenants held them.", "percentunit",
             f"avg(gemini_gpu:held:ratio{_HERE})", NEUTRAL, 5),
        stat("Memory used (% of its cards)", "By tenants, contexts included.", "percentunit",
             f"avg(gemini_gpu:memory:ratio{_HERE})", ((None, "green"), (0.9, "yellow")), 5),
        stat("Hand-over, p50 (s)", "Idle time of a card between two tenants; the slowest card's.", "s",
             'max(gemini_handover_gap_seconds{instance=~"$instance", quantile="0.5"})',
             ((None, "green"), (0.002, "red")), 5),
        stat("Processes without a share", "On the cards, and not held to any.", "none",
             f"sum(gemini_stranger_processes{_HERE}) + (sum(gemini_outside_processes{_HERE}) or vector(0))",
             NONE_IS_GOOD, 4),
        Panel("GPU time held, by tenant (% of a card)", "The rest of the card is idle.", "percentunit",
              (Query(f"gemini:held:ratio{_HERE}", "{{tenant}} on {{gpu}}"),), "stacked", 24),
        Panel("GPU time held, promised and free (% of each card)", "Of each card.", "percentunit",
              (Query(f"gemini_gpu:held:ratio{_HERE}", "{{gpu}} held"),
               Query(f"gemini_gpu:promised:ratio{_HERE}", "{{gpu}} promised", "dashed"),
               Query(f"gemini_gpu:free:ratio{_HERE}", "{{gpu}} free", "dotted"))),
        Panel("GPU memory used, by tenant (bytes)", "Dashed what the card has.", "bytes",
              (Query(f"gemini_memory_bytes{_HERE}", "{{tenant}}"),
               Query(f"gemini_gpu_memory_bytes{_HERE}", "{{gpu}}", "dashed"))),
        Panel("GPU busy by DCGM, and time held (% of each card)", "Busy as NVIDIA's DCGM exporter says, where it is "
              "scraped too; dashed the time held by tenants. Busy above held: something runs without a share.",
              "percentunit",
              (Query(_dcgm("DCGM_FI_DEV_GPU_UTIL", "/ 100"), "{{gpu}} busy"),
               Query(f"gemini_gpu:held:ratio{_HERE}", "{{gpu}} held", "dashed"))),
        Panel("GPU memory by DCGM, and of tenants (bytes)", "Used as NVIDIA's DCGM exporter says, where it is scraped "
              "too; dashed what tenants are charged. The driver keeps some for itself.", "bytes",
              (Query(_dcgm("DCGM_FI_DEV_FB_USED", "* 1048576"), "{{gpu}} used"),
               Query(f"sum by (gpu) (gemini_memory_bytes{_HERE})", "{{gpu}} tenants", "dashed"))),
        Panel("Time spent waiting for the GPU, by tenant (% of the time)", "Part of the time in which a tenant waited "
              "for its turn.", "percentunit", (Query(f"gemini:waiting:ratio{_HERE}", "{{tenant}}"),)),
        Panel("Idle time at a hand-over, p50 and p99 (s)", "Between drain confirmed and next grant.", "s",
              (Query('gemini_handover_gap_seconds{instance=~"$instance", quantile="0.5"}', "{{gpu}} p50"),
               Query('gemini_handover_gap_seconds{instance=~"$instance", quantile="0.99"}', "{{gpu}} p99", "dashed"))),
        Panel("Turns given and asked back (a second)", "Times that the card was handed out, and asked back early.",
              "ops",
              (Query(f"sum by (gpu) (rate(gemini_grants_total{_HERE}[$rate]))", "given"),
               Query(f"sum by (gpu) (rate(gemini_revokes_total{_HERE}[$rate]))", "asked back"))),
        Panel("Processes outside of the library (number)", "On the cards, and unknown to the daemon.", "none",
              (Query(f"gemini_outside_processes{_HERE}", "{{tenant}}"),
               Query(f"gemini_stranger_processes{_HERE}", "strangers on {{gpu}}"))),
        Panel("Faults (number over 20 scrapes)", "Leases lost, holders that did not drain, memory refused, protocol "
              "errors, pauses of who said too much, events that no disk took.", "none",
              (Query(f"sum(increase(gemini_leases_lost_total{_HERE}[$long]))", "leases lost"),
               Query(f"sum(increase(gemini_overruns_total{_HERE}[$long]))", "overruns"),
               Query(f"sum(increase(gemini_memory_refusals_total{_HERE}[$long]))", "memory refused"),
               Query(f"sum(increase(gemini_protocol_errors_total{_HERE}[$long]))", "protocol errors"),
               Query(f"sum(increase(gemini_flood_pauses_total{_HERE}[$long]))", "pauses"),
               Query(f"sum(increase(gemini_trace_lost_events_total{_HERE}[$long]))", "trace events lost"))),
        Panel("Device plugin: slots and calls (number)", "Slots by health of their card, on all nodes; and what the "
              "kubelet asked.", "none",
              (Query("sum by (health) (gemini_plugin_slots)", "{{health}} slots"),
               Query("sum by (what, result) (gemini_plugin_calls_total)", "{{what}} {{result}}"))),
        Panel("Device plugin registered (1: yes)", "1: the kubelet that runs knows the device plugin.", "none",
              (Query("gemini_plugin_registered", "{{instance}}"),), "bars"),
        Panel("Cards now", "A row for each card.", "percentunit",
              (Query(f"gemini_gpu:promised:ratio{_HERE}", "Promised"), Query(f"gemini_gpu:held:ratio{_HERE}", "Held"),
               Query(f"gemini_gpu:free:ratio{_HERE}", "Free"),
               Query(f"gemini_gpu:memory:ratio{_HERE}", "Memory used")), "table", 24,
              units=("percentunit",) * 4),
    ),
)  # fmt: skip

BOARDS = (OPERATORS, TENANTS, NODE)
