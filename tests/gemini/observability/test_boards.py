"""The boards as Grafana and Kubernetes get them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from gemini.cli import main as entry
from gemini.observability import files, reference, rules
from gemini.observability.boards import BOARDS, TENANTS, Board
from gemini.observability.grafana import WIDTH, board_json
from gemini.plugin.reply import tenant_name
from tests.gemini.observability.test_names import asked, known


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_panels_ask_for_metrics_that_there_are(board: Board) -> None:
    for panel in board.panels:
        for query in panel.queries:
            assert asked(query.expr) <= known(), panel.title
            assert asked(query.expr) or query.expr.startswith(
                ("min by (job) (up{", "sum by (alertname, severity) (ALERTS{")
            )
        assert panel.text, panel.title
        assert panel.kind != "table" or len(panel.units) == len(panel.queries), panel.title
    for _name, series in board.variables:
        assert series in known()


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_json_has_every_panel_and_query_and_none_lies_over_another(board: Board) -> None:
    made = json.loads(board_json(board, 15))
    assert (made["uid"], made["title"]) == (board.uid, board.title)
    assert [panel["title"] for panel in made["panels"]] == [panel.title for panel in board.panels]
    taken: set[tuple[int, int]] = set()
    for shown, panel in zip(made["panels"], board.panels, strict=True):
        assert [target["expr"] for target in shown["targets"]] == [
            rules.spelt(query.expr, 15) for query in panel.queries
        ]
        assert len({target["refId"] for target in shown["targets"]}) == len(panel.queries)
        at = shown["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= WIDTH
        taken |= cells
        assert shown["description"] == panel.text
        special = {one["matcher"]["options"] for one in shown["fieldConfig"].get("overrides", [])}
        if panel.kind == "table":
            assert special == {query.legend for query in panel.queries}
        else:
            assert len(special) == sum(query.line != "solid" for query in panel.queries if panel.kind != "bars")
    variables = {one["name"]: one for one in made["templating"]["list"]}
    assert variables["datasource"]["query"] == "prometheus"
    for name, series in board.variables:
        assert variables[name]["query"] == f"label_values({series}, {name})"
        assert variables[name]["allValue"] == ".*"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_figures_with_thresholds_come_first_then_lines_then_a_table(board: Board) -> None:
    kinds = ["stat" if p.kind == "stat" else "table" if p.kind == "table" else "lines" for p in board.panels]
    assert kinds == sorted(kinds, key=["stat", "lines", "table"].index)
    assert set(kinds) == {"stat", "lines", "table"}
    made = json.loads(board_json(board, 15))["panels"]
    row = [panel for panel in made if panel["type"] == "stat"]
    assert {panel["gridPos"]["y"] for panel in row} == {0}
    assert sum(panel["gridPos"]["w"] for panel in row) == WIDTH
    assert all(panel["fieldConfig"]["defaults"]["thresholds"]["steps"] for panel in row)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_title_says_what_is_drawn_and_its_unit(board: Board) -> None:
    fits = {"s": "(s)", "percentunit": "(%", "bytes": "(bytes)", "binBps": "(bytes a second)", "ops": "(a second)"}
    for panel in board.panels:
        if panel.kind != "table":
            assert panel.unit == "none" or fits[panel.unit] in panel.title, panel.title


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_grafanas_own_schema_knows_all_that_is_said(board: Board) -> None:
    """Its package, whose types are made from that schema, reads all of the JSON; it may add what is the default."""
    plugins.register_default_plugins()
    text = board_json(board, 15)
    read = Dashboard.from_json(json.loads(text))
    assert_within(json.loads(text), json.loads(JSONEncoder(sort_keys=True).encode(read)), board.uid)


def assert_within(said: Any, read: Any, where: str) -> None:
    """All that is said was read."""
    if isinstance(said, dict):
        for key, value in said.items():
            assert key in read, f"{where}.{key}"
            assert_within(value, read[key], f"{where}.{key}")
    elif isinstance(said, list):
        assert len(said) == len(read), where
        for at, (one, other) in enumerate(zip(said, read, strict=True)):
            assert_within(one, other, f"{where}[{at}]")
    else:
        assert said == read, where


def test_dcgms_figures_stand_beside_ours_on_a_nodes_board() -> None:
    """By its exporter's default counters and its name of a card; the real exporter needs a card."""
    panels = {panel.title: panel for board in BOARDS if board.uid == "gemini-node" for panel in board.panels}
    for title, series in (("GPU busy by DCGM", "DCGM_FI_DEV_GPU_UTIL"), ("GPU memory by DCGM", "DCGM_FI_DEV_FB_USED")):
        (panel,) = (panel for name, panel in panels.items() if name.startswith(title))
        theirs, ours = panel.queries
        assert f'label_replace({series}, "gpu", "$1", "UUID", "(.+)")' in theirs.expr
        assert asked(ours.expr)


