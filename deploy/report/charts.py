"""The pictures of a report as SVG, by Vega-Lite: no script, no font and no colour of its own.

Colours are CSS variables, so that one picture reads well in light and in dark. Vega escapes the words in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from deploy.errors import ConfigError
from deploy.report.blocks import Bars, Chart, Points
from deploy.text.legible import one_line

FULL, HALF = 880, 420  # pixels of width
HEIGHT = 200
ROW = 22  # pixels of a waterfall's line
LABEL = 210  # pixels that a label may take
NARROWEST = 2  # pixels: what took no time was there all the same
BESIDE = 44  # letters of a legend that have room on one line
WIDER = 1.3  # pixels for each letter by which a reader's font may be wider than that which Vega measures by
SERIES = 6  # colours that the page knows: --c1 .. --c6
KINDS = {
    "step": "var(--c1)",
    "stage of the start": "var(--c2)",
    "checks and files": "var(--c4)",
    "stop and free": "var(--c3)",
    "start": "var(--c2)",
    "proof": "var(--c1)",
    "failed": "var(--bad)",
    "left": "var(--soft)",
}
AXIS = {
    "labelColor": "var(--ink)",
    "titleColor": "var(--soft)",
    "gridColor": "var(--line)",
    "domainColor": "var(--line)",
    "tickColor": "var(--line)",
    "labelFontSize": 12,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "labelLimit": LABEL,
}
LEGEND = {
    "orient": "top",
    "title": None,
    "labelColor": "var(--ink)",
    "labelFontSize": 12,
    "labelLimit": LABEL,
    "symbolOpacity": 1,
    "symbolStrokeWidth": 2,
}
STYLE: Mapping[str, Any] = {
    "background": None,
    "font": "sans-serif",
    "view": {"stroke": None},
    "axis": AXIS,
    "legend": LEGEND,
}


def svg(chart: Chart) -> str:
    """The picture. ConfigError where what draws it is not installed."""
    try:
        import altair as alt
        import vl_convert
    except ImportError as error:
        what = "charts need altair and vl-convert-python, which are not installed"
        remedy = "pip install 'bare-deploy[report]', or without charts: deploy report --out report.md"
        raise ConfigError(what, evidence=str(error), remedy=remedy) from error
    plot = chart.plot
    drawn = _bars(alt, plot) if isinstance(plot, Bars) else _points(alt, plot)
    drawn = drawn.properties(autosize={"type": "fit-x", "contains": "padding"})
    return str(vl_convert.vegalite_to_svg({**drawn.to_dict(), "config": dict(STYLE)}))


def _bars(alt: Any, plot: Bars) -> Any:
    """A line for each label, in the order given; hosts' words are cut, the table beside it has them whole."""
    least = max(bar.begin + bar.seconds for bar in plot.bars) * NARROWEST / FULL
    rows = [
        {
            "label": one_line(bar.label, 40),
            "begin": bar.begin,
            "end": bar.begin + max(bar.seconds, least),
            "kind": bar.kind,
        }
        for bar in plot.bars
    ]
    kinds = [kind for kind in plot.kinds if any(bar.kind == kind for bar in plot.bars)]
    labels = list(dict.fromkeys(str(row["label"]) for row in rows))
    scale = alt.Scale(domain=kinds, range=[KINDS.get(kind, "var(--c1)") for kind in kinds])
    return (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(height=ROW * 0.6)
        .encode(
            x=alt.X("begin:Q", title="seconds since the run began", axis=alt.Axis(tickCount=8)),
            x2="end:Q",
            y=alt.Y("label:N", sort=labels, title=None, axis=alt.Axis(ticks=False, domain=False)),
            color=alt.Color("kind:N", scale=scale, legend=_legend(alt, kinds)),
        )
        .properties(width=FULL, height=alt.Step(ROW), padding=_padding(labels))
    )


def _points(alt: Any, plot: Points) -> Any:
    names = list(plot.names) or list(dict.fromkeys(point.series for point in plot.points))
    rows = [
        {
            "label": one_line(point.label, 40),
            "value": point.value,
            "low": point.value if point.low is None else max(point.low, plot.floor),
            "high": point.value if point.high is None else min(point.high, plot.ceiling or point.high),
            "series": one_line(point.series, 40),
        }
        for point in plot.points
    ]
    labels = list(dict.fromkeys(row["label"] for row in rows))
    x = alt.X("label:O", sort=labels, title=plot.labels or None, axis=alt.Axis(labelAngle=0, ticks=False))
    base = alt.Chart(alt.Data(values=rows)).encode(x=x, color=_color(alt, [one_line(name, 40) for name in names]))
    joined = plot.joined and len(labels) > 1
    layers = _columns(alt, base, plot) if plot.columns else _lines(alt, base, plot, len(names), joined=joined)
    return alt.layer(*layers).properties(width=HALF, height=HEIGHT, padding=_padding(()))


def _legend(alt: Any, names: list[str]) -> Any:
    """Beside each other, or below each other where they are long; a name alone needs none."""
    if len(names) < 2:
        return None
    return alt.Legend(columns=1 if sum(map(len, names)) > BESIDE else len(names), columnPadding=24)


def _padding(labels: Iterable[str]) -> dict[str, float]:
    """Room around the picture, at its left for labels."""
    longest = max(map(len, labels), default=0)
    return {"left": 2 + longest * WIDER, "right": 12, "top": 2, "bottom": 2}


def _color(alt: Any, names: list[str]) -> Any:
    scale = alt.Scale(domain=names, range=[f"var(--c{place % SERIES + 1})" for place in range(len(names))])
    return alt.Color("series:N", scale=scale, legend=_legend(alt, names))


def _value(alt: Any, plot: Points, field: str = "value:Q") -> Any:
    highest = max([point.value if point.high is None else point.high for point in plot.points], default=plot.floor)
    ceiling = plot.ceiling or highest
    ceiling = ceiling if ceiling > plot.floor else plot.floor + 1
    scale = alt.Scale(domain=[plot.floor, ceiling], nice=plot.ceiling is None)
    axis = alt.Axis(tickCount=5, format=".0%") if plot.percent else alt.Axis(tickCount=5)
    return alt.Y(field, scale=scale, title=plot.title, axis=axis)


def _columns(alt: Any, base: Any, plot: Points) -> list[Any]:
    column = base.mark_bar(width={"band": 0.6}).encode(y=_value(alt, plot))
    text = base.mark_text(dy=-7, fontSize=12).encode(
        y=_value(alt, plot),
        text=alt.Text("value:Q", format=".0%" if plot.percent else ".2f"),
        color=alt.value("var(--ink)"),
    )
    return [column, text]


def _lines(alt: Any, base: Any, plot: Points, series: int, *, joined: bool) -> list[Any]:
    """Bands behind, then the line, the interval and the dot; series differ by their marks, not by colour alone."""
    y = _value(alt, plot)
    beside = {} if joined or series < 2 else {"xOffset": alt.XOffset("series:N", scale=alt.Scale(paddingOuter=1))}
    kind = {"shape": alt.Shape("series:N", legend=None)} if series > 1 else {}
    layers = []
    if joined:
        low = _value(alt, plot, "low:Q")
        layers.append(base.mark_area(opacity=0.18).encode(y=low, y2="high:Q"))
        layers.append(base.mark_line(strokeWidth=2).encode(y=y))
    layers.append(base.mark_rule(strokeWidth=2).encode(y=_value(alt, plot, "low:Q"), y2="high:Q", **beside))
    layers.append(base.mark_point(filled=True, size=50, opacity=1).encode(y=y, **beside, **kind))
    return layers
