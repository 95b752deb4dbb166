"""Devices that a worker in another interpreter runs, and every way in which such a worker can fail."""

import ast
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from drivers.links.remote_device import RemoteDevice
from drivers.links.worker_link import Worker, shipped
from rig.conformance.device import check_device
from rig.errors import DataError, DeviceError, DeviceTimeoutError, RigError, SetupError, UsageError
from rig.network.description import Layer, NetworkInfo
from rig.types import Budget, Sample
from tests.support import remote_workers
from tests.support.paths import ROOT
from tests.support.processes import begun
from tests.support.raised import raised, raising
from tests.support.remote_workers import answer, answers, asked, gone, members, of_worker, opened, script, worker
from tests.support.waiting import until, within

pytestmark = pytest.mark.real_time

pytest.importorskip("execnet", reason="extra loihi2 is not installed")

ONE = Sample("one", np.arange(6, dtype=np.float32).reshape(2, 3), rate_hz=16e3)
SLOW = "def output(self, sample, budget):\n    time.sleep(0.02)"


@pytest.fixture(scope="module")
def honest() -> Iterator[RemoteDevice]:
    with closing(opened()) as device:
        yield device


# ---- what works ---------------------------------------------------------------------------


@pytest.mark.real_time
def test_a_worker_passes_the_device_check() -> None:
    assert check_device(opened(SLOW), [ONE, Sample("two", np.zeros(3, np.int16))])


def test_a_worker_over_ssh_has_its_own_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in remote_workers.stand_in_ssh(tmp_path).items():
        monkeypatch.setenv(name, value)
    device = opened(SLOW, interpreter=sys.executable, host="user@board")
    assert device.info().details["worker"]["host"] == "user@board"
    assert {"timer.rate", "timer.monotone"} <= set(check_device(device, [ONE]))


@settings(max_examples=40)
@given(hnp.arrays(hnp.scalar_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=5)), st.booleans())
def test_arrays_arrive_unchanged(honest: RemoteDevice, array: np.ndarray, flipped: bool) -> None:
    sent = array.T[::-1] if flipped and array.ndim else array
    (reply,) = asked(honest, Sample("array", sent))
    assert np.dtype(reply.output["dtype"]) == sent.dtype and tuple(reply.output["shape"]) == sent.shape
    assert bytes.fromhex(reply.output["payload"]) == np.ascontiguousarray(sent).tobytes()


def test_a_span_excludes_loading_and_the_link() -> None:
    before_ns = time.monotonic_ns()
    loads = "def stage(self, samples):\n    super().stage(samples)\n    time.sleep(0.05)\n"
    (span,) = of_worker(loads + SLOW, ONE).spans
    after_ns = time.monotonic_ns()
    assert before_ns + 50_000_000 <= span.on_tick <= span.off_tick <= after_ns
    assert span.off_tick - span.on_tick >= 20_000_000


def test_budgets_and_options_arrive() -> None:
    output = of_worker("", ONE, Budget(0.5, -3.0), options={"depth": 3}).output
    assert (output["budget"], output["options"], output["rate_hz"]) == ([0.5, -3.0], {"depth": 3}, 16e3)


COUNTS = """
def run(self, sample_id, budget):
    network = {"layers": [{"name": "out", "neurons": 3}], "connections": [], "memory": []}
    counts = b"".join(n.to_bytes(8, "little") for n in (2, 0, 3))
    return {**super().run(sample_id, budget), "network": network, "activity": {"out": {"active": counts[:LEFT]}}}
"""


def test_a_worker_describes_the_network_of_a_sample() -> None:
    reply = of_worker(COUNTS.replace("LEFT", "None"), ONE)
    assert reply.network == NetworkInfo((Layer("out", 3),), (), ())
    assert reply.activity["out"]["active"].tolist() == [2, 0, 3]
    raised(DeviceError, of_worker, COUNTS.replace("LEFT", "20"), ONE, says="20 bytes of active")


def test_output_of_a_worker_is_harmless() -> None:
    noise = 'print("x" * 100_000)\n    sys.stderr.write("y" * 100_000)\n    os.write(1, b"z" * 100_000)'
    assert of_worker(f"def output(self, sample, budget):\n    {noise}\n    return 7", ONE).output == 7


