"""Draw a simulated trace, the blocks of its model, the idle power that the model predicts, and what is left over.

python -m benchmarks.trace_picture docs/images/trace-model.png [--kind idle_in_a_sine --seed 3]
"""

import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks.command_line import parser_of
from benchmarks.kinds import KINDS
from fixtures.worlds.lab_recording import plain_lab, write
from rig.analysis.power.model.blocks import GAP, IDLE, SPAN
from rig.analysis.power.model.rail_model import RailModel, rail_model
from rig.analysis.timing.alignment.aligned_rails import aligned_rails
from rig.analysis.timing.counted_spans import activity_of
from rig.analysis.timing.gpio_spans import on_device_clock
from rig.recording.reader import open_run

STATES = ((IDLE, "idle", "C0"), (GAP, "gaps", "C2"), (SPAN, "spans", "C3"))


def modelled(kind: str, seed: int) -> RailModel:
    """Return the model of the only rail of a simulated bench of a kind."""
    lab = plain_lab(seed, kind)
    KINDS[kind](lab)
    with tempfile.TemporaryDirectory() as folder:
        write(lab, Path(folder) / "run")
        run = open_run(Path(folder) / "run")
        run, device = on_device_clock(run)
        activity = activity_of(run, device)
        (rail,) = aligned_rails(run, activity, device)
        model = rail_model(rail, activity)
    if model is None:
        raise SystemExit(f"no reading of {kind} lies in an idle window: choose another --seed")
    return model


def drawn(model: RailModel) -> Figure:
    """Return a picture: above, the trace, its blocks and idle; below, what is left over.

    What is left over is the power of a block less the predicted idle power. For gaps and spans, the mean over all their
    blocks is subtracted too.
    """
    r, blocks = model.readings, model.trace.blocks
    figure = Figure(figsize=(9.0, 5.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    above.plot(model.middle_s, 1e3 * r.watts, ",", color="0.7")
    middle = 0.5 * (blocks.start_s + blocks.end_s)
    idle_w = model.trace.idle_at(middle)
    for state, name, colour in STATES:
        at = blocks.state == state
        over = blocks.watts[at] - idle_w[at]
        above.hlines(
            1e3 * blocks.watts[at], blocks.start_s[at], blocks.end_s[at], colour, lw=3, label=f"blocks of {name}"
        )
        below.plot(middle[at], 1e3 * (over - (over.mean() if state != IDLE and len(over) else 0.0)), "o", color=colour)
    t = np.linspace(r.start_s[0], r.end_s[-1], 300)
    above.plot(t, 1e3 * model.trace.idle_at(t), "k-", lw=1, label="idle, predicted")
    above.set_ylabel("power (mW)")
    above.legend(loc="center", ncols=2)
    below.axhline(0.0, color="k", lw=0.5)
    below.set(xlabel="time (s)", ylabel="left over (mW)")
    return figure


def main() -> None:
    parser = parser_of(__doc__, seed=3)
    parser.add_argument("out", type=Path)
    parser.add_argument("--kind", metavar="KIND", default="idle_in_a_sine", choices=list(KINDS))
    args = parser.parse_args()
    drawn(modelled(args.kind, args.seed)).savefig(args.out, dpi=110)


if __name__ == "__main__":
    main()
