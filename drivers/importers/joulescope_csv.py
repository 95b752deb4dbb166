"""Joulescope: the statistics table that its program records, with one row of means per update."""

from collections.abc import Sequence
from pathlib import Path

from drivers.importers.csv_table import Blocks, Table, find
from drivers.importers.single_trace import Readings, SingleTrace, check_power, single_trace, watts
from rig.types import Conversion, Rail

COLUMNS = ["#time", "current", "voltage", "power", "charge", "energy"]


@single_trace
def open_import(source: Path) -> SingleTrace:
    """Import the power of a statistics recording, ``#time,current,voltage,power,charge,energy`` in s, A, V, W, C and J.

    Windows are in the seconds of ``#time``, whose first row need not be at 0. Each row has the means since the row
    before. From row to row, charge rises by the later row's current times the time between the rows, and energy rises
    by its power times this time. Raises ``UsageError`` for an option that must be stated, ``DataError`` for a file of
    another format, or whose power is not its current times its voltage.
    """
    form = ("a statistics recording", f"The header of such a recording begins with {','.join(COLUMNS)}")
    layout = find(source, lambda names: names if _bare(names) == _bare(COLUMNS) else None, form=form)
    names = layout.names
    table = Table(source, [names[0], "power", "current", "voltage"], layout)
    check_power(source, ((p.numbers("power"), watts(p.numbers("current"), p.numbers("voltage"))) for p in table))
    blocks = Blocks(table, lambda part: part.stamps_ns(names[0], "s"), lambda part: part.numbers("power"))
    readings = Readings(Rail("joulescope", "mean", Conversion("W")), blocks.axis("end"), blocks)
    return SingleTrace("Joulescope statistics", [readings], notes=layout.notes(source))


def _bare(names: Sequence[str]) -> list[str]:
    return [n.lstrip("#") for n in names]
