"""SpiNNaker through sPyNNaker as a worker of ``drivers/workers/serve.py``. It is shipped as source.

sPyNNaker 7.4 accepts spike times only when a population is made. So the network is made with the spikes of all staged
samples in their order, and each presentation runs the next sample. A sample out of this order needs a new network.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from drivers.workers.common import Refusal, decoded, unimportable, versions
from drivers.workers.pynn_network import Network, answer, staged, whole_steps_ms

PACKAGES = ("sPyNNaker", "SpiNNFrontEndCommon", "PyNN", "numpy")
AGAIN = ("SpinnmanIOException", "SpinnmanTimeoutException", "SpinnmanGenericProcessException", "SpinnMachineException")
"""Errors of a board that boots or connects. They often vanish if the board is started again: sPyNNaker issue 243,
sPyNNaker8 issue 412 (one-way links), SpiNNFrontEndCommon issue 1296 (boot).
"""
TRIES = 3
BOARD = 5
"""sPyNNaker's version number for a board with 48 chips."""


def open_worker(options: dict[str, Any]) -> Machine:
    """Open the machine. Options: ``description``, ``arrays``, ``about``, ``simulate``, ``board``, ``spalloc``.

    Raises a ``Refusal`` without sPyNNaker, and if no machine is named.
    """
    if not (options["simulate"] or options["board"] or options["spalloc"]):
        what = "no SpiNNaker machine was named: there is neither a board's address nor a spalloc server"
        remedy = "Give the option board (host name or address of a SpiNN-5 board) or spalloc (URL), or add --simulate"
        raise Refusal("SetupError", what, remedy, "board")
    home = _configure(options)
    try:
        sim = importlib.import_module("spynnaker.pyNN")
    except ImportError as error:
        remedy = "Make an environment: pip install 'sPyNNaker==1!7.4.1', and name its python (interpreter)"
        raise unimportable("sPyNNaker", error, remedy) from error
    return Machine(sim, options, home)


