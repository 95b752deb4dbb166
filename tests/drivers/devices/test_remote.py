"""Devices that a worker in another interpreter runs, and every way in which such a worker can fail."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from drivers.links.remote import RemoteDevice
from drivers.links.remote_start import Worker, shipped
from rig.conformance.device import check_device
from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.record import record
from rig.errors import DataError, DeviceError, DeviceTimeoutError, RigError, UsageError
from rig.network.description import Layer, NetworkInfo
from rig.recording.reader import open_run
from rig.types import Budget, Clocked, Issue, Sample
from tests.support.remote_workers import HERE, answer, asked, of_worker, opened, stand_in_ssh, worker
from tests.support.serving import Blank, rows, samples

pytestmark = pytest.mark.real_time

pytest.importorskip("execnet", reason="extra loihi2 is not installed")

ONE = Sample("one", np.arange(6, dtype=np.float32).reshape(2, 3), rate_hz=16e3)
SLOW = "def output(self, sample, budget):\n    time.sleep(0.02)"


@pytest.fixture(scope="module")
def honest() -> Iterator[RemoteDevice]:
    device = opened()
    yield device
    device.close()


def payload(reply_output: dict[str, object]) -> np.ndarray:
    data = bytes.fromhex(str(reply_output["payload"]))
    flat: np.ndarray = np.frombuffer(data, str(reply_output["dtype"]))
    return flat.reshape(reply_output["shape"])  # type: ignore[call-overload,no-any-return]


# ---- what works ---------------------------------------------------------------------------


def test_it_does_what_the_rig_asks_of_a_device() -> None:
    assert check_device(opened(SLOW), [ONE, Sample("two", np.zeros(3, np.int16))])


def test_over_ssh_it_has_a_clock_of_its_own_and_still_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in stand_in_ssh(tmp_path).items():
        monkeypatch.setenv(name, value)
    device = opened(SLOW, interpreter=HERE, host="user@board")
    assert isinstance(device, Clocked)
    assert device.info().clock is not None
    assert device.info().details["worker"]["host"] == "user@board"
    checked = check_device(device, [ONE])
    assert {"timer.rate", "timer.monotone"} <= set(checked)


@settings(max_examples=40, deadline=None)
@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=5)), st.booleans())
def test_arrays_arrive_as_they_were_sent(honest: RemoteDevice, array: np.ndarray, flipped: bool) -> None:
    sent = array.T[::-1] if flipped and array.ndim else array
    (reply,) = asked(honest, Sample("array", sent))
    got = payload(reply.output)
    assert got.dtype == sent.dtype
    assert got.shape == sent.shape
    assert got.tobytes() == np.ascontiguousarray(sent).tobytes()


def test_a_span_is_the_workers_own_and_not_the_round_trip() -> None:
    before_ns = time.monotonic_ns()
    (span,) = of_worker(
        "def stage(self, samples):\n    super().stage(samples)\n    time.sleep(0.05)\n" + SLOW, ONE
    ).spans
    after_ns = time.monotonic_ns()
    assert before_ns + 50_000_000 <= span.on_tick <= span.off_tick <= after_ns
    assert span.off_tick - span.on_tick >= 20_000_000


def test_budgets_and_options_travel() -> None:
    output = of_worker("", ONE, Budget(0.5, -3.0), options={"depth": 3}).output
    assert (output["budget"], output["options"], output["rate_hz"]) == ([0.5, -3.0], {"depth": 3}, 16e3)


COUNTS = """
def run(self, sample_id, budget):
    network = {"layers": [{"name": "out", "neurons": 3}], "connections": [], "memory": []}
    counts = b"".join(n.to_bytes(8, "little") for n in (2, 0, 3))
    return {**super().run(sample_id, budget), "network": network, "activity": {"out": {"active": counts[:LEFT]}}}
