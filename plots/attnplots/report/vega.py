"""Draws the interactive charts of a report with Vega-Lite: a specification, made by Altair, which page.js fills with the points of
what the reader chose and embeds for each panel."""

from dataclasses import asdict
from typing import Any

import altair as alt

from attnplots.figures import style
from attnplots.figures.interactive import Chart

# The height of a panel in pixels; its width is that of the page.
HEIGHT = 300
# The name of the data in the specification.
DATA = "points"

# The markers of Matplotlib as paths, which Vega draws as large as its own shapes of these kinds.
SHAPES = {
    "o": "M1,0A1,1,0,1,1,-1,0A1,1,0,1,1,1,0Z",
    "s": "M-1,-1H1V1H-1Z",
    "^": "M0,-0.866L1,0.866H-1Z",
    "v": "M0,0.866L1,-0.866H-1Z",
    "<": "M-0.866,0L0.866,-1V1Z",
    ">": "M0.866,0L-0.866,-1V1Z",
    "D": "M0,-1L1,0L0,1L-1,0Z",
    "P": "M-0.4,-1H0.4V-0.4H1V0.4H0.4V1H-0.4V0.4H-1V-0.4H-0.4Z",
    "p": "M0.000,-1.000L0.951,-0.309L0.588,0.809L-0.588,0.809L-0.951,-0.309Z",
    "h": "M0.000,-1.000L0.866,-0.500L0.866,0.500L0.000,1.000L-0.866,0.500L-0.866,-0.500Z",
    "8": "M0.383,-0.924L0.924,-0.383L0.924,0.383L0.383,0.924L-0.383,0.924L-0.924,0.383L-0.924,-0.383L-0.383,-0.924Z",
    "*": "M0.000,-1.000L0.247,-0.340L0.951,-0.309L0.399,0.130L0.588,0.809L0.000,0.420L-0.588,0.809L-0.399,0.130L-0.951,-0.309L-0.247,-0.340Z",
    "d": "M0,-1L0.6,0L0,1L-0.6,0Z",
}


def for_page(chart: Chart, lines: str) -> dict[str, Any]:
    """What page.js gets of a chart of these `lines`. The looks of its series have colours for a light and a dark page, a path, and
    dashes in pixels."""
    series = [
        {
            "name": name, "colour": look.colour, "dark": style.on_dark(look.colour), "shape": SHAPES[look.marker or "o"],
            "hollow": look.hollow, "dash": [4 * part for part in look.dash[1]],
        }
        for name, look in chart.looks.items()
    ]  # fmt: skip
    return {name: value for name, value in asdict(chart).items() if name != "looks"} | {"series": series, "lines": lines}


def specification() -> dict[str, Any]:
    """The specification of one panel, whose points have the fields x, y, low and high (the ends of the interval), series and part. page.js sets the titles, the scales, the looks and the text
    over a point, and adds a layer of crosses for each series that has lengths without a value."""
    base = alt.Chart(alt.NamedData(DATA)).encode(x=alt.X("x:Q"), detail="part:N")
    colour, stroke = (kind("series:N", legend=None) for kind in (alt.Color, alt.Stroke))
    line = base.mark_line(strokeWidth=1.7, clip=True).encode(
        y="y:Q", color=colour, strokeDash=alt.StrokeDash("series:N", legend=None)
    )
    bars = base.mark_rule(strokeWidth=1.4, clip=True).encode(y="low:Q", y2="high:Q", color=colour)
    points = base.mark_point(size=52, strokeWidth=1.5, opacity=1, clip=True).encode(
        y="y:Q", stroke=stroke, fill=alt.Fill("series:N", legend=None), shape=alt.Shape("series:N", legend=None)
    )
    return alt.layer(line, bars, points).properties(width="container", height=HEIGHT).to_dict()
