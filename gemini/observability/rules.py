"""Recording and alert rules, one table of each, for Prometheus' rule files.

Times are counted in scrapes, so that the rules hold at any scrape interval: a rate looks back over 4 scrapes, as
Grafana's own $__rate_interval does, an alert waits for so many scrapes as its row says. An alert's row has what it
watches apart from the bound, so that a test can ask whether what is watched is there while nothing is wrong.

Recorded series keep the labels of the scrape (instance, job): tenants of one name on two nodes stay two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from scheduler_backend.tally import BUSY

RATE_SCRAPES = 4
# A server that gave each tenant its request as a rate would, while the tenant wants the card, give it request x wanted.
# Where the limits leave the card idle that is its limit x wanted: gemini_owed_ratio says which.
OWED = "(gemini_owed_ratio or gemini_request_ratio) * gemini:wanted:ratio"
WHOLE = 0.9  # a share is missed below this part of what is owed (as in row 17 of bench/goals.py)
# A scrape in a cluster names a tenant's series by its pod (RELABEL), a card's by the daemon's.
POD = "namespace, pod, container"
CARD_MEMORY = f"sum without ({POD}) (gemini_gpu_memory_bytes)"
NOBODY = f"{CARD_MEMORY} * 0"  # a GPU that no tenant is on has none of their series
# metric_relabel_configs: the device plugin calls tenants pod.NAMESPACE.POD-DIGITS and claim.NAMESPACE.NAME-DIGITS.
_TENANT = {"source_labels": ["tenant"]}
RELABEL: tuple[dict[str, Any], ...] = (
    {**_TENANT, "regex": r"(?:pod|claim)\.([^.]+)\..+", "target_label": "namespace", "replacement": "$1"},
    {**_TENANT, "regex": r"pod\.[^.]+\.(.+)-[0-9a-f]{8}", "target_label": "pod", "replacement": "$1"},
    {**_TENANT, "regex": r"(?:pod|claim)\..+", "target_label": "container", "replacement": ""},  # else the daemon's
)


class Record(NamedTuple):
    """`name` is level:metric:operation. $rate in the expression stands for the time that a rate looks back over."""

    name: str
    expr: str
    text: str


class Alert(NamedTuple):
    """Fires when `watched bound` has held for so many scrapes."""

    name: str
    watched: str
    bound: str
    scrapes: int
    severity: str
    summary: str
    mend: str


RECORDS: tuple[Record, ...] = (
    Record("gemini:held:ratio", "rate(gemini_held_seconds_total[$rate])",
           "Share of the GPU's time that a tenant held: what *achieved* means, over a few scrapes."),
    Record("gemini:busy:ratio", "rate(gemini_reported_busy_seconds_total[$rate])",
           "Share of the GPU's time that a tenant's work took, as its library measured it."),
    Record("gemini:waiting:ratio", "clamp_max(rate(gemini_wait_seconds_sum_total[$rate]), 1)",
           "Part of the time in which a tenant waited for the token."),
    Record("gemini:wanted:ratio", "clamp_max(gemini:held:ratio + gemini:waiting:ratio, 1)",
           "Part of the time in which a tenant held the token or waited for it."),
    Record("gemini:missed:ratio",
           f"clamp_min({OWED} - gemini:held:ratio, 0) * (gemini:wanted:ratio > bool {BUSY})",
           "What a tenant did not get of its request, for as much of the time as it wanted the card; of its limit, "
           "where the limits leave the card idle."),
    Record("gemini:overuse:ratio", "rate(gemini_overuse_seconds_sum_total[$rate])",
           "Part of the time in which a tenant held the token past its quota; charged to it."),
    Record("gemini_gpu:promised:ratio", f"sum without (tenant, {POD}) (gemini_request_ratio) or {NOBODY}",
           "Sum of the requests on a GPU."),
    Record("gemini_gpu:held:ratio", f"sum without (tenant, {POD}) (gemini:held:ratio) or {NOBODY}",
           "Part of the time in which somebody held a GPU's token."),
    Record("gemini_gpu:free:ratio", "clamp_min(1 - gemini_gpu:promised:ratio, 0)",
           "What of a GPU's time nobody was promised."),
    Record("gemini_gpu:memory:ratio",
           f"(sum without (tenant, {POD}) (gemini_memory_bytes) or {NOBODY}) / {CARD_MEMORY}",
           "Part of a GPU's memory that tenants hold."),
)  # fmt: skip

ALERTS: tuple[Alert, ...] = (
    Alert(
        "GeminiShareMissed",
        f"gemini:held:ratio / ({OWED} > 0) + (gemini:wanted:ratio <= bool {BUSY})",
        f"< {WHOLE}",
        20,
        "critical",
        "{{ $labels.tenant }} gets {{ $value | humanizePercentage }} of what its share gives it on {{ $labels.gpu }}",
        "Look for kernels longer than the quota (GeminiOveruse), processes outside the library (GeminiOutside, "
        "GeminiStranger) and a machine that stalls; `gemini trace plot` shows who held the card when.",
    ),
    Alert(
        "GeminiOutside",
        "gemini_outside_processes",
        "> 0",
        4,
        "critical",
        "{{ $labels.tenant }} has {{ $value }} processes on {{ $labels.gpu }} that its share does not hold",
        "A static program, a cleared environment or an image without the library: `gemini ps --json` names them, "
        "GEMINI_LOG=info tells why; mount /etc/ld.so.preload (device plugin: --ld-so-preload).",
    ),
    Alert(
        "GeminiUngatedCalls",
        "gemini_ungated_lookups_total",
        "> 0",
        4,
        "critical",
        "{{ $labels.tenant }} was handed driver calls newer than the library knows: they run past its share",
        "Update Gemini on the node to a release that knows this driver.",
    ),
    Alert(
        "GeminiStranger",
        "gemini_stranger_processes",
        "> 0",
        20,
        "warning",
        "{{ $value }} processes on {{ $labels.gpu }} are no tenant's",
        "nvidia-smi lists them. Run them with gemini run, or give their pod a share; what they take, all tenants miss.",
    ),
    Alert(
        "GeminiLimitPassed",
        "gemini:held:ratio - gemini_limit_ratio",
        "> 0.05",
        20,
        "warning",
        "{{ $labels.tenant }} holds {{ $value | humanizePercentage }} of {{ $labels.gpu }} more than its limit",
        "Kernels longer than the quota cannot be cut; they are charged, so it must fall again once they end.",
    ),
    Alert(
        "GeminiOveruse",
        "gemini:overuse:ratio",
        "> 0.1",
        20,
        "info",
        "{{ $labels.tenant }} holds {{ $labels.gpu }} past its quota for {{ $value | humanizePercentage }} of the time",
        "Its kernels are longer than its quota. It pays for them, but others wait longer; latency tenants feel it.",
    ),
    Alert(
        "GeminiLeaseLost",
        "increase(gemini_leases_lost_total[$long])",
        "> 0",
        0,
        "warning",
        "{{ $labels.tenant }} was frozen, cut off or killed while it held {{ $labels.gpu }}",
        "Look at the pod's restarts and at a node short of memory or processors.",
    ),
    Alert(
        "GeminiMemoryRefused",
        "increase(gemini_memory_refusals_total[$long])",
        "> 0",
        0,
        "warning",
        "{{ $labels.tenant }} was refused memory: it is at its limit",
        "Raise gemini.io/gpu-memory, or let the program take less; `gemini advise` tells what it used.",
    ),
    Alert(
        "GeminiHandoverSlow",
        'gemini_handover_gap_seconds{quantile="0.5"}',
        "> 0.002",
        20,
        "warning",
        "{{ $labels.gpu }} idles {{ $value | humanizeDuration }} at a typical hand-over",
        "The node has too few processors free: `vmstat 1` shows those that wait (r) and what other machines take (st).",
    ),
    Alert(
        "GeminiProtocolErrors",
        "sum without (code) (increase(gemini_protocol_errors_total[$long]))",
        "> 0",
        0,
        "warning",
        "a tenant on {{ $labels.instance }} breaks the daemon's protocol",
        "A library of another version, or a program that means harm: the daemon's log names the tenant.",
    ),
    Alert(
        "GeminiTraceLost",
        "increase(gemini_trace_lost_events_total[$long])",
        "> 0",
        0,
        "info",
        "the daemon on {{ $labels.instance }} cannot write its trace",
        "The disk under the state directory is full or too slow; shares are kept all the same.",
    ),
    Alert(
        "GeminiDown",
        'up{job=~"(.*/)?gemini(-.*)?"}',  # a PodMonitor's job is namespace/name
        "== 0",
        4,
        "critical",
        "{{ $labels.job }} on {{ $labels.instance }} does not answer",
        "Without the daemon tenants wait (or run free, where GEMINI_ON_BACKEND_LOSS=run); without the extender no "
        "sharepod is placed. Look at the part's own log.",
    ),
    Alert(
        "GeminiAbsent",
        'absent(up{job=~"(.*/)?gemini(-.*)?"})',
        "> 0",
        20,
        "critical",
        "Prometheus knows no part of Gemini: none of the other alerts can fire",
        "Look at the scrape configuration, or at the PodMonitor and whether Prometheus' operator selects it: a part's "
        "job is called gemini-daemon, gemini-extender and so on, behind the namespace if need be.",
    ),
    Alert(
        "GeminiCardOutOfService",
        'gemini_extender_cards{state="unhealthy"}',
        "> 0",
        4,
        "critical",
        "{{ $value }} cards are out of service",
        "`kubectl gemini` names the card and its Xid; what holds it goes on, nobody new is placed there.",
    ),
    Alert(
        "GeminiPodsWait",
        'gemini_extender_pods{state="waiting"}',
        "> 0",
        40,
        "info",
        "{{ $value }} sharepods have found no card for a while",
        "`kubectl gemini` says why each of them waits.",
    ),
    Alert(
        "GeminiExtenderErrors",
        'sum without (verb, result) (increase(gemini_extender_calls_total{result!="ok"}[$long]))',
        "> 0",
        0,
        "warning",
        "the extender on {{ $labels.instance }} cannot answer the scheduler",
        "Its log has the request; the scheduler tries again.",
    ),
    Alert(
        "GeminiExtenderSlow",
        "histogram_quantile(0.99, sum by (instance, verb, le) "
        '(rate(gemini_extender_seconds_bucket{verb!="bind"}[$long])))',
        "> 0.1",
        20,
        "warning",
        "{{ $labels.verb }} takes {{ $value | humanizeDuration }} (p99) on {{ $labels.instance }}",
        "The extender needs a processor of its own in a large cluster.",
    ),
    Alert(
        "GeminiPluginUnregistered",
        "gemini_plugin_registered",
        "== 0",
        20,
        "critical",
        "the kubelet at {{ $labels.instance }} does not know the device plugin: no sharepod starts there",
        "Look at the plugin's log; it registers again by itself once the kubelet's socket is there.",
    ),
    Alert(
        "GeminiPluginRefused",
        'sum without (what, result) (increase(gemini_plugin_calls_total{result=~"nobody|refused|impossible"}[$long]))',
        "> 0",
        0,
        "warning",
        "the device plugin at {{ $labels.instance }} refused a container",
        "The pod's events say why: nobody was promised the slots that the kubelet gave it.",
    ),
)  # fmt: skip


def duration(seconds: float) -> str:
    """As Prometheus writes it, exact to the millisecond."""
    milliseconds = round(seconds * 1000)
    return f"{milliseconds // 1000}s" if milliseconds % 1000 == 0 else f"{milliseconds}ms"


def spelt(expr: str, scrape_seconds: float) -> str:
    """An expression with its times filled in: $rate, and $long for what is rare."""
    times = {"$rate": duration(RATE_SCRAPES * scrape_seconds), "$long": duration(20 * scrape_seconds)}
    for name, text in times.items():
        expr = expr.replace(name, text)
    return expr


def runbook(name: str, docs: str) -> str:
    """Where `docs`, the site that `make docs` makes, says what to do when this alert fires."""
    return f"{docs.rstrip('/')}/observability.html#{name.lower()}"


def groups(scrape_seconds: float, docs: str | None = None) -> dict[str, Any]:
    """The rule file for this scrape interval. Recorded series go first, in the order in which they need each other.
    `docs`: address of the documentation's site, which each alert then points into."""
    records = [{"record": rule.name, "expr": spelt(rule.expr, scrape_seconds)} for rule in RECORDS]
    alerts = [
        {
            "alert": rule.name,
            "expr": spelt(f"{rule.watched} {rule.bound}", scrape_seconds),
            **({"for": duration(rule.scrapes * scrape_seconds)} if rule.scrapes else {}),
            "labels": {"severity": rule.severity},
            "annotations": {
                "summary": rule.summary,
                "description": rule.mend,
                **({"runbook_url": runbook(rule.name, docs)} if docs else {}),
            },
        }
        for rule in ALERTS
    ]
    every = {"interval": duration(scrape_seconds)}
    return {"groups": [{"name": "gemini", **every, "rules": [*records, *alerts]}]}