def test_a_worker_ignores_the_python_path_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "queue.py").write_text("raise ImportError('not for this Python')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    body = "def output(self, sample, budget):\n    return os.environ.get('PYTHONPATH')"
    assert of_worker(body, ONE, interpreter=sys.executable).output is None


def test_shipped_modules_import_each_other() -> None:
    helper = ("pack.age.helper", "FOUND = 42")
    name, text = worker("def output(self, sample, budget):\n    return FOUND").sources[0]
    together = Worker("test", [helper, (name, f"from pack.age.helper import FOUND\n{text}")])
    with closing(RemoteDevice(together)) as device:
        assert answer(device, ONE).output == 42


@pytest.mark.parametrize(("module", "oldest"), [("serve", (3, 8)), ("lava_network", (3, 10)), ("lava_qubo", (3, 10))])
def test_shipped_sources_are_old_python_without_rig_imports(module: str, oldest: tuple[int, int]) -> None:
    tree = ast.parse(shipped(module)[1], feature_version=oldest)
    named = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
    named += [str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    foreign = {name for name in named if name.split(".")[0] not in {*sys.stdlib_module_names, "numpy", "lava"}}
    assert all(f"{name}.".startswith("drivers.workers.") for name in foreign)


# ---- misuse, and the end ------------------------------------------------------------------


def test_a_sample_must_be_staged_first(honest: RemoteDevice) -> None:
    raised(DeviceError, honest.submit, [Sample("never", np.zeros(1))], None, says="not staged")


def test_inputs_are_checked_before_the_worker() -> None:
    refuse, keep = (raising(kind("not this", remedy="Another")) for kind in (DataError, UsageError))
    with closing(RemoteDevice(worker(), check=refuse, keep=keep)) as device:
        raised(DataError, device.stage, [ONE])
        raised(UsageError, device.submit, [], None)


# ---- workers that fail while they work ----------------------------------------------------


def failing(body: str, kind: type[RigError], says: str, **terms: object) -> RigError:
    """Return the error of a device at its first sample; closing the device ends its worker."""
    device = opened(body, **terms)  # type: ignore[arg-type]
    pid = int(device.timer() and device._link.hello["pid"])
    with within(30.0):
        error = raised(kind, asked, device, ONE, says=says)
        device.close()
        device.close()
    gone([pid])
    return error


NOISE = (
    "/usr/lib/python3.10/multiprocessing/resource_tracker.py:224: UserWarning: resource_tracker: There appear to "
    "be 4 leaked shared_memory objects to clean up at shutdown\\n  warnings.warn('resource_tracker: There appear to be"
)
"""Python's words about shared memory, which must not be taken for the reason of the worker's end."""


@pytest.mark.parametrize(("does", "says", "told"), [
    ('os.write(2, b"out of luck"); os.kill(os.getpid(), 9)', "ended unexpectedly",
     "(killed by SIGKILL); its last output: out of luck"),
    (f'os.write(2, b"{NOISE}"); os._exit(3)', "ended unexpectedly", "(exit code 3). "),
    ("sys.exit(4)", "SystemExit", "4"),
])  # fmt: skip
def test_a_dead_worker_is_reported_with_its_last_words(does: str, says: str, told: str) -> None:
    assert told in str(failing(f"def output(self, sample, budget):\n    {does}", DeviceError, says))


def test_answers_before_a_death_are_handed_out_first() -> None:
    dies = "if sample['id'] == 's2': os._exit(3)"
    device = opened(f"def output(self, sample, budget):\n    {dies}\n    return sample['id']")
    samples = [Sample(f"s{k}", np.zeros(1)) for k in range(4)]
    device.stage(samples)
    device.submit(samples, None)
    assert [r.output for r in answers(device, 2)] == ["s0", "s1"]
    for _ in range(2):
        raised(DeviceError, answers, device, 1, says="ended unexpectedly")
    raised(DeviceError, device.stage, samples)
    device.close()


@pytest.mark.parametrize(("hangs", "terms", "budget", "says"), [
    ("output(self, sample, budget)", {"timeout_s": 0.3}, None, "within 0.3 s"),
    ("output(self, sample, budget)", {"timeout_s": 50.0, "load_s": 0.2}, Budget(0.1), "within 0.31 s"),
    ("stage(self, samples)", {"load_s": 0.2}, None, "within 0.2 s while loading"),
])  # fmt: skip
def test_a_hung_worker_is_ended_in_time(hangs: str, terms: dict[str, float], budget: Budget | None, says: str) -> None:
    with within(30.0):
        body = f"def {hangs}:\n    time.sleep(60)"
        raised(DeviceTimeoutError, of_worker, body, ONE, budget=budget, says=says, **terms)


def test_a_late_answer_is_not_taken_for_the_next() -> None:
    late = "def output(self, sample, budget):\n    time.sleep(0.4)\n    return 1"
    with closing(opened(late, timeout_s=0.2)) as device:
        raised(DeviceTimeoutError, answer, device, ONE)
        device.submit([ONE], None)
        raised(DeviceError, answers, device, 1, says="ended unexpectedly")


def test_a_worker_survives_an_exception() -> None:
    body = 'def output(self, sample, budget):\n    if sample["id"] == "one": 1 / 0\n    return 5'
    with closing(opened(body)) as device:
        error = raised(DeviceError, answer, device, ONE, says="ZeroDivisionError")
        assert "output" in str(error.value), "the worker's traceback"
        assert answer(device, Sample("two", np.zeros(1))).output == 5


@pytest.mark.parametrize(("kind", "expected"), [
    ("DataError", DataError), ("Nonsense", DeviceError), ("os", DeviceError),
])  # fmt: skip
def test_a_rig_error_keeps_its_type_and_field(kind: str, expected: type[RigError]) -> None:
    told = {"kind": kind, "message": "no good", "remedy": "Mend it", "field": "f", "value": 3}
    body = f"def stage(self, samples):\n    error = RuntimeError()\n    error.rig = {told!r}\n    raise error"
    error = raised(expected, of_worker, body, ONE, says=r"no good\. Mend it")
    assert (type(error), error.field, error.value) == (expected, "f", 3)


def test_stray_bytes_on_the_link_are_a_typed_error() -> None:
    body = """
def output(self, sample, budget):
    for fd in range(3, 20):
        try:
            os.write(fd, b"\\x00" * 4096)
        except OSError:
            pass
    time.sleep(60)
"""
    failing(body, DeviceError, "worker of test", timeout_s=0.5)


ANSWERS = {
    "a span that is too short": '{"output": 1, "spans": [["inference", 1, 2]]}',
    "a span of an unknown phase": '{"output": 1, "spans": [["dream", 1, 2, 1]]}',
    "a span that ends before it begins": '{"output": 1, "spans": [["inference", 2, 1, 1]]}',
    "a span in seconds": '{"output": 1, "spans": [["inference", 0.1, 0.2, 1]]}',
    "a tick beyond 64 bits": '{"output": 1, "spans": [["inference", 1, 2**63, 1]]}',
    "no execution": '{"output": 1, "spans": [["inference", 1, 2, 0]]}',
    "a cost that is no number": '{"output": 1, "progress": [[1, float("nan"), b""]]}',
    "no output": '{"spans": []}',
    "another sample": '{"output": 1, "id": "other"}',
    "another message": '{"say": "hello"}',
    "what no channel carries": '{"output": object()}',
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_of_another_shape_is_a_typed_error(answer: str) -> None:
    assert raised(DeviceError, of_worker, f"def run(self, sample_id, budget):\n    return {answer}", ONE).remedy


# ---- workers that do not start ------------------------------------------------------------


def unopened(body: str = "", says: str = ".", kind: type[RigError] = SetupError, **terms: object) -> None:
    with within(30.0):
        assert raised(kind, opened, body, says=says, **terms).remedy


@pytest.mark.parametrize("text", ["exit 0", "exit 3", "echo garbage; cat", "echo 'worker interpreter: {}' >&2; exit 1"])
def test_an_unusable_interpreter_is_named(tmp_path: Path, text: str) -> None:
    unopened(says="no such program", interpreter=str(tmp_path / "python"))
    unopened(says="no worker can be started", interpreter=script(tmp_path / "python", text))


def test_a_hung_interpreter_is_ended_with_its_children(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hangs = script(tmp_path / "python", f"sleep 60 & echo $! > {pid}\nwait")
    unopened(says="did not answer within", interpreter=hangs, start_s=0.3)
    until(pid.exists)
    gone([int(pid.read_text())])


def test_an_ssh_error_is_reported_verbatim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "ssh", "echo 'ssh: connect to host board: no route' >&2\nexit 255")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    unopened(says="on board: ssh: connect", interpreter="python3", host="board")


def test_a_worker_that_fails_or_hangs_at_start_is_reported() -> None:
    unopened("1 / 0", says="ZeroDivisionError", kind=DeviceError)
    unopened("time.sleep(60)", says="while starting", kind=DeviceTimeoutError, start_s=0.5)


ABOUTS = {
    "not a device": "7", "an unknown field": '{"colour": 1}', "an unknown mode": '{"mode": "dream"}',
    "an endless timeout": '{"timeout_s": float("inf")}', "details that are a text": '{"details": "none"}',
}  # fmt: skip


@pytest.mark.parametrize("about", ABOUTS.values(), ids=ABOUTS)
def test_an_incomplete_hello_is_refused(about: str) -> None:
    unopened(f"about = {about}", kind=DeviceError)


# ---- the end ------------------------------------------------------------------------------


def test_closing_ends_a_busy_worker_and_its_children() -> None:
    body = """
def output(self, sample, budget):
    subprocess.Popen(["sleep", "60"])
    time.sleep(60)
"""
    device = opened(body)
    device.stage([ONE])
    device.submit([ONE], None)
    group = int(device._link.hello["pid"])
    until(lambda: len(members(group)) == 2)
    started = members(group)
    device.close()
    gone(started)


def test_a_worker_ends_with_its_killed_host(tmp_path: Path) -> None:
    body = "def output(self, sample, budget):\\n    subprocess.Popen(['sleep', '60'])\\n    time.sleep(60)"
    program = f"""
import sys, time
sys.path[:0] = {[str(ROOT)]!r}
import numpy as np
from tests.support.remote_workers import opened
from rig.types import Sample
device = opened("{body}")
one = Sample("one", np.zeros(1))
device.stage([one])
device.submit([one], None)
print(device._link.hello["pid"], flush=True)
time.sleep(60)
"""
    with begun(program) as host:
        assert host.stdout is not None
        group = int(host.stdout.readline())
        until(lambda: len(members(group)) == 2)
        started = members(group)
        host.send_signal(signal.SIGKILL)
    gone(started)
