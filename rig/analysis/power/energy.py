"""Energy per inference, from power and time, or from phases that were measured one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from rig.analysis.figure_key import TRIMMED, FigureKey, Figures
from rig.analysis.power.figures import INTEGRATED_METHOD
from rig.analysis.quantity import linear, product


def energy_figures(
    times: Figures, powers: Figures, rails: Sequence[str], phases: Sequence[str], per_phase: bool = False
) -> Figures:
    """Return energy per inference: active power times mean execution time (NeuroBench, ASC), and by integration.

    If phases were measured one at a time (``per_phase``), their totals are among the figures.
    """
    out = Figures()
    for phase in ("", *phases):
        time_s = times.get(FigureKey("busy_time_per_inference_s", phase)) or times.get(
            FigureKey("execution_time_s", phase)
        )
        for rail in ("", *rails):
            active, dynamic, cut = (
                powers.get(FigureKey(quantity, phase, rail, method))
                for quantity, method in (("active_power_w", ""), ("dynamic_power_w", ""), ("active_power_w", TRIMMED))
            )
            if time_s is None or active is None or dynamic is None:
                continue
            energy = FigureKey("energy_per_inference_j", phase, rail)
            method = f"active power ({active.method}) x mean execution time"
            above = product(dynamic, time_s, "J", dynamic.method)
            out |= {
                energy: product(active, time_s, "J", method),
                FigureKey("dynamic_energy_per_inference_j", phase, rail): above,
            }
            if dynamic.method == INTEGRATED_METHOD:
                integral = product(active, time_s, "J", "integral outward into idle, with idle under it")
                out |= {FigureKey("energy_per_inference_integrated_j", phase, rail): integral}
            if cut is not None:
                method = "active power (trimmed windows) x mean execution time"
                key = FigureKey("energy_per_inference_j", phase, rail, TRIMMED)
                out |= {key: product(cut, time_s, "J", method)}
    return out | per_phase_totals(times, out, phases) if per_phase else out


def per_phase_totals(times: Figures, energies: Figures, phases: Sequence[str]) -> Figures:
    """Return totals of phases that were measured one at a time.

    Energies are added. Power is total energy over total time.
    """
    active, dynamic = (
        [energies.get(FigureKey(quantity, phase)) for phase in phases]
        for quantity in ("energy_per_inference_j", "dynamic_energy_per_inference_j")
    )
    time_s = times.get(FigureKey("execution_time_s"))
    if time_s is None or any(q is None for q in (*active, *dynamic)):
        return Figures()
    total, above = (
        linear([(1.0, q) for q in parts if q is not None], "J", "sum of phases measured one at a time")
        for parts in (active, dynamic)
    )
    method = "energy of phases measured one at a time over their time"
    return Figures({
        FigureKey("energy_per_inference_j"): total,
        FigureKey("dynamic_energy_per_inference_j"): above,
        FigureKey("active_power_w"): total.scaled(1.0 / time_s.value, "W", method),
        FigureKey("dynamic_power_w"): above.scaled(1.0 / time_s.value, "W", method),
    })  # fmt: skip
