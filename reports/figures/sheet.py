"""Pictures as SVG with real text: bars, points with their intervals, histograms, traces.

They are as wide as a phone, or twice as wide, and need neither matplotlib nor the widths of letters.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from reports.figures.style import GRID, HUES, INK, MUTED, SIM, Floats
from rig.terminal import clean

WIDTH, EDGE = 360.0, 6.0
"""A picture's width, and the margin at its sides, in units; on a phone a unit is about a pixel."""
ROW, BAR, KEY, SCALE = 34.0, 13.0, 15.0, 36.0
"""The heights of a row, of its bar, of a line of the key, and of an axis below a panel, in units."""
LETTER = 11.0
"""The height of text, in units."""
Span = tuple[float, float]
Place = Callable[[Any], Any]
"""Places a value or an array of them."""
Panel = tuple[Place, Place]


class Sheet:
    """A picture that grows downwards; the next part begins at ``y``."""

    def __init__(self, title: str, width: float = WIDTH) -> None:
        self.width, self.y, self.parts = width, 18.0, list[str]()
        self.text(EDGE, 12.0, title, bold=True)

    def text(self, x: float, y: float, said: str, anchor: str = "start", colour: str = INK, bold: bool = False) -> None:
        """Write ``said`` with its base line at ``y``."""
        weight = "; font-weight: bold" if bold else ""
        place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="fill: {colour}{weight}"'
        self.parts.append(f"<text {place}>{html.escape(clean(said))}</text>")

    def box(self, x: Span, y: Span, colour: str, opacity: float = 1.0) -> None:
        """Fill a rectangle between the two values of ``x`` and of ``y``; a rectangle without width is left out."""
        if x[1] > x[0] and y[1] > y[0]:
            size = f'x="{x[0]:.2f}" y="{y[0]:.2f}" width="{x[1] - x[0]:.2f}" height="{y[1] - y[0]:.2f}"'
            faint = f"; fill-opacity: {opacity:g}" if opacity < 1.0 else ""
            self.parts.append(f'<rect {size} style="fill: {colour}{faint}"/>')

    def line(self, x: Span, y: Span, colour: str, width: float = 1.0, dash: str = "") -> None:
        """Draw a straight line between two points."""
        ends = f'x1="{x[0]:.2f}" y1="{y[0]:.2f}" x2="{x[1]:.2f}" y2="{y[1]:.2f}"'
        dashed = f"; stroke-dasharray: {dash}" if dash else ""
        self.parts.append(f'<line {ends} style="stroke: {colour}; stroke-width: {width:g}{dashed}"/>')

    def path(self, x: Floats, y: Floats, colour: str, width: float = 1.0, opacity: float = 1.0) -> None:
        """Draw a line through points, which breaks where one is NaN; shapes (n,)."""
        known = np.isfinite(x) & np.isfinite(y)
        pens = np.where(np.append(False, known[:-1]), "L", "M")[known].tolist()
        points = zip(pens, x[known].tolist(), y[known].tolist(), strict=True)
        way = "".join(f"{pen}{a:.1f} {b:.1f}" for pen, a, b in points)
        look = f"fill: none; stroke: {colour}; stroke-width: {width:g}; stroke-opacity: {opacity:g}"
        self.parts.append(f'<path d="{way}" style="{look}"/>')

    def strokes(
        self, x: tuple[Floats, Floats], y: tuple[Floats, Floats], colour: str, width: float = 1.0, opacity: float = 1.0
    ) -> None:
        """Draw a straight line from each first point to its second; shapes (n,)."""
        along, upwards = (np.column_stack([*ends, np.full(len(ends[0]), np.nan)]).ravel() for ends in (x, y))
        self.path(along, upwards, colour, width, opacity)

    def dot(self, x: float, y: float, colour: str, radius: float = 2.2) -> None:
        """Draw a filled circle."""
        self.parts.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:g}" style="fill: {colour}"/>')

    def bar(self, told: str, parts: Sequence[tuple[float, str, str]], end: float) -> None:
        """Add a row: ``told`` above a bar of parts (length, colour, word); a length of ``end`` fills it."""
        self.text(EDGE, self.y + 11.0, told)
        x, scale, y = EDGE, (self.width - 2.0 * EDGE) / end, self.y + 16.0
        for length, colour, word in parts:
            self.box((x, x + max(length * scale - 0.6, 0.0)), (y, y + BAR), colour)
            if word:
                self.text(x + 0.5 * length * scale, y + 10.5, word, "middle", "#000000")
            x += length * scale
        self.y += ROW

    def scale(
        self,
        low: float,
        high: float,
        label: str,
        left: float = EDGE,
        top: float | None = None,
        log: bool = False,
        marks: Mapping[float, str] | None = None,
    ) -> None:
        """Add an axis below what was drawn, from ``left`` to the right edge; lines go up to ``top``.

        ``marks`` are the texts of its values, which are round numbers by default.
        """
        most = 5 * int(self.width // WIDTH)
        marks = marks or {at: f"{at:,.6g}" for at in (decades(low, high) if log else ticks(low, high, most))}
        for at, said in marks.items():
            x = _placed(at, (low, high), (left, self.width - EDGE), log)
            if top is not None:
                self.line((x, x), (top, self.y), GRID, 0.6)
            anchor = "start" if x < EDGE + 12.0 else "end" if x > self.width - EDGE - 12.0 else "middle"
            self.text(x, self.y + 13.0, said, anchor, MUTED)  # at the edges it stays inside the picture
        self.line((left, self.width - EDGE), (self.y, self.y), MUTED, 0.8)
        self.text(left, self.y + 28.0, label, colour=MUTED)
        self.y += SCALE

    def panel(
        self,
        x: Span,
        y: Span,
        height: float,
        label: str,
        log: bool = False,
        log_y: bool = False,
        marks: Mapping[float, str] | None = None,
    ) -> Panel:
        """Add axes of two ranges with ticks; return the functions that place a value across and upwards."""
        left, top = EDGE + 36.0, self.y + 6.0
        self.y = bottom = top + height

        def across(value: Any) -> Any:
            return _placed(value, x, (left, self.width - EDGE), log)

        def up(value: Any) -> Any:
            return _placed(value, y, (bottom, top), log_y)

        for at in decades(*y) if log_y else ticks(*y, 4):
            self.line((left, self.width - EDGE), (up(at), up(at)), GRID, 0.6)
            self.text(left - 4.0, up(at) + 4.0, f"{at:.5g}", "end", MUTED)
        self.scale(*x, label, left, top, log, marks)
        return across, up

    def key(self, labels: Sequence[tuple[str, str]]) -> None:
        """Add the meaning of each colour, one per line, or two in a picture of twice the width."""
        beside = int(self.width // WIDTH)
        for k, (colour, label) in enumerate(labels):
            x = EDGE + (k % beside) * WIDTH
            self.box((x, x + 12.0), (self.y + 2.0, self.y + 11.0), colour)
            self.text(x + 18.0, self.y + 11.0, textwrap.shorten(clean(label), 56, placeholder=" …"))
            self.y += KEY * (k % beside == beside - 1 or k == len(labels) - 1)

    def note(self, said: str, bold: bool = False) -> None:
        """Add a line of text."""
        self.text(EDGE, self.y + 11.0, textwrap.shorten(clean(said), 60, placeholder=" …"), bold=bold)
        self.y += KEY

    def svg(self, simulated: bool) -> bytes:
        """Return the picture, marked if it is simulated."""
        height = self.y + (18.0 if simulated else 4.0)
        if simulated:
            corner = f'x="{self.width - EDGE:g}" y="{height - 4.0:.1f}" text-anchor="end"'
            look = f"fill: {SIM}; font-weight: bold"
            self.parts.append(f'<text id="simulated" {corner} style="{look}">SIMULATED</text>')
            place = f'transform="translate({self.width / 2:g} {height / 2:.1f}) rotate(-18)" text-anchor="middle"'
            look = f"fill: {SIM}; fill-opacity: 0.1; font-size: 44px; font-weight: bold"
            self.parts.append(f'<text {place} style="{look}">SIMULATED</text>')
        font = f"font: {LETTER:g}px 'DejaVu Sans', system-ui, sans-serif"
        size = f'width="{self.width:g}" height="{height:g}" viewBox="0 0 {self.width:g} {height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{font}">'
        return (head + "".join(self.parts) + "</svg>\n").encode()


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers between two ends, at most ``most`` steps of 1, 2 or 5 times a power of ten."""
    if not high > low or not math.isfinite(high - low):
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1.0, 2.0, 5.0, 10.0) if power * m >= raw * (1.0 - 1e-9))
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Return powers of ten between two ends; if these are few, also 2 and 5 times the powers."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    some = (1.0, 2.0, 5.0) if len(tens) < 4 else (1.0,)
    return [m * 10.0**k for k in tens[:: max(1, len(tens) // 5)] for m in some if low <= m * 10.0**k <= high]


def _placed(value: Any, ends: Span, at: Span, log: bool) -> Any:
    """Return where values lie between two places, at which the two ends of their range are."""
    low, high, value = (*map(math.log, ends), np.log(value)) if log else (*ends, value)
    return at[0] + (value - low) / (high - low) * (at[1] - at[0])


def hue(k: int) -> str:
    """Return the colour of part ``k``."""
    return HUES[k % len(HUES)]
