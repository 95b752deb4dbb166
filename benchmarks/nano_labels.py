"""Does the firmware in QEMU answer as the same network does in Python? Slices that no training and no tuning has used.

    python -m benchmarks.nano_labels --slices 200 --seed 5000

Each slice goes the whole way of the device driver. Prints, last, one JSON line: how many labels and scores are equal,
how many labels are right, and the least and most time that a phase took; exits 1 unless all scores are equal.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from contextlib import closing

import numpy as np

from drivers.devices.arduino.device import open_device
from drivers.devices.arduino.mfe import features, pcm16
from drivers.devices.arduino.quantised import read_network
from drivers.devices.arduino.toolchain import DEFAULT_NETWORK
from fixtures.bench.true_power import open_plant
from scenarios.workloads.asc.workload import open_workload


def compared(slices: int, seed: int) -> dict[str, object]:
    """Ask the board and Python about each slice."""
    network = read_network(DEFAULT_NETWORK).network
    workload = open_workload(samples=slices, sample_seed=seed)
    found = {"slices": slices, "labels_equal": 0, "scores_equal": 0, "right": 0}
    lasted: defaultdict[str, list[int]] = defaultdict(list)
    began_s = time.monotonic()
    with closing(open_device(open_plant(), simulate=True)) as device:
        for sample in workload.samples:
            device.stage([sample])
            device.submit([sample], None)
            reply = device.poll(1e6)[0]
            ours = network.scores(features(pcm16(np.asarray(sample.payload)))[None])[0]
            found["labels_equal"] += reply.output["label"] == network.classes[int(np.argmax(ours))]
            found["scores_equal"] += reply.output["scores"] == ours.tolist()
            found["right"] += reply.output["label"] == sample.label
            for span in reply.spans:
                lasted[span.phase].append(span.off_tick - span.on_tick)
    times = {phase: [min(own), max(own)] for phase, own in lasted.items()}
    return {**found, "time_us": times, "wall_s": round(time.monotonic() - began_s, 1)}


def main() -> int:
    """Run, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=200)
    parser.add_argument("--seed", type=int, default=5000)
    a = parser.parse_args()
    found = compared(a.slices, a.seed)
    print(json.dumps(found))
    return int(found["scores_equal"] != a.slices)


if __name__ == "__main__":
    sys.exit(main())
