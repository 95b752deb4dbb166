"""A network in torch runs batches, counts operations, and reports what is impossible; GPUs are substitutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drivers.devices.torch import processor
from drivers.devices.torch.device import open_device
from drivers.devices.torch.processor import open_cuda, open_processor
from fixtures.bench.true_power import open_plant
from rig.conformance.device import check_device
from rig.errors import DataError, MissingExtraError, RigError, SetupError, UsageError
from rig.types import Device, Reply, Sample, SampleSet
from tests.support.fake_nvml import NOT_SUPPORTED, FakeNvml, NVMLError
from tests.support.raised import raised, raising
from tests.support.remote_workers import asked

HERE = """
import torch
class Wrong(torch.nn.Module):
    def __init__(self, out): super().__init__(); self.out = out
    def forward(self, x): return self.out(x)
def small():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), torch.zeros(4)
def alone(): return small()[0]
def fails(): raise ValueError("no weights")
def pair(): return Wrong(lambda x: (x, x)), torch.zeros(4)
def flat(): return Wrong(lambda x: x.sum()), torch.zeros(4)
def nan(): return Wrong(lambda x: x / 0.0), torch.zeros(4)
def breaks(): return Wrong(lambda x: x @ x), torch.zeros(4)
def huge(): return torch.nn.Linear(1 << 24, 1 << 24), torch.zeros(1 << 24)
def large(): return Wrong(lambda x: torch.ones(1 << 46)), torch.zeros(4)
def attends():
    class Attends(torch.nn.Module):
        def __init__(self): super().__init__(); self.a = torch.nn.Bilinear(4, 4, 3)
        def forward(self, x): return self.a(x, x)
    return Attends(), torch.zeros(4)
"""
Named = Callable[[str], str]


@pytest.fixture
def network(tmp_path: Path) -> Callable[[str], str]:
    file = tmp_path / "networks.py"
    file.write_text(HERE)
    return lambda name: f"{file}:{name}"


def samples(n: int = 4, shape: tuple[int, ...] = (4,), seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    return [Sample(f"s{k}", rng.normal(size=shape), label=str(k % 3)) for k in range(n)]


def workload(of: Sequence[Sample]) -> SampleSet:
    return SampleSet("made", "made", "1", "0" * 64, of)


def answers(device: Device, of: Sequence[Sample]) -> list[Reply]:
    with closing(device):
        size = device.info().max_batch
        return [reply for k in range(0, len(of), size) for reply in asked(device, *of[k : k + size])]


@pytest.mark.skipif(find_spec("torch") is not None, reason="torch is installed")
def test_a_missing_torch_is_named() -> None:
    raised(MissingExtraError, open_device, says=r"neurorig\[torch\]", network="a.nir")


@pytest.mark.torch
def test_torch_passes_device_check(network: Named) -> None:
    assert "repeat.executions" in check_device(open_device(network=network("small")), samples())
    check_device(open_device(workload(samples()), network=network("small"), batch=3), samples())


@pytest.mark.torch
def test_a_batch_gives_the_answers_of_single_samples(network: Named, torch: Any) -> None:
    of = samples(7)
    alone = answers(open_device(workload(of), network=network("small"), classes="0,1,2"), of)
    batched = answers(open_device(workload(of), network=network("small"), classes="0,1,2", batch=3), of)
    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    with torch.inference_mode():
        wanted = [module(torch.tensor(s.payload, dtype=torch.float32)[None]) for s in of]
    assert [reply.output["label"] for reply in alone] == [str(int(row.argmax())) for row in wanted]
    assert [reply.output["label"] for reply in batched] == [reply.output["label"] for reply in alone]
    assert batched[0].spans == batched[2].spans != batched[3].spans
    assert len({reply.spans for reply in alone}) == 7


@pytest.mark.torch
def test_operations_of_each_sample_are_counted_beforehand(network: Named) -> None:
    of = samples(5)
    of[0] = Sample("s0", np.array([0.0, 0.0, 1.5, 0.0]), label="0")
    device = open_device(workload(of), network=network("small"))
    declared = device.info().network
    assert declared is not None and declared.dense == 4 * 8 + 8 * 3 and declared.parameters == 4 * 8 + 8 + 8 * 3 + 3
    first = answers(device, of)[0].activity
    assert first is not None and first["0"]["macs"].tolist() == [8]
    plain = open_device(workload(of), network=network("small"), count=False)
    assert plain.info().network is None and answers(plain, of)[0].activity is None


@pytest.mark.torch
@pytest.mark.parametrize(("name", "options", "kind", "text"), [
    ("", {}, UsageError, "no network was named"),
    ("net.onnx", {}, UsageError, "neither FILE.nir nor FILE.py:function"),
    ("absent.nir", {}, DataError, "there is no file absent.nir"),
    ("alone", {}, DataError, "returns Sequential. Return a torch.nn.Module, and a tensor"),
    ("fails", {}, DataError, "failed: ValueError: no weights"),
    ("pair", {}, DataError, "returns a tuple for 1 samples, which is no label"),
    ("flat", {}, DataError, r"returns a tensor of shape \(\) for 1 samples"),
    ("nan", {"count": False}, DataError, "which is no label"),
    ("breaks", {}, DataError, r"fails on an input of shape \(1, 4\)"),
    ("huge", {}, SetupError, "not enough memory"),
    ("large", {}, SetupError, "not enough memory"),
    ("attends", {}, DataError, "operations are not counted.*count=false"),
    ("small", {"classes": "a,b"}, UsageError, "Name 3 classes"),
    ("small", {"dt_s": 0.1}, UsageError, "an option of a NIR graph"),
    ("small", {"processor": "cuda"}, SetupError, "finds no GPU 0 for CUDA"),
    ("small", {"dtype": "int8"}, UsageError, "float32"),
])  # fmt: skip
def test_an_impossible_network_is_refused_before_recording(
    name: str, options: dict[str, Any], kind: type[RigError], text: str, network: Named
) -> None:
    file = network(name) if name.isidentifier() else name
    raised(kind, open_device, workload(samples()), says=text, network=file, **options)


@pytest.mark.torch
def test_samples_of_the_wrong_shape_are_refused(network: Named) -> None:
    with pytest.raises(DataError, match=r"sample s0 is float64 of shape \(5,\); the network takes .* \(4,\)"):
        open_device(workload(samples(shape=(5,))), network=network("small"))
    with pytest.raises(DataError, match="sample s0 is <U1"):
        open_device(workload([Sample("s0", np.array(["a", "b", "c", "d"]))]), network=network("small"))


@pytest.mark.torch
def test_only_a_sample_with_known_content_has_activity(network: Named) -> None:
    of = samples(1)
    device = open_device(workload(of), network=network("small"))
    again, other = replace(of[0], payload=of[0].payload.copy()), replace(of[0], payload=-of[0].payload)
    known = [asked(device, sample)[0] for sample in (of[0], again, other)]
    assert known[0].activity is not None and known[1].activity is not None and known[2].activity is None
    assert known[0].output == known[1].output != known[2].output


class Tensor:
    """The parts of a tensor that the path to a GPU uses."""

    def __init__(self, place: str, done: list[str]) -> None:
        self.place, self._done = place, done

    def to(self, place: str) -> Tensor:
        self._done.append(f"copy to {place}")
        return Tensor(place, self._done)


class FakeTorch:
    """The parts of torch that the path to a GPU uses; ``done`` lists the GPU's tasks in order."""

    __version__ = "2.fake"

    def __init__(self, gpus: int = 1) -> None:
        self.done: list[str] = []
        self.version = SimpleNamespace(cuda="12.0")
        properties = SimpleNamespace(name="SIM GPU", total_memory=1 << 30, uuid="0")
        self.cuda = SimpleNamespace(
            is_available=lambda: gpus > 0,
            device_count=lambda: gpus,
            get_device_properties=lambda index: properties,
            synchronize=lambda index: self.done.append("synchronise"),
            device=lambda index: nullcontext(),
            Event=self._event,
        )

    def _event(self, enable_timing: bool) -> Any:
        assert enable_timing
        return SimpleNamespace(record=lambda: self.done.append("event"), elapsed_time=lambda end: 2.5)


