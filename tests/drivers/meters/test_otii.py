"""An Otii by its TCP server: readings by index while the recording grows, and what the network changes in them."""

import socket
from contextlib import closing

import numpy as np
import pytest

from drivers.meters.otii import meter as otii
from rig.errors import SetupError
from rig.factories import build
from tests.support.instruments import StandIn, live
from tests.support.meters import SUPPLY_V, taken, values
from tests.support.raised import raised

pytestmark = pytest.mark.real_time

INSTRUMENT = "otii"


def test_the_supply_is_set_and_left_on(it: StandIn) -> None:
    it.open(max_current_a=0.2).close()
    assert (it.sim.state["arc_set_main_voltage"], it.sim.state["arc_set_max_current"]) == (SUPPLY_V, 0.2)
    assert it.sim.state["arc_set_main"] is True


def test_the_rate_is_confirmed(it: StandIn) -> None:
    with closing(it.open(rate_hz=50_000.0)) as meter:
        assert meter.info().rails[0].rate_hz == 50_000.0
        assert len(values(taken(meter, 0.1))) >= 5000


def test_missing_stamps_become_nan() -> None:
    with live("otii", gaps={100: 25}) as it, closing(it.open()) as meter:
        got = values(taken(meter, 0.2))
    assert list(np.flatnonzero(np.isnan(got))) == list(range(100, 125))


@pytest.mark.parametrize(("lacks", "says"), [
    ("logged_in", "no user is logged in"), ("licence", "licence is needed"), ("attached", "Connected: none"),
])  # fmt: skip
def test_a_missing_user_or_licence_is_a_setup_error(it: StandIn, lacks: str, says: str) -> None:
    setattr(it.sim, lacks, False)
    raised(SetupError, it.open, says=says)


def test_opening_waits_for_an_arc_to_be_added() -> None:
    with live("otii", adding_s=0.5) as it:
        it.open(timeout_s=0.2).close()


def test_an_instrument_is_chosen_by_name_or_id(it: StandIn) -> None:
    for name in ("Arc", "Sim01"):
        it.open(instrument=name).close()
    error = raised(SetupError, it.open, instrument="Ace", says="0 instruments match 'Ace'")
    assert error.field == "instrument"
    assert "instrument=NAME. Connected: Arc" in error.remedy


def test_the_instrument_option_ignores_the_device(it: StandIn) -> None:
    build(otii.open_meter, {"device": object()}, {"port": str(it.sim.port), "supply_v": "1.8"}).close()


def test_no_server_is_a_setup_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    raised(SetupError, otii.open_meter, says="no Otii server", port=port, supply_v=3.0)


def test_an_answer_without_json_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(SetupError, match="is not an Otii server"):
        otii.open_meter(port=silent.getsockname()[1], supply_v=3.0, timeout_s=0.1)
