"""The attached boards, and the parts of Rockpool and samna that drive the chip on each.

``kits_of`` makes one ``Kit`` for each attached board of a known chip. The calls of Rockpool and of samna follow the
source of Rockpool 3.1.0; none of them was tried on hardware.

Rockpool's own function makes the configuration of a chip from a network. This module works around its errors: Rockpool
3.1.0 ignores the name under which ``XyloSim`` takes the bias of hidden neurons, and keeps only one alias of each
neuron. For Audio 3 Rockpool removes, with a warning, neurons beyond those that may have inputs and outputs.
"""

import contextlib
import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drivers.devices.xylo.networks.network import Network
from rig.errors import DataError, SetupError, refused

Find = Callable[[], tuple[Sequence[Any], Sequence[Any], Sequence[str]]]
"""Rockpool's ``find_xylo_hdks`` returns opened boards, the package for each, and the name of each package."""


@dataclass(frozen=True, slots=True)
class Chip:
    """What differs between the chips: their names in Rockpool and samna, the rails of their boards, their limits.

    ``step`` is the field of a readout that holds its time step. ``converter_s`` is the period of the power monitor's
    converter (s), 0 if the vendor does not state it; faster readings are interpolated. ``front_end`` are the rails that
    supply only the front end. ``expansion`` is how many hidden neurons may have inputs, and how many may have
    outputs.
    """

    name: str
    utils: str
    channels_in: str
    step: str
    rails: tuple[str, ...]
    front_end: tuple[str, ...]
    hidden: int
    outputs: int
    expansion: int
    converter_s: float
    firmware: str


AUDIO_2 = Chip(
    "Xylo Audio 2", "xa2_devkit_utils", "xyloA2TestBoard", "timestamp", ("Io", "IoAfe", "Logic", "LogicAfe"),
    ("IoAfe", "LogicAfe"), 1000, 8, 1000, 0.0, "FX3 0.11.5 and FPGA 1.1.3",
)  # fmt: skip
AUDIO_3 = Chip(
    "Xylo Audio 3", "xa3_devkit_utils", "xyloAudio3", "timestep", ("Io", "AnalogLogic", "DigitalLogic"),
    (), 992, 32, 128, 1.08e-3, "FX3 0.12.2 and FPGA 1.6.0",
)  # fmt: skip
CHIPS: Mapping[str, Chip] = {"syns61201": AUDIO_2, "syns65302": AUDIO_3}
"""Known chips, by the name of Rockpool's package."""


@dataclass(frozen=True, slots=True)
class Kit:
    """One opened board: its handle, Rockpool's package and helpers for its chip, and its rails by channel number."""

    chip: Chip
    hdk: Any
    package: Any
    utils: Any
    rail_of: Mapping[int, str]
    versions: Mapping[str, str]
    simulated: bool = False


def unusable(what: str, remedy: str) -> SetupError:
    """Return the error for boards that cannot be used."""
    return SetupError(what, field="device", value="xylo", remedy=remedy)


def kits_of(samna: Any, find: Find, *, simulated: bool = False) -> list[Kit]:
    """Return every attached board of a known chip. Raises ``SetupError`` if they cannot be listed."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # ``find`` prints the boards that it finds
            boards = list(zip(*find(), strict=True))
    except ValueError as error:  # ``find`` stops at a board that it refuses
        least = ", ".join(f"{chip.firmware} for {chip.name}" for chip in CHIPS.values())
        remedy = f"Update it to at least {least}, as in the vendor's manual"
        raise unusable(f"Rockpool refuses an attached Xylo board as too old: {error}", remedy) from error
    except Exception as error:
        remedy = "Check its cable, its USB permissions, and that no other program holds it"
        raise unusable(f"the attached Xylo boards cannot be opened: {error}", remedy) from error
    return [_kit(samna, *board, simulated) for board in boards if board[2] in CHIPS]


def only_one(kits: Sequence[Kit], board: int | None) -> Kit:
    """Return the chosen board. Raises ``SetupError`` if none is attached, ``UsageError`` if the choice is not clear."""
    if not kits:
        remedy = "Connect a Xylo Audio 2 or 3 board, check its cable and USB permissions, or add --simulate"
        raise unusable("no Xylo board found: samna lists none", remedy)
    listed = ", ".join(f"{k}: {kit.chip.name}" for k, kit in enumerate(kits))
    if board is None and len(kits) > 1:
        what = f"{len(kits)} Xylo boards are attached ({listed})"
        raise refused("board", None, "Name one of them by its number: --option board=0", what)
    if board is not None and not 0 <= board < len(kits):
        raise refused("board", board, f"Name one that is attached ({listed})")
    return kits[board or 0]


def _kit(samna: Any, hdk: Any, package: Any, name: str, simulated: bool) -> Kit:
    chip = CHIPS[name]
    channels = getattr(samna, chip.channels_in).MeasurementChannels
    firmware = hdk.get_firmware_versions()
    versions = {"samna": str(samna.__version__), "fxtree": str(firmware.fxtree), "unifirm": str(firmware.unifirm)}
    rail_of = {int(getattr(channels, rail)): rail for rail in chip.rails}
    return Kit(chip, hdk, package, getattr(package, chip.utils), rail_of, versions, simulated)


def configuration_of(kit: Kit, network: Network) -> Any:
    """Return samna's configuration of ``network``. Raises ``DataError`` if the chip cannot run it unchanged."""
    spec = {name: value for name, value in network.specification.items() if name not in ("dt", "bias")}
    _check_fit(kit, network)
    spec["bias_hidden"] = network.specification["bias"]
    for name in ("bias_hidden", "bias_out"):  # a bias turns on the clock of the biases, which costs power
        spec[name] = np.asarray(spec[name]) if np.any(spec[name]) else None
    spec["aliases"] = spec["aliases"] if any(spec["aliases"]) else None
    with warnings.catch_warnings(action="ignore"):  # Rockpool warns of removed neurons; the check above prevents a loss
        configuration, valid, why = kit.package.config_from_specification(**spec)
    if not valid:
        raise _unfit(kit, f"samna refuses its configuration: {why}")
    return configuration


def _check_fit(kit: Kit, network: Network) -> None:
    spec, chip = network.specification, kit.chip
    hidden, outputs = np.shape(spec["weights_out"])
    if hidden > chip.hidden or outputs > chip.outputs:
        raise _unfit(kit, f"{hidden} hidden and {outputs} output neurons, of at most {chip.hidden} and {chip.outputs}")
    most = chip.expansion
    if np.any(spec["weights_in"][:, most:]) or np.any(spec["weights_out"][: max(hidden - most, 0)]):
        raise _unfit(kit, f"inputs after the first {most} hidden neurons, or outputs before the last {most}")


def _unfit(kit: Kit, why: str) -> DataError:
    remedy = "Train a network that fits the chip"
    return DataError(f"the network does not fit {kit.chip.name}: {why}", field="network", value=why, remedy=remedy)
