"""Draw the pictures of a report as SVG. The same result gives the same bytes."""

from reports.headlines_and_tables import key_figures
from reports.pictures.bars import budget_figure, energy_figure, layers_figure
from reports.pictures.service import service_figure
from reports.pictures.several_runs import peak_figure, trials_figure
from reports.pictures.solver import solver_figure
from reports.pictures.stream import stream_figure
from reports.pictures.times import clocks_figure, latency_figure
from reports.pictures.trace import power_figure
from rig.analysis.result.result import Result
from rig.analysis.solving.solves import RUNTIME


def draw(result: Result) -> dict[str, bytes]:
    """Return SVG by the names in ``captions.CAPTIONS``; a figure without data is left out."""
    start, series, quantities = result.start, result.series, result.quantities
    rails = {rail.name for meter in start.meters for rail in meter.rails}
    sheets = {
        "stream": stream_figure(series, quantities),
        "power": power_figure(series),
        "latency": latency_figure(series.execution_times_s, quantities),
        "service": service_figure(result),
        "peak": peak_figure(result),
        "solver": solver_figure(series.solves, quantities.get(RUNTIME)),
        "clocks": clocks_figure(series.clock_reads, result.clocks),
        "trials": trials_figure(series.trials, start.rules.trial_tolerance if start.rules else None),
        "energy": energy_figure(quantities),
        "layers": layers_figure(quantities),
        "budget": budget_figure(quantities, key_figures(result), rails),
    }
    return {name: sheet.svg({result.simulated}) for name, sheet in sheets.items() if sheet is not None}