def nvml(**traits: Any) -> FakeNvml:
    made = FakeNvml(open_plant(), **traits)
    made.nvmlInit()
    return made


def test_an_execution_on_a_gpu_is_bracketed_by_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "open_nvml", nvml)
    torch = FakeTorch()
    place = open_cuda(torch, 0, 0)

    def module(given: Tensor) -> Tensor:
        assert given.place == "cuda:0"
        torch.done.append("module")
        return given

    timed = place.execute(module, Tensor("cpu", torch.done), 2)
    execution = ["copy to cuda:0", "event", "module", "event", "copy to cpu"]
    assert torch.done == ["synchronise", *execution, *execution, "synchronise"]
    assert timed.off_ns >= timed.on_ns and timed.kernels_s == pytest.approx(2.5e-3)
    assert place.meter == "nvml" and place.details["processor"] == "SIM GPU"
    assert (place.details["clock_mhz"], place.details["memory_clock_mhz"]) == (1410, 1593)


def test_a_gpu_clock_stays_locked_until_close(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = nvml()
    monkeypatch.setattr(processor, "open_nvml", lambda: gpu)
    place = open_cuda(FakeTorch(), 0, 1200)
    assert (gpu.locked_mhz, place.details["locked_clock_mhz"]) == (1200, 1200)
    place.close()
    assert gpu.locked_mhz == 0
    gpu.root = False
    raised(SetupError, open_cuda, FakeTorch(), 0, 1200, says=r"cannot be locked.*nvidia-smi -i 0 -lgc 1200")


def test_a_gpu_without_stated_clocks_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(handle: Any, kind: int) -> int:
        raise NVMLError(NOT_SUPPORTED)

    gpu = nvml()
    monkeypatch.setattr(gpu, "nvmlDeviceGetClockInfo", unsupported)
    monkeypatch.setattr(processor, "open_nvml", lambda: gpu)
    assert open_cuda(FakeTorch(), 0, 0).details["clock_mhz"] is None


def test_clocks_are_neither_recorded_nor_locked_without_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "open_nvml", raising(SetupError("an NVIDIA GPU needs pynvml")))
    assert "needs pynvml" in open_cuda(FakeTorch(), 0, 0).details["clocks"]
    raised(SetupError, open_cuda, FakeTorch(), 0, 1200, says="needs pynvml")


@pytest.mark.parametrize(("name", "clock_mhz", "gpus", "text"), [
    ("cuda:1", 0, 0, "finds no GPU 1 for CUDA"), ("cuda:1", 0, 1, "finds no GPU 1 for CUDA"),
    ("gpu", 0, 1, "Give cpu, cuda or cuda:N"), ("cpu", 900, 1, "only the clock of a GPU"),
])  # fmt: skip
def test_an_impossible_torch_device_is_refused(name: str, clock_mhz: int, gpus: int, text: str) -> None:
    raised(RigError, open_processor, FakeTorch(gpus), name, 0, clock_mhz, says=text)
