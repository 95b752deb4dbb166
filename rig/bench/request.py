"""What to measure, as the command line states it, with the defaults of everything that it leaves out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rig.plugins import code_in
from rig.recording.events import InsidePath

WORKLOAD, WORKLOADS = "asc", {"optimization": "qubo-mis"}
"""The default workload, and the default of each scenario that has its own."""
SCENARIO, PROBLEMS = "single-stream", ("qubo", "qubo-mis")
"""The default scenario, and the workloads whose default is ``optimization``."""


@dataclass(frozen=True)
class Request:
    """What to measure, as the command line states it. If no meter is named, the device's own is used."""

    device: str
    meters: tuple[str, ...] = ()
    scenario: str = SCENARIO
    workload: str = WORKLOAD
    simulate: bool = False
    data: str | None = None
    amortise_s: float | None = None
    options: tuple[str, ...] = ()
    out: Path | None = None
    argv: tuple[str, ...] = ()
    rules: str = "quick"
    mode: str = "session"
    trials: int | None = None
    compliance: bool = False
    find_peak: bool = False
    find_size: bool = False
    configuration: str = ""
    """The configuration of the system that is measured, such as performance or efficiency."""
    exclusive: bool = False
    """Whether to lock the device against other commands of this user; False if the caller has locked it."""
    repeats_sha256: str = ""
    """The digest that the samples must have, from the recording that is repeated; empty without repetition."""
    keep_identity: bool = False
    """Whether to record home directories and absolute paths of the command line too."""
    artifacts: Mapping[InsidePath, bytes] = field(default_factory=dict)
    """Files to store with each run, by name, such as the bench file."""
    places: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Places of the options in a bench file, by taker (device, meter, meter1); see ``rig.factories.located``."""
    rails: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The rails that a bench file names for the device and for each meter, by taker."""
    feeds: Mapping[str, bool] = field(default_factory=dict)
    """By taker: whether the device gets its power through this meter, as the bench file states it."""
    boot_s: float | None = None
    """How long (s) the device boots after a meter has switched its power on; see ``rig.bench.power_up``."""

    def __post_init__(self) -> None:
        """Also accept a path as text and options as a mapping, for callers in Python."""
        given: Any = self.options
        if isinstance(given, Mapping):
            object.__setattr__(self, "options", tuple(f"{key}={value}" for key, value in given.items()))
        if self.out is not None:
            object.__setattr__(self, "out", Path(self.out))

    @property
    def code(self) -> list[str]:
        """Return the code that the request names by its path, and the options that name programs."""
        return code_in((self.device, *self.meters, self.scenario, self.workload, self.rules), self.options)


def workload_for(scenario: str, named: str | None = None, data: str | None = None) -> str:
    """Return the name of the workload: ``named``, else the default of the scenario, with or without ``data``."""
    return named or (WORKLOADS | ({"optimization": "qubo"} if data else {})).get(scenario, WORKLOAD)


def scenario_for(workload: str | None, named: str | None = None) -> str:
    """Return the name of the scenario: ``named``, else the default of the workload."""
    return named or ("optimization" if workload in PROBLEMS else SCENARIO)
