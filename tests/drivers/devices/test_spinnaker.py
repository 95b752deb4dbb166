"""SpiNNaker without a board: the worker's calls of sPyNNaker, the times of these calls, and sPyNNaker's virtual
board."""

import tempfile
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from drivers.devices.pynn.description import Population, Projection, checked, write_network
from drivers.devices.pynn.nest import opened
from drivers.devices.pynn.spinnaker import SPINNAKER, open_device
from drivers.workers.common import Refusal
from drivers.workers.pynn_spinnaker import Machine, open_worker
from rig.conformance.device import check_device
from rig.errors import DeviceError, SetupError
from rig.types import Sample
from tests.drivers.devices.test_pynn import network, python, sent, shown, synapses
from tests.support.raised import raised
from tests.support.remote_workers import answer


class FrontEnd:
    """sPyNNaker's calls: relays pass every spike on after 1 ms, and decision neuron 7 fires at each of them.

    A presentation takes a hundredth of its time here. The board is lost at ``lost_at_ms``.
    """

    def __init__(
        self, lost_at_ms: float = float("inf"), boots_badly: int = 0, error: str = "SpinnmanIOException"
    ) -> None:
        self.boots_badly, self.failed_ns = boots_badly, 0
        self.error: Any = Exception
        for name in error.split("."):  # each class is a kind of the class before it
            self.error = type(name, (self.error,), {})
        self.now_ms, self.began_ms, self.lost_at_ms, self.made = 0.0, 0.0, lost_at_ms, 0
        self.trains: list[list[float]] = []
        self.mapped_ns = 0
        self.SpikeSourceArray = lambda spike_times: spike_times
        self.IF_curr_exp = lambda **parameters: None
        self.OneToOneConnector = self.AllToAllConnector = lambda: None
        self.FromListConnector = self.StaticSynapse = lambda *args, **kwargs: None
        self.Projection = lambda *args, **kwargs: None

    def setup(self, timestep: float, min_delay: float) -> None:
        self.made, self.now_ms = self.made + 1, 0.0

    def Population(self, size: int, model: Any, label: str) -> Any:  # noqa: N802
        if isinstance(model, list):
            self.trains = model
            if model:  # sPyNNaker looks for the time with most spikes
                max(t for train in model for t in train)

        def data(what: str, clear: bool) -> Any:
            times = np.sort([t for train in self.trains for t in train if self.began_ms <= t < self.now_ms]) + 1.0
            channels = np.full(len(times), 7)
            found = SimpleNamespace(multiplexed=(channels, times), all_channel_ids=list(range(size)))
            return SimpleNamespace(segments=[SimpleNamespace(spiketrains=found)])

        return SimpleNamespace(size=size, record=lambda what: None, initialize=lambda v: None, get_data=data)

    def run(self, ms: float) -> None:
        if self.now_ms == 0.0 and self.boots_badly:
            self.boots_badly, self.failed_ns = self.boots_badly - 1, time.monotonic_ns()
            raise self.error("IO Error: Failed to communicate with the machine")
        if self.now_ms == 0.0:
            self.mapped_ns = time.monotonic_ns()
        self.began_ms, self.now_ms = self.now_ms, self.now_ms + ms
        time.sleep(ms * 1e-5)
        if self.now_ms > self.lost_at_ms:
            raise ConnectionError("no SCP reply from 192.168.240.1")

    def get_current_time(self) -> float:
        return self.now_ms

    def end(self) -> None:
        pass


def machine(front_end: FrontEnd, home: Any = None) -> Machine:
    """Return a machine with the samples ``s0`` to ``s2``, one for each template."""
    made = Machine(front_end, {**network().options(), "simulate": False, "board": "192.168.240.1", "spalloc": ""}, home)
    made.stage([{**sent(shown(k)), "id": f"s{k}"} for k in range(3)])
    return made


def test_only_a_sample_out_of_turn_makes_a_new_network() -> None:
    front_end = FrontEnd()
    worker = machine(front_end)
    found = [worker.run(f"s{k}", None)["output"] for k in range(3)]
    assert front_end.made == 1
    for k, output in enumerate(found):
        assert output["events"] == output["fired"]["input"] == len(shown(k).payload)
        assert output["first_output_ms"] == output["first_input_ms"] + 1.0
        assert output["label"] == "3"
    assert [worker.run(name, None)["output"] for name in ("s0", "s0", "s2")] == [found[0], found[0], found[2]]
    assert front_end.made == 4


def test_fractional_durations_do_not_shift_presentations() -> None:
    worker = machine(FrontEnd())
    worker.stage([{**sent(shown(k % 3)), "id": f"s{k}", "duration_s": 1.2004} for k in range(40)])
    for k in range(40):
        output = worker.run(f"s{k}", None)["output"]
        assert output["fired"]["input"] == len(shown(k % 3).payload)
        assert output["first_output_ms"] == output["first_input_ms"] + 1.0


def test_a_sample_without_events_is_presented() -> None:
    worker = machine(FrontEnd())
    worker.stage([{**sent(Sample("s0", np.zeros((0, 2), np.int64), None)), "id": "s0", "duration_s": 0.2}])
    output = worker.run("s0", None)["output"]
    assert (output["events"], output["label"], output["synaptic_operations"]) == (0, None, 0)


