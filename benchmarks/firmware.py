"""Accuracy of the microcontroller's network in floating point, in int8, and as the firmware in QEMU gives it.

    python -m benchmarks.firmware [--samples 200] [--again]
    python -m benchmarks.firmware --data FOLDER [--folds 4]

The first hears synthetic scenes of seeds from 2000 on with the shipped network; `--again` trains that once more, says
whether it is the same file, and has its floating point heard too. The second trains on all folds but one and hears that
one, for each fold. Nothing is chosen on what is heard. Every slice goes through the firmware, whose features and scores
must be those of Python's int8; it exits with 1 where one is not. Prints a line for each network and, last, JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from drivers.devices.arduino import mfe, toolchain, train_command, training
from drivers.devices.arduino.quantised import Quantised, header, read_network
from scenarios.workloads.asc.workload import AscWorkload, open_workload
from tests.support.firmware import in_qemu

SHIPPED_SAMPLES = 2000
Trial = tuple[AscWorkload, training.FloatNetwork | None, Quantised]


def shipped(samples: int, again: bool) -> Iterator[Trial]:
    """Synthetic scenes for testing, with the shipped network."""
    floats, whole = None, read_network(toolchain.DEFAULT_NETWORK).network
    if again:
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


def trial_of(trial: Trial, folder: Path) -> Counter[str]:
    """Right answers of each form of the network, and slices on which firmware and Python agree bit for bit."""
    workload, floats, whole = trial
    path = folder / "net.h"
    train_command.write(path, whole)
    firmware = toolchain.build(folder, path)
    found: Counter[str] = Counter()
    with in_qemu(firmware, folder) as board:
        for sample in workload.samples:
            audio = mfe.pcm16(np.asarray(sample.payload))
            features = mfe.features(audio)
            scores = whole.scores(features[None])[0]
            board.load(audio)
            said, _ = board.infer()
            right = whole.classes.index(str(sample.label))
            labels = {"int8": np.argmax(scores), "firmware": np.argmax(said)}
            if floats is not None:
                labels["float"] = np.argmax(floats.scores(features[None])[0])
            found.update(["slices", *(name for name, label in labels.items() if label == right)])
            found.update({"features_equal": bool(np.array_equal(board.features(), features.ravel()))})
            found.update({"scores_equal": said == scores.tolist()})
    return found


def main() -> int:
    """Train, hear and compare; the exit code is 1 where the firmware differs from Python."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", help="a folder of recordings with a labels.csv")
    parser.add_argument("--folds", type=int, default=4)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--again", action="store_true", help="train the shipped network once more")
    args = parser.parse_args()
    trials = by_fold(args.data, args.folds) if args.data else shipped(args.samples, args.again)
    total: Counter[str] = Counter()
    for trial in trials:
        with tempfile.TemporaryDirectory() as folder:
            found = trial_of(trial, Path(folder))
        print(dict(found), flush=True)
        total += found
    print(json.dumps(total))
    return 0 if total["slices"] == total["features_equal"] == total["scores_equal"] else 1


if __name__ == "__main__":
    sys.exit(main())
