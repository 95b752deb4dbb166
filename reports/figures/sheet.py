"""Pictures of a fixed form as SVG with real text: bars, points with their intervals, histograms.

They are as wide as a phone, and need neither matplotlib nor the widths of letters.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Sequence

from reports.figures.style import GRID, HUES, INK, MUTED, SIM
from rig.terminal import clean

WIDTH, EDGE = 360.0, 6.0
"""A picture's width, and the margin at its sides, in units; on a phone a unit is about a pixel."""
ROW, BAR, KEY = 34.0, 13.0, 15.0
LETTER = 11.0
"""The height of text, in units."""
Span = tuple[float, float]
Place = Callable[[float], float]


class Sheet:
    """A picture that grows downwards; the next part begins at ``y``."""

    def __init__(self, title: str) -> None:
        self.y, self.parts = 18.0, list[str]()
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

    def dot(self, x: float, y: float, colour: str, radius: float = 2.2) -> None:
        """Draw a filled circle."""
        self.parts.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:g}" style="fill: {colour}"/>')

    def bar(self, told: str, parts: Sequence[tuple[float, str, str]], end: float) -> None:
        """Add a row: ``told`` above a bar of parts (length, colour, word); a length of ``end`` fills it."""
        self.text(EDGE, self.y + 11.0, told)
        x, scale, y = EDGE, (WIDTH - 2.0 * EDGE) / end, self.y + 16.0
        for length, colour, word in parts:
            self.box((x, x + max(length * scale - 0.6, 0.0)), (y, y + BAR), colour)
            if word:
                self.text(x + 0.5 * length * scale, y + 10.5, word, "middle", "#000000")
            x += length * scale
        self.y += ROW

    def scale(
        self, low: float, high: float, label: str, left: float = EDGE, top: float | None = None, log: bool = False
    ) -> None:
        """Add an axis below what was drawn, from ``left`` to the right edge; lines go up to ``top``."""
        for at in decades(low, high) if log else ticks(low, high):
            x = _across(at, (low, high), left, log)
            if top is not None:
                self.line((x, x), (top, self.y), GRID, 0.6)
            self.text(x, self.y + 13.0, f"{at:,.6g}", _anchor(x), MUTED)
        self.line((left, WIDTH - EDGE), (self.y, self.y), MUTED, 0.8)
        self.text(left, self.y + 28.0, label, colour=MUTED)
        self.y += 36.0

    def panel(self, x: Span, y: Span, height: float, label: str, log: bool = False) -> tuple[Place, Place]:
        """Add axes of two ranges with ticks; return the functions that place a value across and upwards."""
        left, top = EDGE + 36.0, self.y + 6.0
        self.y = top + height

        def up(value: float) -> float:
            return top + height - (value - y[0]) / (y[1] - y[0]) * height

        for at in ticks(*y, 4):
            self.line((left, WIDTH - EDGE), (up(at), up(at)), GRID, 0.6)
            self.text(left - 4.0, up(at) + 4.0, f"{at:.5g}", "end", MUTED)
        self.scale(*x, label, left, top, log)
        return lambda value: _across(value, x, left, log), up

    def key(self, labels: Sequence[tuple[str, str]]) -> None:
        """Add the meaning of each colour, one per line."""
        for colour, label in labels:
            self.box((EDGE, EDGE + 12.0), (self.y + 2.0, self.y + 11.0), colour)
            self.text(EDGE + 18.0, self.y + 11.0, textwrap.shorten(clean(label), 56, placeholder=" …"))
            self.y += KEY

    def note(self, said: str, bold: bool = False) -> None:
        """Add a line of text."""
        self.text(EDGE, self.y + 11.0, textwrap.shorten(clean(said), 60, placeholder=" …"), bold=bold)
        self.y += KEY

    def svg(self, simulated: bool) -> bytes:
        """Return the picture, marked if it is simulated."""
        height = self.y + (18.0 if simulated else 4.0)
        if simulated:
            own = (
                f'<text id="simulated" x="{WIDTH - EDGE:g}" y="{height - 4.0:.1f}" text-anchor="end" style="fill: {SIM}'
            )
            self.parts.append(f'{own}; font-weight: bold">SIMULATED</text>')
            place = f'transform="translate({WIDTH / 2:g} {height / 2:.1f}) rotate(-18)" text-anchor="middle"'
            look = f"fill: {SIM}; fill-opacity: 0.1; font-size: 44px; font-weight: bold"
            self.parts.append(f'<text {place} style="{look}">SIMULATED</text>')
        font = f"font: {LETTER:g}px 'DejaVu Sans', system-ui, sans-serif"
        size = f'width="{WIDTH:g}" height="{height:g}" viewBox="0 0 {WIDTH:g} {height:g}"'
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


def _across(value: float, ends: Span, left: float, log: bool) -> float:
    low, high, at = map(math.log, (*ends, value)) if log else (*ends, value)
    return left + (at - low) / (high - low) * (WIDTH - EDGE - left)


def _anchor(x: float) -> str:
    """Return the anchor of a number; at the edges it keeps the number inside the picture."""
    return "start" if x < EDGE + 12.0 else "end" if x > WIDTH - EDGE - 12.0 else "middle"


def hue(k: int) -> str:
    """Return the colour of part ``k``."""
    return HUES[k % len(HUES)]