def test_the_span_of_inference_excludes_mapping_and_loading() -> None:
    front_end = FrontEnd()
    worker = machine(front_end)
    for sample_id in ("s1", "s0"):  # each makes a network anew
        (load, inference) = worker.run(sample_id, None)["spans"]
        assert (load[0], inference[0]) == ("load", "inference")
        assert load[1] <= front_end.mapped_ns <= load[2] == inference[1]
        assert 0.012 <= (inference[2] - inference[1]) * 1e-9 < 1.0


def test_a_worker_deletes_its_home_on_close() -> None:
    home = tempfile.TemporaryDirectory()
    worker = machine(FrontEnd(), home)
    worker.run("s1", None)
    worker.run("s0", None)
    assert Path(home.name).is_dir()
    worker.close()
    assert not Path(home.name).exists()


def test_a_lost_board_ends_the_run_and_names_the_sample() -> None:
    worker = machine(FrontEnd(lost_at_ms=2000.0))
    worker.run("s0", None)
    caught = raised(Refusal, worker.run, "s1", None, says="failed during s1, try 1: ConnectionError: no SCP reply")
    assert (caught.rig["kind"], caught.rig["field"]) == ("DeviceError", "board")
    assert "power and the network" in caught.rig["remedy"]


@pytest.mark.parametrize(
    "error", ["SpinnmanIOException", "SpinnMachineException", "SpinnmanIOException.SpinnmanBootException"]
)
def test_a_bad_boot_is_retried_and_noted(error: str) -> None:
    front_end = FrontEnd(boots_badly=2, error=error)
    worker = machine(front_end)
    first, second = (worker.run(f"s{k}", None) for k in range(2))
    assert front_end.made == 3
    said = f"{error.rpartition('.')[2]}: IO Error: Failed to communicate with the machine"
    assert first["output"]["tried_again"] == [said] * 2
    assert "tried_again" not in second["output"]
    (load, inference) = first["spans"]
    assert load[1] >= front_end.failed_ns
    assert (inference[2] - inference[1]) * 1e-9 < 1.0


@pytest.mark.parametrize(("boots_badly", "error", "made"), [(9, "SpinnmanIOException", 3), (1, "ConfigException", 1)])
def test_a_board_that_never_boots_ends_the_run(boots_badly: int, error: str, made: int) -> None:
    front_end = FrontEnd(boots_badly=boots_badly, error=error)
    raised(Refusal, machine(front_end).run, "s0", None, says=f"s0, try {made}: {error}")
    assert front_end.made == made


def test_a_too_large_network_or_unnamed_board_is_refused() -> None:
    with pytest.raises(Refusal, match="cannot be mapped on 48 chips: ConnectionError") as caught:
        machine(FrontEnd(lost_at_ms=0.0)).mapping()
    assert (caught.value.rig["kind"], caught.value.rig["field"]) == ("SetupError", "network")
    with pytest.raises(Refusal, match="neither a board's address nor a spalloc server") as caught:
        open_worker({"simulate": False, "board": "", "spalloc": ""})
    assert "add --simulate" in caught.value.rig["remedy"]


# ---- sPyNNaker itself ---------------------------------------------------------------------


@pytest.mark.real_time
def test_nest_supplies_the_spikes_of_the_virtual_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    write_network(network(), tmp_path / "n.npz")
    python(SPINNAKER.variable), python()
    with closing(open_device(simulate=True, network=str(tmp_path / "n.npz"))) as device:
        info = device.info()
        mapping = info.details["mapping"]
        assert (info.name, info.mode) == ("spinnaker", "simulator")
        assert mapping["neurons"] == sum(network().description.sizes.values())
        assert mapping["synapses"] == synapses(), "those that NEST and the mock of PyNN make"
        assert mapping["cores_by_kind"]["PopulationMachineVertex"] == 5
        assert "from NEST" in info.description and "NEST" in info.details["times_of"]
        check_device(device, [shown(k) for k in range(2)])
    assert not list(tmp_path.glob("spynnaker-*"))


@pytest.mark.real_time
def test_an_unreachable_board_or_too_large_network_is_refused() -> None:
    """By sPyNNaker itself: no computer has this address, and the network needs 57 chips."""
    place: dict[str, Any] = {"simulate": False, "board": "192.0.2.1", "spalloc": ""}
    with (
        closing(opened(network(), python(SPINNAKER.variable), backend=SPINNAKER, **place)) as worker,
        pytest.raises(DeviceError, match="Failed to communicate with the machine") as lost,
    ):
        answer(worker, shown(0))
    assert lost.value.field == "board"
    given = replace(
        network().description,
        populations=(Population("pixels", 1, True), Population("decision", 230_000)),
        projections=(Projection("pixels", "decision", "all-to-all", 1.0),),
        labels=("0",) * 230_000,
    )
    with pytest.raises(SetupError, match="cannot be mapped on 48 chips: PacmanPlaceException") as large:
        opened(checked(given, {}), python(SPINNAKER.variable), backend=SPINNAKER, simulate=True, board="", spalloc="")
    assert large.value.field == "network"
