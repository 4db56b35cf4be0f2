"""Boards as Grafana reads them, by Grafana's own builders: JSON for an import, a provisioned folder, or a ConfigMap."""

from __future__ import annotations

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as values
from grafana_foundation_sdk.models import dashboard as models

from gemini.observability.boards import Board, Panel, Query
from gemini.observability.rules import spelt

HEIGHT, WIDTH = 8, 24
TAG = "gemini"  # of all our boards: each links to the others
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
DASHES: dict[str, list[float]] = {"dashed": [10, 6], "dotted": [2, 6]}


def board_json(board: Board, scrape_seconds: float) -> str:
    """The dashboard of a Prometheus that scrapes so often."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.text)
        .tags([TAG])
        .link(
            dashboard.DashboardLink("Gemini")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .include_vars(True)
            .keep_time(True)
        )
        .refresh(f"{max(5, round(scrape_seconds))}s")
        .time("now-1h", "now")
        .timezone("browser")
        .readonly()
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    )
    for name, series in board.variables:
        made = made.with_variable(
            dashboard.QueryVariable(name)
            .datasource(DATASOURCE)
            .query(f"label_values({series}, {name})")
            .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(models.VariableSort.ALPHABETICAL_ASC)
            .include_all(True)
            .multi(True)
        )
    x = y = 0
    for panel in board.panels:
        if x + panel.width > WIDTH:
            x, y = 0, y + HEIGHT
        made = made.with_panel(_panel(panel, scrape_seconds).grid_pos(models.GridPos(HEIGHT, panel.width, x, y)))
        x += panel.width
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _panel(panel: Panel, scrape_seconds: float) -> timeseries.Panel | bargauge.Panel:
    made = _bars(panel) if panel.kind == "bars" else _lines(panel)
    for index, query in enumerate(panel.queries):
        made = made.with_target(_target(query, chr(ord("A") + index), panel.kind, scrape_seconds))
    return made


def _target(query: Query, ref: str, kind: str, scrape_seconds: float) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(spelt(query.expr, scrape_seconds)).legend_format(query.legend).ref_id(ref)
    return target.instant() if kind == "bars" else target.range()


def _bars(panel: Panel) -> bargauge.Panel:
    return (
        bargauge.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .min(0)
        .orientation(values.VizOrientation.HORIZONTAL)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("none")
    )


def _lines(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .min(0)
        .line_width(2)
        .legend(
            common.VizLegendOptions()
            .display_mode(values.LegendDisplayMode.LIST)
            .placement(values.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(values.TooltipDisplayMode.MULTI))
    )
    if panel.kind == "stacked":
        made = made.fill_opacity(40).stacking(common.StackingConfig().mode(values.StackingMode.NORMAL))
    for index, query in enumerate(panel.queries):
        if query.line != "solid":
            style = {"fill": "dash", "dash": DASHES[query.line]}
            thin = [
                models.DynamicConfigValue("custom.lineStyle", style),
                models.DynamicConfigValue("custom.lineWidth", 1),
            ]
            made = made.override_by_query(chr(ord("A") + index), thin)
    return made
