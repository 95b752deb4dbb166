"""Turn a network into the configuration of a chip, by Rockpool's own function, without its errors.

Rockpool 3.1.0 ignores the name under which ``XyloSim`` takes the bias of hidden neurons, and keeps only one alias of
each neuron. It cuts an Audio 3 network to the neurons that may have inputs and outputs, with a warning.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from drivers.devices.xylo.kit import Kit
from drivers.devices.xylo.networks.network import Network
from rig.errors import DataError


def configuration_of(kit: Kit, network: Network) -> Any:
    """Return samna's configuration of ``network``. Raises ``DataError`` if the chip cannot run it unchanged."""
    spec = {name: value for name, value in network.specification.items() if name not in ("dt", "bias")}
    _check_fit(kit, network)
    spec["bias_hidden"] = network.specification["bias"]
    for name in ("bias_hidden", "bias_out"):  # each of them turns on the clock of the biases, which costs power
        spec[name] = np.asarray(spec[name]) if np.any(spec[name]) else None
    spec["aliases"] = spec["aliases"] if any(spec["aliases"]) else None
    with warnings.catch_warnings(action="ignore"):  # it warns of the cut, which the check has made harmless
        configuration, valid, why = kit.package.config_from_specification(**spec)
    if not valid:
        raise _unfit(kit, f"samna refuses its configuration: {why}")
    return configuration


def _check_fit(kit: Kit, network: Network) -> None:
    spec, chip = network.specification, kit.chip
    hidden, outputs = np.shape(spec["weights_out"])
    if hidden > chip.hidden or outputs > chip.outputs:
        raise _unfit(kit, f"{hidden} hidden and {outputs} output neurons, of at most {chip.hidden} and {chip.outputs}")
    if any(len(own) > 1 for own in spec["aliases"]):
        raise _unfit(kit, "a neuron with two aliases, of at most one")
    most = chip.expansion
    if np.any(spec["weights_in"][:, most:]) or np.any(spec["weights_out"][: max(hidden - most, 0)]):
        raise _unfit(kit, f"inputs after the first {most} hidden neurons, or outputs before the last {most}")


def _unfit(kit: Kit, why: str) -> DataError:
    remedy = "Train a network that fits the chip"
    return DataError(f"the network does not fit {kit.chip.name}: {why}", field="network", value=why, remedy=remedy)
