"""Accuracy of the microcontroller's network in floating point, in int8, and in the firmware on QEMU.

    python -m benchmarks.firmware [--samples 200] [--again]
    python -m benchmarks.firmware --data FOLDER [--folds 4]

The first form tests the shipped network on synthetic scenes with seeds from 2000 on. `--again` trains it once more,
tells whether the file is the same, and also tests it in floating point. The second form trains on all folds but one and
tests on the remaining fold, for each fold in turn. Test data never influences a choice. Every slice goes through the
whole device driver, and its scores must equal those of the int8 network in Python. Exits 1 if a score differs, or if no
slice was tested. For each network, prints the shortest and longest time of each phase, and the counts. JSON is the last
line.
"""

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

from benchmarks.command_line import concluded, parser_of
from drivers.devices.arduino import mfe, toolchain, training
from drivers.devices.arduino.device import open_device
from drivers.devices.arduino.quantised import Quantised, header, read_network, write_network
from fixtures.bench.true_power import open_plant
from scenarios.workloads.asc.workload import AscWorkload, open_workload

SHIPPED_SAMPLES = 2000
Trial = tuple[AscWorkload, training.FloatNetwork | None, Quantised]


def shipped(samples: int, again: bool) -> Iterator[Trial]:
    """Yield synthetic scenes for testing, with the shipped network."""
    floats, whole = None, read_network(toolchain.DEFAULT_NETWORK).network
    if again:
        heard = open_workload(split="train", samples=SHIPPED_SAMPLES)
        floats, whole = training.train(heard, training.Settings(0, training.EPOCHS), lambda _: None)
        print("the shipped file:", header(whole) == toolchain.DEFAULT_NETWORK.read_text(), flush=True)
    yield open_workload(samples=samples), floats, whole


def by_fold(data: str, folds: int) -> Iterator[Trial]:
    """Yield the samples of each fold with the networks that were trained without this fold."""
    for k in range(1, folds + 1):
        fold = f"{k}/{folds}"
        heard = open_workload(data=data, fold=fold, split="train")
        floats, whole = training.train(heard, training.Settings(0, training.EPOCHS), lambda _: None)
        yield open_workload(data=data, fold=fold), floats, whole


def trial_of(trial: Trial, folder: Path) -> Counter[str]:
    """Count correct answers of each form of the network, and slices with equal scores in firmware and Python."""
    workload, floats, whole = trial
    path = folder / "net.h"
    write_network(path, whole)
    found: Counter[str] = Counter()
    lasted: defaultdict[str, list[int]] = defaultdict(list)
    with closing(open_device(open_plant(), simulate=True, network=str(path))) as device:
        for sample in workload.samples:
            device.stage([sample])
            device.submit([sample], None)
            reply = device.poll(1e6)[0]
            features = mfe.features(mfe.pcm16(np.asarray(sample.payload)))[None]
            scores = whole.scores(features)[0]
            labels = {"int8": whole.classes[int(np.argmax(scores))], "firmware": reply.output["label"]}
            if floats is not None:
                labels["float"] = whole.classes[int(np.argmax(floats.scores(features)[0]))]
            found.update(["slices", *(name for name, label in labels.items() if label == sample.label)])
            found.update({"scores_equal": reply.output["scores"] == scores.tolist()})
            for span in reply.spans:
                lasted[span.phase].append(span.off_tick - span.on_tick)
    print({f"{phase}, us": (min(own), max(own)) for phase, own in lasted.items()}, flush=True)
    return found


def main() -> int:
    """Train, test and compare; return the exit code: 1 if the firmware differs from Python."""
    parser = parser_of(__doc__, folds=4, samples=200)
    parser.add_argument("--data", help="a folder of recordings with a labels.csv")
    parser.add_argument("--again", action="store_true", help="train the shipped network once more")
    args = parser.parse_args()
    trials = by_fold(args.data, args.folds) if args.data else shipped(args.samples, args.again)
    total: Counter[str] = Counter()
    for trial in trials:
        with tempfile.TemporaryDirectory() as folder:
            found = trial_of(trial, Path(folder))
        print(dict(found), flush=True)
        total += found
    return concluded(total, 0 < total["slices"] == total["scores_equal"])


if __name__ == "__main__":
    sys.exit(main())
