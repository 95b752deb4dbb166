"""NEST behind PyNN as a worker of ``drivers/workers/serve.py``. It is shipped as source.

The phase ``load`` gives the sources their spikes, the phase ``inference`` simulates the presentation of the sample.
This computer's clock times both.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import warnings
from pathlib import Path
from typing import Any

from drivers.workers.common import decoded, unimportable, versions
from drivers.workers.pynn_network import Network, answer, staged

PACKAGES = ("nest-simulator", "PyNN", "numpy", "neo")


def open_worker(options: dict[str, Any]) -> Simulated:
    """Build the network. Options: ``description``, ``arrays``, and ``about``, which is added to the hello.

    Raises a ``Refusal`` if NEST or PyNN is missing.
    """
    warnings.simplefilter("ignore")
    try:
        import pyNN.nest as sim
    except ImportError as error:
        packages = "nest-simulator==3.10.0 PyNN==0.13.0"
        remedy = f"Make an environment: pip install {packages}, and name its python (interpreter)"
        raise unimportable("NEST through PyNN", error, remedy) from error
    return Simulated(sim, options)


class Simulated:
    """The worker. The network continues from one presentation to the next; the blank between them lets it rest."""

    def __init__(self, sim: Any, options: dict[str, Any]) -> None:
        began_s = time.monotonic()
        self._sim, self._description = sim, options["description"]
        # spikes on the grid of steps, as in PyNN 0.7, which the NE15-MNIST chapter used; by default, today's PyNN lets
        # neurons fire between steps
        setup = {"spike_precision": "on_grid", "threads": 1, "max_delay": self._description["delay_ms"]}
        self._network = Network(sim, self._description, options["arrays"], **setup)
        # NEST would shrink its spike buffer in quiet steps, grow it again afterwards, and log each such change. PyNN
        # fetches the whole log whenever it asks for the time, so each inference would take longer than the one before.
        import nest

        nest.SetKernelStatus({"spike_buffer_shrink_limit": 0.0})
        self._samples: dict[str, dict[str, Any]] = {}
        found = versions(PACKAGES)
        self.about = {
            "description": f"NEST {found['nest-simulator']} through PyNN, one thread",
            "phases": ["load", "inference"],
            "timeout_s": 3600.0,
            "versions": found,
            "details": {"build_s": time.monotonic() - began_s, "processor": _processor(), "processors": os.cpu_count()},
            **options.get("about", {}),
        }

    def stage(self, samples: list[dict[str, Any]]) -> None:
        self._samples = staged(samples, self._description["step_ms"])

    def run(self, sample_id: str, budget: Any) -> dict[str, Any]:
        """Present a sample; if the network learns, the output also contains its weights."""
        sample = self._samples[sample_id]
        events = decoded(sample["payload"])
        load_ns = time.monotonic_ns()
        self._network.load(events, sample_id)
        on_ns = time.monotonic_ns()
        self._network.run(sample["duration_s"])
        off_ns = time.monotonic_ns()
        output = answer(self._description, events, self._network.spikes())
        if learnt := self._network.weights():
            output["weights"] = learnt
        return {"output": output, "spans": [["load", load_ns, on_ns, 1], ["inference", on_ns, off_ns, 1]]}

    def close(self) -> None:
        self._sim.end()


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
