"""An Otii by its TCP server: readings by index while the recording grows, and what the network changes in them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from drivers.meters.otii import meter as otii
from fixtures.bench.live_plant import LivePlant
from rig.conformance.device import check_meter
from rig.errors import MeterError, MeterSilentError, SetupError, UsageError
from rig.factories import build
from rig.types import Meter
from tests.support.meters import IDLE_W, RUN_W, SUPPLY_V, ended, recorded
from tests.support.otii_server import OtiiServer

pytestmark = pytest.mark.real_time


@pytest.fixture
def server(plant: LivePlant) -> Iterator[OtiiServer]:
    with OtiiServer(plant) as server:
        yield server


def opened(server: OtiiServer, **options: Any) -> Meter:
    return otii.open_meter(port=server.port, **({"supply_v": SUPPLY_V} | options))


def test_it_keeps_the_rules_of_a_meter(server: OtiiServer) -> None:
    check_meter(opened(server), seconds=0.3)


@pytest.mark.parametrize(("channel", "volts"), [("current", SUPPLY_V), ("power", 1.0)])
def test_its_readings_are_the_plants(plant: LivePlant, server: OtiiServer, channel: str, volts: float) -> None:
    meter = opened(server, channel=channel)
    bracket = meter.start()
    on_ns = plant.clock.now_ns() + 20_000_000
    plant.occupy("inference", on_ns, on_ns + 50_000_000)
    time.sleep(0.15)
    got = np.concatenate([chunk.value for chunk in [*meter.read(), *meter.stop()]])
    meter.close()
    assert bracket.before_ns <= server.began_ns() <= bracket.after_ns
    at_s = (server.began_ns() - on_ns) * 1e-9 + np.arange(len(got)) / 4000
    busy = (at_s > 1e-3) & (at_s < 0.049)
    idle = (at_s < -1e-3) | (at_s > 0.051)
    assert got[busy] == pytest.approx(RUN_W / volts, rel=1e-6)
    assert got[idle] == pytest.approx(IDLE_W / volts, rel=1e-6)


def test_it_sets_the_supply_and_leaves_it_on(server: OtiiServer) -> None:
    opened(server, max_current_a=0.2).close()
    assert (server.state["arc_set_main_voltage"], server.state["arc_set_max_current"]) == (SUPPLY_V, 0.2)
    assert server.state["arc_set_main"] is True


def test_a_rate_is_asked_for_and_confirmed(server: OtiiServer) -> None:
    meter = opened(server, rate_hz=50_000.0)
    assert meter.info().rails[0].rate_hz == 50_000.0
    assert len(recorded(meter, 0.1)) >= 5000


def test_readings_missing_by_their_stamps_are_nan(plant: LivePlant) -> None:
    with OtiiServer(plant, gaps={100: 25}) as server:
        got = recorded(opened(server), 0.2)
    assert list(np.flatnonzero(np.isnan(got))) == list(range(100, 125))


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("detach", MeterSilentError, "not grown"),
        ("mute", MeterSilentError, "not answered"),
        ("close", MeterError, "gone"),
    ],
)
def test_what_goes_away_is_told_within_the_timeout_after_what_came(
    server: OtiiServer, fault: str, kind: type[MeterError], says: str
) -> None:
    meter = opened(server, timeout_s=0.2)
    meter.start()
    time.sleep(0.15)
    getattr(server, fault)()
    count, error = ended(meter, 1.5)
    assert isinstance(error, kind) and says in error.message and count > 200
    meter.close()


def test_a_server_that_does_not_know_who_is_logged_in_is_served(plant: LivePlant) -> None:
    with OtiiServer(plant, lacks=("otii_is_logged_in",)) as server:
        check_meter(opened(server), seconds=0.2)


@pytest.mark.parametrize(("lacks", "says"), [("logged_in", "no user is logged in"), ("licence", "licence is needed")])
def test_without_a_user_or_a_licence_it_is_a_setup_error(server: OtiiServer, lacks: str, says: str) -> None:
    setattr(server, lacks, False)
    with pytest.raises(SetupError, match=says):
        opened(server)


def test_an_arc_has_the_time_that_its_maker_gives_it_to_be_added(plant: LivePlant) -> None:
    with OtiiServer(plant, adding_s=0.5) as server:
        opened(server, timeout_s=0.2).close()


def test_no_instrument_is_a_setup_error(server: OtiiServer) -> None:
    server.attached = False
    with pytest.raises(SetupError, match="Connected: none"):
        opened(server)


def test_one_of_several_instruments_is_named_by_name_or_id(server: OtiiServer) -> None:
    for name in ("Arc", "Sim01"):
        opened(server, instrument=name).close()
    with pytest.raises(SetupError, match="0 instruments match 'Ace'") as caught:
        opened(server, instrument="Ace")
    assert caught.value.field == "instrument"
    assert "instrument=NAME. Connected: Arc" in caught.value.remedy


def test_the_device_under_test_is_not_taken_for_its_name(server: OtiiServer) -> None:
    build(otii.open_meter, {"device": object()}, {"port": str(server.port), "supply_v": "1.8"}).close()


def test_no_server_is_a_setup_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(SetupError, match="no Otii server"):
        otii.open_meter(port=port, supply_v=3.0)


def test_what_says_no_json_is_no_otii_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(SetupError, match="is not an Otii server"):
        otii.open_meter(port=silent.getsockname()[1], supply_v=3.0, timeout_s=0.1)


@pytest.mark.parametrize("options", [{"supply_v": 0.0}, {"channel": "volts"}, {"power": "maybe"}, {"timeout_s": 0.0}])
def test_options_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        otii.open_meter(**({"supply_v": 3.0} | options))