class Machine:
    """The worker, on a board or on sPyNNaker's virtual board, for which networks are mapped but not simulated."""

    def __init__(self, sim: Any, options: dict[str, Any], home: Any = None) -> None:
        self._sim, self._options, self._description = sim, options, options["description"]
        self._home = home
        self._network: Network | None = None
        self._staged: dict[str, dict[str, Any]] = {}
        self._turn: list[str] = []
        self._lead_s = 1e-3 * self._description["step_ms"]
        where = "virtual board: mapped, not run" if options["simulate"] else options["board"] or options["spalloc"]
        found = versions(PACKAGES)
        self.about = {
            "mode": "simulator" if options["simulate"] else "hardware",
            "description": f"SpiNNaker ({where}) through sPyNNaker {found['sPyNNaker']}",
            "phases": ["load", "inference"],
            "timeout_s": 3600.0,
            "versions": found,
            **options.get("about", {}),
        }
        if options["simulate"]:
            self.about["details"] = {"mapping": self.mapping()}

    def stage(self, samples: list[dict[str, Any]]) -> None:
        """Keep the samples, in the order in which they will be presented."""
        self._staged, self._turn = staged(samples, self._description["step_ms"]), []

    def run(self, sample_id: str, budget: Any) -> dict[str, Any]:
        """Present a sample. ``load`` makes, maps and loads the network if needed; ``inference`` is one ``run``.

        The host stamps both phases. The machine runs in real time, so the presentation itself takes its biological
        time. The rest of ``inference`` is overhead.
        """
        sample = self._staged[sample_id]
        tried: list[str] = []
        while True:
            load_ns = time.monotonic_ns()  # of this attempt: a span does not include a boot that failed
            fresh = self._network is None or self._turn[:1] != [sample_id]
            if fresh:
                ids = list(self._staged)
                self._make(ids[ids.index(sample_id) :])
            assert self._network is not None
            try:
                if fresh:  # sPyNNaker maps and loads a network in its first run
                    self._network.run(self._lead_s)
                on_ns = time.monotonic_ns()
                self._network.run(sample["duration_s"])
                off_ns = time.monotonic_ns()
                spikes = self._network.spikes()
                break
            except Exception as error:  # sPyNNaker raises errors of six packages when a board is gone
                failed = error
            again = any(kind.__name__ in AGAIN for kind in type(failed).__mro__)  # a failed boot is a kind of IO error
            if fresh and again and len(tried) < TRIES - 1:
                tried.append(f"{type(failed).__name__}: {failed}"[:400])
                with contextlib.suppress(Exception):  # after a failure, ending may fail too
                    self._end()
                continue
            self._network = None
            remedy = "Check the power and the network of the board; the recording up to here is kept"
            what = f"SpiNNaker failed during {sample_id}, try {len(tried) + 1}: {type(failed).__name__}: {failed}"
            raise Refusal("DeviceError", what[:400], remedy, "board", self._options["board"]) from failed
        self._turn.pop(0)
        output = answer(self._description, decoded(sample["payload"]), spikes)
        output |= {"tried_again": tried} if tried else {}
        return {"output": output, "spans": [["load", load_ns, on_ns, 1], ["inference", on_ns, off_ns, 1]]}

    def close(self) -> None:
        """Give the machine back, and remove the home directory with its reports."""
        self._end()
        if self._home is not None:
            self._home.cleanup()

    def _end(self) -> None:
        if self._network is not None:
            self._network = None
            self._sim.end()

    def mapping(self) -> dict[str, Any]:
        """Return how the network is mapped to a board of 48 chips. Raises a ``Refusal`` if it does not fit."""
        one = {
            "payload": {"dtype": "<i8", "shape": [1, 2], "data": np.array([[1000, 0]]).tobytes()},
            "duration_s": 0.01,
        }
        self._staged = {"one": one}
        self._make(["one"])
        assert self._network is not None
        try:
            self._network.run(one["duration_s"])  # type: ignore[arg-type]
        except Exception as error:
            what = f"the network cannot be mapped on 48 chips: {type(error).__name__}: {error}"
            raise Refusal("SetupError", what[:400], "Use fewer decision neurons", "network") from error
        from spynnaker.pyNN.data import SpynnakerDataView

        placed = list(SpynnakerDataView.iterate_placemements())
        synapses = self._network.synapses()
        self._end()
        return {
            "cores": len(placed),
            "chips": len({(p.x, p.y) for p in placed}),
            "cores_by_kind": dict(Counter(type(p.vertex).__name__ for p in placed)),
            "sdram_bytes": int(sum(p.vertex.sdram_required.get_total_sdram(0) for p in placed)),
            "neurons": sum(p["size"] for p in self._description["populations"]),
            "synapses": synapses,
        }

    def _make(self, ids: list[str]) -> None:
        """Make the network with the spikes of these samples, joined in this order."""
        self._end()
        streams, begin_us = [], round(1e6 * self._lead_s)
        for sample_id in ids:
            sample = self._staged[sample_id]
            streams.append(decoded(sample["payload"]).astype(np.int64) + np.array([begin_us, 0]))
            begin_us += round(1e3 * whole_steps_ms(sample["duration_s"], self._description["step_ms"]))
        events, options = np.concatenate(streams), self._options
        self._network, self._turn = Network(self._sim, self._description, options["arrays"], events), ids.copy()


def _configure(options: dict[str, Any]) -> Any:
    """Write sPyNNaker's configuration into a new home directory, because no argument can name a machine."""
    home = tempfile.TemporaryDirectory(prefix="spynnaker-", ignore_cleanup_errors=True)
    os.environ["HOME"] = home.name
    board, simulated = options["board"], ["virtual_board = True", "width = 8", "height = 8"]
    named = f"machine_name = {board}" if board else f"spalloc_server = {options['spalloc']}"
    lines = [*(simulated if options["simulate"] else [named]), f"version = {BOARD}"]
    reports = ["[Reports]", f"default_report_file_path = {home.name}", "write_energy_report = False"]
    Path(home.name, ".spynnaker.cfg").write_text("\n".join(["[Machine]", *lines, *reports, ""]), encoding="utf-8")
    return home
