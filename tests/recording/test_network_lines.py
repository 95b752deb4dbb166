"""A ``network`` line that no device could give is refused with its number, and not recorded if a driver gives it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rig.errors import DeviceError, StoreError
from rig.network.description import MOST_PARTS, Connection, Layer, Memory, NetworkInfo
from rig.recording.disk.decoding import decode
from rig.recording.reader import open_run
from rig.recording.writer import Recorder
from rig.types import Reply, Sample
from tests.support.run_by_hand import SAMPLES, Document, start_line, table, write, write_lines
from tests.support.start_lines import start

CONNECTION, MEMORY = Connection("in-output", "in", "output", 6, 0, 6, 2), Memory("weights", "weights", 6, 8)
NETWORK = NetworkInfo((Layer("output", 2),), (CONNECTION,), (MEMORY,), execution_s=0.1)
OTHER = dataclasses.replace(NETWORK, convention="another")


def line(network: Any = NETWORK, sample_id: Any = "a") -> Document:
    given = json.loads(json.dumps(dataclasses.asdict(network))) if isinstance(network, NetworkInfo) else network
    return {"type": "network", "sample_id": sample_id, "network": given}


def spoilt(part: str, **values: Any) -> Document:
    document = line()
    document["network"][part][0].update(values)
    return document


def lacking(part: str, name: str) -> Document:
    document = line()
    del document["network"][part][0][name]
    return document


def many(part: str, one: Document) -> Document:
    document = line()
    document["network"][part] = [one | {"name": f"{k}"} for k in range(MOST_PARTS + 1)]
    return document


HOSTILE: dict[str, tuple[Callable[[], Document], str]] = {
    "a huge shape": (lambda: spoilt("connections", weights=2**60), r"network\.connections\[0\]\.weights"),
    "a huge layer": (lambda: spoilt("layers", neurons=10**300), r"network\.layers\[0\]\.neurons"),
    "a huge delay": (lambda: spoilt("connections", delay=2**40), r"network\.connections\[0\]\.delay"),
    "NaN weights": (lambda: spoilt("connections", weights=float("nan")), "NaN is no plain number"),
    "a NaN stride": (lambda: line(dataclasses.replace(NETWORK, execution_s=float("nan"))), "NaN is no plain number"),
    "an endless stride": (lambda: line(dataclasses.replace(NETWORK, execution_s=float("inf"))),
                          "Infinity is no plain number"),
    "a negative count": (lambda: spoilt("memory", elements=-1), r"network\.memory\[0\]\.elements"),
    "no neurons": (lambda: spoilt("layers", neurons=0), r"network\.layers\[0\]\.neurons"),
    "a fraction": (lambda: spoilt("connections", zeros=0.5), r"network\.connections\[0\]\.zeros"),
    "an unknown kind": (lambda: spoilt("memory", kind="cache"), r"network\.memory\[0\]\.kind"),
    "a missing key": (lambda: lacking("connections", "dense"), "missing required field `dense`"),
    "no sample": (lambda: {k: v for k, v in line().items() if k != "sample_id"}, "lacks sample_id"),
    "no network": (lambda: line(None), "network of the network line"),
    "a list": (lambda: line([]), "network of the network line"),
    "a name without end": (lambda: spoilt("layers", name="x" * 10**6), r"network\.layers\[0\]\.name"),
    "too many layers": (lambda: many("layers", {"neurons": 1}), r"network\.layers"),
    "too many arrays": (lambda: many("memory", {"kind": "states", "elements": 1, "bits": 1}), r"network\.memory"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_description_out_of_bounds_is_refused_by_line_and_field(what: str) -> None:
    document, said = HOSTILE[what]
    with pytest.raises(StoreError, match=said) as caught:
        decode(json.dumps({"seq": 4, "prev": "", **document()}).encode(), "network", 4)
    assert "line 5 of events.jsonl" in caught.value.message
    assert len(json.dumps(caught.value.to_json())) < 1000


def recording(path: Path, *lines: Document, ended: bool = True) -> Path:
    """Return a run of one sample; its lines follow one of unknown type. A crashed run has no samples."""
    samples = table(SAMPLES, [{"id": "a", "inferences": 1}])
    events = [start_line(), {"type": "door", "open": True}, *lines]
    if ended:
        return write(path / "run", events, {"samples.arrows": samples})
    (path / "run").mkdir()
    write_lines(path / "run", events, seal=False)
    return path / "run"


@pytest.mark.parametrize(("lines", "number", "said"), [
    ([line(), line(OTHER)], 4, "is of sample 'a', which has one already"),
    ([line(), line()], 4, "is of sample 'a', which has one already"),
    ([line(), line(sample_id="b")], 4, "is of sample 'b', which the run does not have"),
    ([line(sample_id="")], 3, "is of sample '', which the run does not have"),
])  # fmt: skip
def test_each_sample_has_at_most_one_network(tmp_path: Path, lines: list[Document], number: int, said: str) -> None:
    with pytest.raises(StoreError, match=said) as caught:
        open_run(recording(tmp_path, *lines))
    assert f"line {number} of events.jsonl" in caught.value.message


def test_a_crashed_run_may_have_lost_the_sample_but_not_described_it_twice(tmp_path: Path) -> None:
    (tmp_path / "twice").mkdir()
    assert open_run(recording(tmp_path, line(), ended=False)).networks() == {"a": NETWORK}
    with pytest.raises(StoreError, match="has one already"):
        open_run(recording(tmp_path / "twice", line(), line(), ended=False))


# ---- what a driver gives ------------------------------------------------------------------


def answered(path: Path, *networks: Any) -> Path:
    """Return a run whose device gave these networks for one sample, in turn."""
    with Recorder(path / "run") as recorder:
        recorder.event(start())
        recorder.sample(Sample("a", np.zeros(1)))
        try:
            for issue, network in enumerate(networks):
                recorder.activity(issue, Reply("a", None, network=network))
        finally:
            recorder.stop()
    return path / "run"


def test_a_network_is_recorded_once(tmp_path: Path) -> None:
    given = dataclasses.replace(NETWORK, layers=(Layer("output", np.int64(2)),))  # type: ignore[arg-type]
    run = open_run(answered(tmp_path, given, NETWORK))
    assert run.networks() == {"a": NETWORK}
    assert len(run.lines) == 3


@pytest.mark.parametrize(("networks", "said"), [
    ([dataclasses.replace(NETWORK, execution_s=float("nan"))], "execution_s"),
    ([dataclasses.replace(NETWORK, layers=(Layer("output", -1),))], "neurons"),
    (["a network"], "object"),
    ([NETWORK, OTHER], "another network than before"),
])  # fmt: skip
def test_a_network_that_no_reader_takes_ends_the_run(tmp_path: Path, networks: list[Any], said: str) -> None:
    with pytest.raises(DeviceError, match=said) as caught:
        answered(tmp_path, *networks)
    assert caught.value.field == "network"
    assert len(open_run(tmp_path / "run").networks()) == len(networks) - 1
