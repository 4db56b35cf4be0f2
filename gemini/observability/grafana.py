"""Boards as Grafana reads them, by Grafana's own builders: JSON for an import, a provisioned folder, or a ConfigMap."""

from __future__ import annotations

from collections.abc import Callable

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from gemini.observability.boards import Board, Panel, Query
from gemini.observability.rules import spelt

HEIGHT, WIDTH = 8, 24
LOW = 4  # of a row of single figures
NOW = ("bars", "stat", "table")  # kinds that show how it is, and not how it was
HIDDEN = ("Time", "__name__", "job", "instance", "endpoint", "prometheus")  # columns of a table
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
            .all_value(".*")  # also where no series has the label
            .current(models.VariableOption(text="All", value="$__all"))
            .multi(True)
        )
    x = y = height = 0
    for panel in board.panels:
        if x + panel.width > WIDTH:
            x, y = 0, y + height
        height = LOW if panel.kind == "stat" else HEIGHT
        made = made.with_panel(_panel(panel, scrape_seconds).grid_pos(models.GridPos(height, panel.width, x, y)))
        x += panel.width
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


Made = timeseries.Panel | bargauge.Panel | stat.Panel | table.Panel


def _panel(panel: Panel, scrape_seconds: float) -> Made:
    makers: dict[str, Callable[[Panel], Made]] = {"bars": _bars, "stat": _stat, "table": _table}
    made = makers.get(panel.kind, _lines)(panel)
    for index, query in enumerate(panel.queries):
        made = made.with_target(_target(query, _ref(index), panel.kind, scrape_seconds))
    return made


def _ref(index: int) -> str:
    return chr(ord("A") + index)


def _target(query: Query, ref: str, kind: str, scrape_seconds: float) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(spelt(query.expr, scrape_seconds)).legend_format(query.legend).ref_id(ref)
    if kind == "table":
        target = target.format(PromQueryFormat.TABLE)
    return target.instant() if kind in NOW else target.range()


def _stat(panel: Panel) -> stat.Panel:
    steps = [models.Threshold(value=value, color=colour) for value, colour in panel.steps]
    return (
        stat.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))
        .color_mode(common_models.BigValueColorMode.BACKGROUND)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .no_value("none")
    )


def _table(panel: Panel) -> table.Panel:
    """A row for each set of labels, a column for each query."""
    made = (
        table.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(
            models.DataTransformerConfig(
                id_val="organize",
                options={
                    "excludeByName": dict.fromkeys(HIDDEN, True),
                    "renameByName": {
                        f"Value #{_ref(index)}": query.legend for index, query in enumerate(panel.queries)
                    },
                },
            )
        )
    )
    for query, unit in zip(panel.queries, panel.units, strict=True):
        made = made.override_by_name(query.legend, [models.DynamicConfigValue("unit", unit)])
    return made


def _bars(panel: Panel) -> bargauge.Panel:
    return (
        bargauge.Panel()
        .title(panel.title)
        .description(panel.text)
        .datasource(DATASOURCE)
        .unit(panel.unit)
        .min(0)
        .orientation(common_models.VizOrientation.HORIZONTAL)
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
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .show_legend(True)
        )
        .tooltip(common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI))
    )
    if panel.kind == "stacked":
        made = made.fill_opacity(40).stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL))
    for index, query in enumerate(panel.queries):
        if query.line != "solid":
            style = {"fill": "dash", "dash": DASHES[query.line]}
            thin = [
                models.DynamicConfigValue("custom.lineStyle", style),
                models.DynamicConfigValue("custom.lineWidth", 1),
            ]
            if panel.kind == "band" and query.line == "dotted":  # down to the dashed one
                below = next(one.legend for one in panel.queries if one.line == "dashed")
                thin.append(models.DynamicConfigValue("custom.fillBelowTo", below))
                thin.append(models.DynamicConfigValue("custom.fillOpacity", 15))
            made = made.override_by_query(chr(ord("A") + index), thin)
    return made