def test_the_band_of_a_share_is_filled_from_its_request_to_its_limit() -> None:
    made = json.loads(board_json(TENANTS, 15))
    (panel,) = (one for one in made["panels"] if one["title"].startswith("GPU time held, within"))
    filled = [
        value["value"] for one in panel["fieldConfig"]["overrides"] for value in one["properties"]
        if value["id"] == "custom.fillBelowTo"
    ]  # fmt: skip
    assert filled == ["request"]


def test_the_lines_of_operators_begin_with_achieved_against_request_and_limit() -> None:
    first = next(panel for panel in BOARDS[0].panels if panel.kind == "lines")
    assert [query.expr for query in first.queries] == [
        "gemini:held:ratio",
        "gemini_request_ratio",
        "gemini_limit_ratio",
    ]
    assert [query.line for query in first.queries] == ["solid", "dashed", "dotted"]


def test_times_in_queries_follow_the_scrape_interval() -> None:
    assert "[20s]" in board_json(BOARDS[1], 5)
    assert "[2m]" not in board_json(BOARDS[1], 5)
    assert all("$rate" not in board_json(board, 5) and "$long" not in board_json(board, 5) for board in BOARDS)


def test_the_command_writes_files_for_prometheus_and_grafana(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "made"
    assert entry.main(["dashboards", "--out", str(out), "--scrape-interval", "30"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(out / name) for name in files.plain(30)]
    assert {path.name for path in out.iterdir()} == {files.RULES, *(f"{board.uid}.json" for board in BOARDS)}
    assert "[120s]" in (out / files.RULES).read_text()


def test_each_board_leads_to_the_others_with_what_was_chosen() -> None:
    for board in BOARDS:
        made = json.loads(board_json(board, 15))
        [link] = made["links"]
        assert (link["type"], link["tags"], link["includeVars"], link["keepTime"]) == (
            "dashboards",
            ["gemini"],
            True,
            True,
        )
        assert set(link["tags"]) <= set(made["tags"])


def test_an_alert_names_its_section_of_the_documentation(tmp_path: Path) -> None:
    words = ["dashboards", "--out", str(tmp_path), "--docs", "https://docs.example.com/gemini/"]
    assert entry.main(words) == 0
    page = (Path(__file__).resolve().parents[3] / "docs/observability.md").read_text().splitlines()
    given = yaml.safe_load((tmp_path / files.RULES).read_text())["groups"][0]["rules"]
    for rule in given:
        if "alert" in rule:
            url = rule["annotations"]["runbook_url"]
            assert url == f"https://docs.example.com/gemini/observability.html#{rule['alert'].lower()}"
            assert f"### {rule['alert']}" in page
    assert "runbook_url" not in files.rule_file(15)


def test_with_kubernetes_they_are_objects_with_the_labels_that_are_looked_for(tmp_path: Path) -> None:
    assert entry.main(["dashboards", "--out", str(tmp_path), "--kubernetes", "--namespace", "watch"]) == 0
    rule, *maps = yaml.safe_load_all((tmp_path / files.OBJECTS).read_text())
    assert rule["kind"] == "PrometheusRule"
    assert rule["spec"] == yaml.safe_load(files.rule_file(15))
    assert [one["metadata"]["name"] for one in maps] == [board.uid for board in BOARDS]
    for one, board in zip(maps, BOARDS, strict=True):
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["metadata"]["namespace"] == "watch"
        assert one["data"] == {f"{board.uid}.json": board_json(board, 15)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--scrape-interval", "0"], "--scrape-interval 0: give seconds from 0.1 to 300"),
        (["--docs", "wiki"], "--docs 'wiki' is no address; write it such as https://"),
        (["--out", "/proc/none"], "--out /proc/none"),
        (["--scrape-interval", "x"], "invalid float value: 'x'"),
    ],
)
def test_what_cannot_be_written_is_one_line(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.main(["dashboards", "--out", str(tmp_path), *words]) != 0
    line = capsys.readouterr().err
    assert said in line
    assert len(line.splitlines()) == 1


def test_the_page_of_the_documentation_is_in_step_with_the_tables() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs/observability.md").read_text()
    assert reference.renew(page) == page, "run: python -m gemini.observability.reference docs/observability.md"


def test_the_charts_scrapes_name_a_series_by_its_pod_as_the_rules_expect() -> None:
    template = (Path(__file__).resolve().parents[3] / "deploy/helm/gemini/templates/podmonitor.yaml").read_text()
    given = template.partition("metricRelabelings:\n")[2].partition("{{- end }}")[0]
    spelt = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    assert [{spelt.get(key, key): value for key, value in rule.items()} for rule in yaml.safe_load(given)] == [
        *rules.RELABEL
    ]


def test_names_of_tenants_are_read_as_the_device_plugin_writes_them() -> None:
    name = tenant_name("team-a", "train.v2-0", "0123abcd")
    namespace, pod, _ = (re.fullmatch(rule["regex"], name) for rule in rules.RELABEL)
    assert namespace is not None
    assert pod is not None
    assert (namespace[1], pod[1]) == ("team-a", "train.v2-0")
    assert not any(re.fullmatch(rule["regex"], "train") for rule in rules.RELABEL)
