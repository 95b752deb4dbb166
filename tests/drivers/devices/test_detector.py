"""A detector in torch keeps the best of overlapping boxes, and is measured on a made-up drive."""

import json
from pathlib import Path

import numpy as np
import pytest

from drivers.devices.cpu.detector import chosen, open_device
from rig.commands.shell.main import main
from rig.conformance.device import check_device
from rig.errors import UsageError
from scenarios.workloads.event_detection.workload import open_workload
from tests.support import drive
from tests.support.raised import raised


def test_the_best_of_overlapping_boxes_are_kept() -> None:
    boxes = np.array([
        [0, 0.5, 0, 0, 10, 10],
        [0, 0.9, 1, 0, 10, 10],  # 90 of 110 are shared with the first
        [1, 0.4, 1, 0, 10, 10],  # of another class
        [0, 0.3, 6, 0, 10, 10],  # 50 of 150 are shared with the second
    ])  # fmt: skip
    assert chosen(boxes, 0.5, 500)[:, 1].tolist() == [0.9, 0.4, 0.3]
    assert chosen(boxes, 0.5, 2)[:, 1].tolist() == [0.9, 0.4]
    assert chosen(boxes[:0], 0.5, 2).shape == (0, 6)


@pytest.mark.torch
@pytest.mark.parametrize("network", ["", "nothing.py", "{folder}/none.py:nothing"])
def test_an_invalid_module_is_refused(tmp_path: Path, network: str) -> None:
    (tmp_path / "none.py").write_text("def nothing():\n    return 3\n", encoding="utf-8")
    assert raised(UsageError, open_device, network=network.format(folder=tmp_path)).field == "network"


@pytest.mark.torch
@pytest.mark.parametrize("scenario", ["single-stream", "real-time"])
def test_a_drive_is_measured_by_sample_and_as_a_stream(tmp_path: Path, scenario: str) -> None:
    for module in ("h5py", "faster_coco_eval"):
        pytest.importorskip(module, reason="extra detection is not installed")
    drive.write(tmp_path, 20)
    (tmp_path / "net.py").write_text(drive.SMALL_DETECTOR, encoding="utf-8")
    streamed = ["window_s=0.05", "stride_s=0.05", "stream_s=1"] if scenario == "real-time" else []
    network = f"{tmp_path / 'net.py'}:Small"
    check_device(open_device(network=network), open_workload(data=str(tmp_path)).samples[:2])
    options = [f"network={network}", "idle_s=0.2", *streamed]
    said = [part for option in options for part in ("--option", option)]
    measured = ["measure", "--device", "detector", "--workload", "event-detection", "--data", str(tmp_path)]
    measured += ["--scenario", scenario, "--meter", "none", "--mode", "together", "--out", str(tmp_path / "run"), *said]
    code = main(measured)
    assert code == 0 or scenario == "real-time", "a busy computer may be late"
    found = json.loads((tmp_path / "run" / "derived" / "results.json").read_text(encoding="utf-8"))["quantities"]
    assert found["map"]["value"] > 0.4
    assert ("in_time_share" in found) == (scenario == "real-time")