"""


def test_a_worker_describes_the_network_of_a_sample_and_counts_it_in_whole_numbers() -> None:
    reply = of_worker(COUNTS.replace("LEFT", "None"), ONE)
    assert reply.network == NetworkInfo((Layer("out", 3),), (), ())
    assert reply.activity["out"]["active"].tolist() == [2, 0, 3]
    with pytest.raises(DeviceError, match="20 bytes of active"):
        of_worker(COUNTS.replace("LEFT", "20"), ONE)


def test_many_submitted_at_once_are_answered_in_order(honest: RemoteDevice) -> None:
    samples = [Sample(f"s{k}", np.full(2, k)) for k in range(20)]
    replies = asked(honest, *samples)
    assert [r.sample_id for r in replies] == [s.id for s in samples]


def test_what_a_worker_prints_does_no_harm() -> None:
    noise = 'print("x" * 100_000)\n    sys.stderr.write("y" * 100_000)\n    os.write(1, b"z" * 100_000)'
    assert of_worker(f"def output(self, sample, budget):\n    {noise}\n    return 7", ONE).output == 7


def test_another_interpreter_is_not_led_to_this_ones_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue.py").write_text("raise ImportError('not for this Python')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    body = "def output(self, sample, budget):\n    return os.environ.get('PYTHONPATH')"
    assert of_worker(body, ONE, interpreter=HERE).output is None


def test_modules_that_are_shipped_together_find_each_other() -> None:
    helper = ("pack.age.helper", "FOUND = 42")
    name, text = worker("def output(self, sample, budget):\n    return FOUND").sources[0]
    together = Worker("test", [helper, (name, f"from pack.age.helper import FOUND\n{text}")])
    with closing(RemoteDevice(together)) as device:
        assert answer(device, ONE).output == 42


@pytest.mark.parametrize(("module", "oldest"), [("serve", (3, 8)), ("lava_network", (3, 10)), ("lava_qubo", (3, 10))])
def test_shipped_sources_are_python_of_their_day_and_import_nothing_of_ours(
    module: str, oldest: tuple[int, int]
) -> None:
    tree = ast.parse(shipped(module)[1], feature_version=oldest)
    named = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    named += [str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    foreign = {name for name in named if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", "lava"}}
    assert all(f"{name}.".startswith("drivers.workers.") for name in foreign)


# ---- a recording -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ends", "kind"), [("os._exit(1)", DeviceError), ("time.sleep(60)", DeviceTimeoutError)], ids=["dies", "hangs"]
)
def test_what_was_answered_before_the_worker_failed_stays_recorded(
    tmp_path: Path, ends: str, kind: type[RigError]
) -> None:
    body = f"def output(self, sample, budget):\n    if sample['id'] == 's3': {ends}\n    return 1"
    device = opened(body, timeout_s=0.5)
    steps = [Issue([sample]) for sample in samples(6)]
    with pytest.raises(kind):
        record(tmp_path / "run", Bench(device, (), HostClock()), Blank(), steps, scenario={"name": "by hand"})
    device.close()
    run = open_run(tmp_path / "run")
    assert rows(run, "sample_id", "output") == [("s0", "1"), ("s1", "1"), ("s2", "1"), ("s3", None)]


# ---- misuse, and the end ------------------------------------------------------------------


def test_a_sample_must_be_staged_first(honest: RemoteDevice) -> None:
    with pytest.raises(DeviceError, match="not staged"):
        honest.submit([Sample("never", np.zeros(1))], None)


def test_what_the_driver_checks_never_reaches_the_worker() -> None:
    def refuse(sample: Sample) -> None:
        raise DataError("not this one", remedy="Another")

    def keep(budget: Budget | None) -> Budget | None:
        raise UsageError("not this budget", remedy="Another")

    device = RemoteDevice(worker(), check=refuse, keep=keep)
    with pytest.raises(DataError):
        device.stage([ONE])
    with pytest.raises(UsageError):
        device.submit([], None)
    device.close()
