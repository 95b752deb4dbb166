"""Draw pictures as SVG with real text: bars, points with their intervals, histograms, traces.

A picture is as wide as a phone, or twice as wide. The same calls give the same bytes.
"""

import html
import math
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from reports.format import prefix
from rig.terminal import clean
from rig.types import Floats

WIDTH, EDGE = 360.0, 6.0
"""A picture's width, and the margin at its sides, in units; on a phone a unit is about a pixel."""
ROW, BAR, KEY, SCALE = 34.0, 13.0, 15.0, 36.0
"""The heights of a row, of its bar, of a line of the key, and of an axis below a panel, in units."""
LEFT = EDGE + 36.0
"""The left end of a panel, in units."""
LETTER, LETTERS, DIGIT = 11.0, 56, 6.4
"""The height of text, in units, how many letters of a key fit in a phone's width, and the width of a digit."""
UNSEEN = 0.1
"""An area lower than this, in units, is not filled."""
Span = tuple[float, float]
Place = Callable[[Any], Any]
"""A function that places a value, or an array of values, in the picture."""
Panel = tuple[Place, Place]
SHAPES = (
    (20, 0.0, 1.0), (4, 45.0, 1.0), (4, 0.0, 1.0), (3, -90.0, 1.0), (3, 90.0, 1.0), (3, 180.0, 1.0), (3, 0.0, 1.0),
    (4, 0.0, 0.3), (5, -90.0, 0.45), (4, 45.0, 0.3),
)  # fmt: skip
"""Shapes of marks: corners, the direction of the first (degrees), and how far sides bend inwards (1: straight)."""
CROSS = 9

INK, MUTED, GRID = "#1a1f26", "#5b6570", "#d9dee3"
TRACE = "#0b3c5d"
COLOURS = {  # Okabe and Ito's palette, which colour-blind readers can distinguish
    "idle": "#b8bec5", "load": "#56b4e9", "host_preprocess": "#f0e442", "preprocess": "#e69f00",
    "inference": "#0072b2", "solve": "#cc79a7", "postprocess": "#009e73", "warm-up": "#7a6a53", "mark": "#d55e00",
}  # fmt: skip
HUES = tuple(COLOURS[name] for name in ("inference", "preprocess", "postprocess", "solve", "load", "mark", "warm-up"))
SIM = "#a3195b"
LIMIT = "#b3420a"  # a bound, and what exceeds it
THEME = {
    INK: "var(--ink)", MUTED: "var(--muted)", GRID: "var(--line)", TRACE: "var(--accent)", LIMIT: "var(--limit)",
    SIM: "var(--sim)", "#ffffff": "var(--paper)",
}  # fmt: skip
"""Colours of pictures that follow the page's theme, light or dark."""


