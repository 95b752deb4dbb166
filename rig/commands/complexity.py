"""``rig complexity``: the cost of a network before it runs, from the description that its device declares.

    rig complexity --device xylo --network FILE [--workload NAME] [--option KEY=VALUE] [--json]

Nothing is recorded. A device with a simulator is opened as its simulator, since the network is the same. If a
driver's module has a function ``network_of``, the driver is not opened. This function takes options of the device and
returns the network.
"""

import argparse
import sys
from dataclasses import asdict

from rig.analysis.complexity.cost_and_activity import static_figures
from rig.analysis.result.figure_catalogue import title_of
from rig.errors import SetupError
from rig.factories import build, split_options, takes
from rig.network.description import NetworkInfo
from rig.plugins import load
from rig.session.setup import close_quietly, opened, plant_factory_of
from rig.terminal import answer, command
from rig.types import Device


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--device", required=True, metavar="NAME", help="the device that holds the network")
    add("--network", metavar="FILE", help="the network file; short for --option network=FILE")
    add("--workload", metavar="NAME", help="a workload, if the network depends on it")
    add("--data", metavar="DIR", help="folder with the data set of the workload")
    add("--option", action="append", default=[], metavar="KEY=VALUE", help="option of device or workload; repeatable")


def run(args: argparse.Namespace) -> int:
    """Print the static figures, then each connection. Raises ``SetupError`` if the device declares no network."""
    options = [*([f"network={args.network}"] if args.network else []), *args.option]
    options += [f"workload.data={args.data}"] if args.data else []
    network = network_of(args.device, options, args.workload)
    figures = static_figures(network)
    quantities = {str(key): q.to_json() for key, q in figures.items()}
    return answer(
        {"network": asdict(network), "quantities": quantities},
        *(f"{title_of(k):<42} {q.value:>12.6g} {'' if q.unit == '1' else q.unit}".rstrip() for k, q in figures.items()),
        *(
            f"connection {c.name:<31} {c.weights:>12} weights, {c.zeros} of them 0, {c.dense} operations"
            for c in network.connections
        ),
        as_json=args.json,
    )


def network_of(name: str, options: list[str], workload: str | None = None) -> NetworkInfo:
    """Return the network that a device declares; ``workload`` is opened for the device if it is named.

    Raises ``SetupError`` for a device without a network, and what opening the device or the workload raises.
    """
    factory = load("devices", name)
    takers = {"device": factory} | ({} if workload is None else {"workload": load("workloads", workload)})
    given = split_options(options, takers)
    stated = getattr(sys.modules.get(factory.__module__), "network_of", None)
    if stated is not None:
        found: NetworkInfo = build(stated, {}, given["device"])
        return found
    plant_factory = plant_factory_of(factory, simulate=True)
    plant = None if plant_factory is None else build(plant_factory, {}, {})
    known = {"bench": plant, "simulate": True if takes(factory, "simulate") else None}
    known |= {} if workload is None else {"workload": build(takers["workload"], {}, given["workload"])}
    device: Device = opened(factory, known, given["device"], "device", name)
    try:
        network = device.info().network
    finally:
        close_quietly(device)
    if network is None:
        how = command("measure", "--device", name, *(["--simulate"] if known["simulate"] or plant else []))
        remedy = (
            f"If each sample is a network of its own, a run states these figures in the group Complexity: {how}, with "
            "workload and scenario. Any other network is declared by the driver; see docs/how-to/count-operations.md"
        )
        raise SetupError(f"device {name} declares no network", field="network", value=name, remedy=remedy)
    return network
