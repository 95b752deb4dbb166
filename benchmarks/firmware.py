"""Accuracy of the microcontroller's network in floating point, in int8, and as the firmware in QEMU gives it.

    python -m benchmarks.firmware --data FOLDER [--folds 4]
    python -m benchmarks.firmware [--samples 200]

The first trains on all folds but one and hears that one, for each fold. The second trains as the shipped network was
trained, and hears synthetic scenes of seeds from 2000 on. Nothing is chosen on what is heard. Every slice goes through
the firmware, whose features and scores must be those of Python's int8: it exits with 1 where one is not. Prints a line
for each training and, last, one JSON line.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from drivers.devices.arduino import mfe, toolchain, train_command, training
from drivers.devices.arduino.quantised import Quantised, header
from scenarios.workloads.asc.workload import AscWorkload, open_workload
from tests.support.firmware import in_qemu

SHIPPED_SAMPLES = 2000
Trial = tuple[AscWorkload, training.FloatNetwork, Quantised]


def anew(samples: int) -> Iterator[Trial]:
    """Synthetic scenes for testing, with the shipped network trained once more."""
    heard = open_workload(split="train", samples=SHIPPED_SAMPLES)
    floats, whole = train_command.train(heard, training.Settings(0, train_command.EPOCHS), lambda _: None)
    print("the shipped file:", header(whole) == toolchain.DEFAULT_NETWORK.read_text(), flush=True)
    yield open_workload(samples=samples), floats, whole


def by_fold(data: str, folds: int) -> Iterator[Trial]:
    """The samples of each fold with the networks that did not hear it."""
    for k in range(1, folds + 1):
        fold = f"{k}/{folds}"
        heard = open_workload(data=data, fold=fold, split="train")
        floats, whole = train_command.train(heard, training.Settings(0, train_command.EPOCHS), lambda _: None)
        yield open_workload(data=data, fold=fold), floats, whole


def trial_of(trial: Trial, folder: Path) -> dict[str, int]:
    """Right answers of each form of the network, and slices on which firmware and Python agree bit for bit."""
    workload, floats, whole = trial
    path = folder / "net.h"
    train_command.write(path, whole)
    firmware = toolchain.build(folder, path)
    found = {"slices": 0, "float": 0, "int8": 0, "firmware": 0, "features_equal": 0, "scores_equal": 0}
    with in_qemu(firmware, folder) as board:
        for sample in workload.samples:
            audio = mfe.pcm16(np.asarray(sample.payload))
            features = mfe.features(audio)
            scores = whole.scores(features[None])[0]
            board.load(audio)
            said, _ = board.infer()
            right = whole.classes.index(str(sample.label))
            found["slices"] += 1
            found["float"] += int(floats.scores(features[None])[0].argmax()) == right
            found["int8"] += int(scores.argmax()) == right
            found["firmware"] += int(np.argmax(said)) == right
            found["features_equal"] += bool(np.array_equal(board.features(), features.ravel()))
            found["scores_equal"] += said == scores.tolist()
    return found


def main() -> int:
    """Train, hear and compare; the exit code is 1 where the firmware differs from Python."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", help="a folder of recordings with a labels.csv")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--samples", type=int, default=200)
    args = parser.parse_args()
    trials = by_fold(args.data, args.folds) if args.data else anew(args.samples)
    found = []
    for trial in trials:
        with tempfile.TemporaryDirectory() as folder:
            found.append(trial_of(trial, Path(folder)))
        print(found[-1], flush=True)
    total = {name: sum(each[name] for each in found) for name in found[0]}
    print(json.dumps(total))
    return 0 if total["slices"] == total["features_equal"] == total["scores_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