class Sheet:
    """A picture that grows downwards; the next part begins at ``y``."""

    def __init__(self, title: str, width: float = WIDTH) -> None:
        self.width, self.y, self.parts = width, 18.0, list[str]()
        self.text(EDGE, 12.0, title, bold=True)

    def text(
        self,
        x: float,
        y: float,
        said: str,
        anchor: str = "start",
        colour: str = INK,
        bold: bool = False,
        upright: bool = False,
    ) -> None:
        """Write ``said`` with its base line at ``y`` or, with ``upright``, upwards from there."""
        weight = "; font-weight: bold" if bold else ""
        turned = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if upright else ""
        place = f'x="{x:.1f}" y="{y:.1f}"{turned} text-anchor="{anchor}" style="fill: {colour}{weight}"'
        self.parts.append(f"<text {place}>{html.escape(clean(said))}</text>")

    def box(self, x: Span, y: Span, colour: str, opacity: float = 1.0) -> None:
        """Fill a rectangle between the two values of ``x`` and of ``y``; draw nothing without width or height."""
        if x[1] > x[0] and y[1] > y[0]:
            size = f'x="{x[0]:.2f}" y="{y[0]:.2f}" width="{x[1] - x[0]:.2f}" height="{y[1] - y[0]:.2f}"'
            faint = f"; fill-opacity: {opacity:g}" if opacity < 1.0 else ""
            self.parts.append(f'<rect {size} style="fill: {colour}{faint}"/>')

    def line(self, x: Span, y: Span, colour: str, width: float = 1.0, dash: str = "") -> None:
        """Draw a straight line between two points."""
        ends = f'x1="{x[0]:.2f}" y1="{y[0]:.2f}" x2="{x[1]:.2f}" y2="{y[1]:.2f}"'
        dashed = f"; stroke-dasharray: {dash}" if dash else ""
        self.parts.append(f'<line {ends} style="stroke: {colour}; stroke-width: {width:g}{dashed}"/>')

    def path(
        self,
        x: Floats,
        y: Floats,
        colour: str,
        width: float = 1.0,
        opacity: float = 1.0,
        dash: str = "",
        fill: bool = False,
    ) -> None:
        """Draw a line through points, or fill the area within; the line breaks at a point with NaN; shapes (n,)."""
        known = np.isfinite(x) & np.isfinite(y)
        pens = np.where(np.append(False, known[:-1]), "L", "M")[known].tolist()
        points = zip(pens, x[known].tolist(), y[known].tolist(), strict=True)
        way = "".join(f"{pen}{a:.1f} {b:.1f}" for pen, a, b in points)
        look = f"fill: none; stroke: {colour}; stroke-width: {width:g}; stroke-opacity: {opacity:g}"
        look += f"; stroke-dasharray: {dash}" if dash else ""
        look = f"fill: {colour}; fill-opacity: {opacity:g}" if fill else look
        self.parts.append(f'<path d="{way}" style="{look}"/>')

    def strokes(self, x: tuple[Floats, Floats], y: tuple[Floats, Floats], colour: str, **look: Any) -> None:
        """Draw straight lines from first points to second points; shapes (n,)."""
        along, upwards = (np.column_stack([*ends, np.full(len(ends[0]), np.nan)]).ravel() for ends in (x, y))
        self.path(along, upwards, colour, **look)

    def steps(self, x: Floats, y: Floats, colour: str, **look: Any) -> None:
        """Draw a line that keeps each height until the next point; shapes (n,)."""
        self.path(np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1], colour, **look)

    def fill(self, knots: Floats, low: Floats, high: Floats, colour: str, opacity: float, here: Any = True) -> None:
        """Fill between two heights (n,) over knots (n + 1,) where ``here`` is true; an area too low to see is left."""
        seen = np.flatnonzero(np.diff(np.concatenate([[False], here & (low - high > UNSEEN), [False]]).astype(int)))
        x, y = list[Floats]([np.zeros(0)]), list[Floats]([np.zeros(0)])
        for first, last in seen.reshape(-1, 2):
            along, under = np.repeat(knots[first : last + 1], 2)[1:-1], np.repeat(low[first:last], 2)[::-1]
            ends: Any = [0, -1] if np.all(under == under[0]) else slice(None)
            x += [along, along[::-1][ends], np.array([np.nan])]
            y += [np.repeat(high[first:last], 2), under[ends], np.array([np.nan])]
        self.path(np.concatenate(x), np.concatenate(y), colour, opacity=opacity, fill=True)

    def dot(self, x: float, y: float, colour: str, radius: float = 2.2) -> None:
        """Draw a filled circle."""
        self.parts.append(f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:g}" style="fill: {colour}"/>')

    def mark(self, x: float, y: float, colour: str, shape: int = 0, hollow: bool = False, radius: float = 3.6) -> None:
        """Draw a mark of one of ``SHAPES``."""
        corners, turn, bent = SHAPES[shape % len(SHAPES)]
        angle = math.radians(turn) + math.pi * np.arange(2 * corners) / corners
        reach = radius * np.where(np.arange(2 * corners) % 2, bent * math.cos(math.pi / corners), 1.0)
        ends = zip((x + reach * np.cos(angle)).tolist(), (y + reach * np.sin(angle)).tolist(), strict=True)
        points = " ".join(f"{a:.2f},{b:.2f}" for a, b in ends)
        look = f"fill: {'#ffffff' if hollow else colour}; stroke: {colour}; stroke-width: {1.2 if hollow else 0:g}"
        self.parts.append(f'<polygon points="{points}" style="{look}"/>')

    def point(self, x: float, y: float, ends: Span, colour: str, shape: int = 0, hollow: bool = False) -> None:
        """Draw a mark with a line between the ends of its interval."""
        self.line((x, x), ends, colour)
        self.mark(x, y, colour, shape, hollow)

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
        unit: str = "",
    ) -> None:
        """Add an axis below what was drawn, from ``left`` to the right edge; lines go up to ``top``.

        ``marks`` are the texts of its values, which are round numbers by default, in ``unit`` with an SI prefix.
        """
        factor, unit = prefix(max(abs(low), abs(high)), unit)
        label = f"{label}, {unit}" if unit else label
        round_ones = decades(low, high) if log else ticks(low * factor, high * factor, 5 * int(self.width // WIDTH))
        marks = marks or {at / factor: said for at, said in texts_of(round_ones).items()}
        for at, said in marks.items():
            x = place((low, high), (left, self.width - EDGE), log)(at)
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
        left: float = LEFT,
        marks: Mapping[float, str] | None = None,
        marks_y: Mapping[float, str] | None = None,
        unit: str = "",
    ) -> Panel:
        """Add axes of two ranges with ticks; return the functions that place a value across and upwards.

        ``unit`` is the unit of ``x``, which then gets an SI prefix.
        """
        top = self.y + 6.0
        self.y = bottom = top + height
        marks_y = marks_y or texts_of(decades(*y) if log_y else ticks(*y, 4))
        if left == LEFT:  # a caller that aligns panels gives another left end
            left = max(left, EDGE + 4.0 + DIGIT * max(map(len, marks_y.values()), default=0))
        across, up = place(x, (left, self.width - EDGE), log), place(y, (bottom, top), log_y)
        for at, said in marks_y.items():
            self.line((left, self.width - EDGE), (up(at), up(at)), GRID, 0.6)
            self.text(left - 4.0, up(at) + 4.0, said, "end", MUTED)
        self.scale(*x, label, left, top, log, marks, unit)
        return across, up

    def key(self, labels: Sequence[tuple[Any, ...]]) -> None:
        """Add the meaning of each colour, one below the other, or two side by side in a picture of twice the width.

        A label is a colour and a text. For a line its dash follows, for a mark its shape and perhaps ``hollow``.
        """
        wide = int(self.width // WIDTH)
        beside = wide if all(len(clean(label)) <= LETTERS for _, label, *_ in labels) else 1
        for k, (colour, label, *look) in enumerate(labels):
            x, y = EDGE + (k % beside) * WIDTH, self.y + 6.5
            if not look:
                self.box((x, x + 12.0), (y - 4.5, y + 4.5), colour)
            elif isinstance(look[0], str):
                self.line((x, x + 12.0), (y, y), colour, 1.6, look[0])
            else:
                self.mark(x + 6.0, y, colour, *look)
            lines = _wrapped(label, LETTERS * wide // beside)
            for row, line in enumerate(lines):
                self.text(x + 18.0, self.y + 11.0 + row * KEY, line)
            self.y += KEY * (len(lines) - 1 + (k % beside == beside - 1 or k == len(labels) - 1))

    def note(self, said: str, bold: bool = False) -> None:
        """Add a line of text, or two if it is long."""
        for line in _wrapped(said, 60 * int(self.width // WIDTH)):
            self.text(EDGE, self.y + 11.0, line, bold=bold)
            self.y += KEY

    def svg(self, simulated: Collection[bool]) -> bytes:
        """Return the picture, marked if all of it ({True}) or a part of it is simulated."""
        height = self.y + (18.0 if True in simulated else 4.0)
        if True in simulated:
            told = "SIMULATED in part" if False in simulated else "SIMULATED"
            corner = f'x="{self.width - EDGE:g}" y="{height - 4.0:.1f}" text-anchor="end"'
            look = f"fill: {SIM}; font-weight: bold"
            self.parts.append(f'<text id="simulated" {corner} style="{look}">{told}</text>')
        if {*simulated} == {True}:
            place = f'transform="translate({self.width / 2:g} {height / 2:.1f}) rotate(-18)" text-anchor="middle"'
            look = f"fill: {SIM}; fill-opacity: 0.1; font-size: 44px; font-weight: bold"
            self.parts.append(f'<text {place} style="{look}">SIMULATED</text>')
        font = f"font: {LETTER:g}px 'DejaVu Sans', system-ui, sans-serif"
        size = f'width="{self.width:g}" height="{height:g}" viewBox="0 0 {self.width:g} {height:g}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="{font}">'
        return (head + "".join(self.parts) + "</svg>\n").encode()


def _wrapped(said: str, most: int) -> list[str]:
    """Return a text as at most two lines of ``most`` letters."""
    return textwrap.wrap(clean(said), most, max_lines=2, placeholder=" …") or [""]


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers between two ends, in at most ``most`` steps of 1, 2 or 5 times a power of ten."""
    if not high > low or not math.isfinite(high - low):
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1.0, 2.0, 5.0, 10.0) if power * m >= raw * (1.0 - 1e-9))
    return [k * step for k in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def texts_of(values: Sequence[float]) -> dict[float, str]:
    """Return the texts of rising numbers, with enough digits to tell neighbours apart."""
    apart = min(map(float, np.diff(values)), default=0.0)
    most = max(map(abs, values), default=0.0)
    digits = 2 + math.floor(math.log10(most / apart)) if apart else 0
    return {at: f"{at:,.{min(max(digits, 6), 15)}g}" for at in values}


def decades(low: float, high: float) -> list[float]:
    """Return powers of ten between two ends; if these are few, also 2 and 5 times the powers."""
    tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    some = (1.0, 2.0, 5.0) if len(tens) < 4 else (1.0,)
    return [m * 10.0**k for k in tens[:: max(1, len(tens) // 5)] for m in some if low <= m * 10.0**k <= high]


def place(ends: Span, at: Span, log: bool = False) -> Place:
    """Return a function that maps the range ``ends`` to the places ``at``, linearly or, with ``log``, by logarithms."""
    low, high = map(math.log, ends) if log else ends

    def placed(value: Any) -> Any:
        value = np.log(np.maximum(value, ends[0])) if log else value
        return at[0] + (value - low) / (high - low) * (at[1] - at[0])

    return placed


def hue(k: int) -> str:
    return HUES[k % len(HUES)]
