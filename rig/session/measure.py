"""``rig measure``: a session of recorded runs. The only figures looked at here are those of probes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rig.engine.acquisition import Bench
from rig.engine.clock import HostClock
from rig.engine.record import record, run_name
from rig.errors import RigError, StoreError, UsageError
from rig.plugins import build, load, takes, values_of
from rig.recording.session import Tried, bind
from rig.session.locks import device_lock
from rig.session.probing import Planned, largest_size, peak_rate
from rig.session.setup import Opened, Request, opened, which_of
from rig.types import SampleSet, Sequenced, Workload

MODES = ("session", "together", "performance", "accuracy", "power")
PURPOSES = {"together": "all", "performance": "performance", "accuracy": "accuracy", "power": "power"}
REPEATED = 64
"""Least times that a compliance run asks for the same sample."""


def measure(request: Request, quiet: bool = False) -> Path:
    """Record what is requested, and return the directory of the session, or of the run when only one is wanted.

    Raises a ``RigError``. What was recorded before the error stays, bound into a session.

    Example::

        import rig
        from pathlib import Path

        request = rig.Request(device="mock", mode="together", options=("samples=8",), out=Path("runs/first"))
        print("recorded", rig.measure(request, quiet=True))
    """
    _check(request)
    folder = request.out or Path("runs") / run_name(request.device, request.scenario)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StoreError(
            f"{folder} is not empty", field="out", value=str(folder), remedy="Name a new directory with --out"
        )
    with opened(request) as o, _held(request, o), _terminable():
        if request.mode != "session":
            purpose = PURPOSES[request.mode]
            planned = Planned("", purpose, _for_power(request, o) if purpose == "power" else o.workload, True)
            return _record(request, o, planned, folder, quiet)
        return _session(request, o, folder, quiet)


def _check(request: Request) -> None:
    if request.mode not in MODES:
        raise UsageError(
            f"mode {request.mode!r} is unknown", field="mode", value=request.mode, remedy=f"Known: {', '.join(MODES)}"
        )
    if request.trials is not None and request.trials < 1:
        raise UsageError(f"{request.trials} trials", field="trials", value=request.trials, remedy="Give 1 or more")
    asked = ("trials", "compliance", "find_peak", "find_size")
    whole = {name: getattr(request, name) for name in asked}
    for name, value in whole.items():
        if value and request.mode != "session":
            raise UsageError(
                f"{name} is for a session, not for mode {request.mode}",
                field=name,
                value=value,
                remedy="Leave --mode out",
            )


def _session(request: Request, o: Opened, folder: Path, quiet: bool) -> Path:
    done: list[tuple[str, str]] = []
    tried: list[Tried] = []
    plan = list(_plan(request, o))
    try:

        def play(planned: Planned) -> Path:
            done.append((planned.name, planned.purpose))
            return _record(request, o, planned, folder / planned.name, quiet)

        if request.find_size:
            largest_size(o, play, tried, quiet)
            return folder
        rate = peak_rate(o, play, quiet) if request.find_peak else {}
        for planned in plan:
            play(replace(planned, options=rate))
    finally:
        whole = [(name, purpose) for name, purpose in done if (folder / name).is_dir()]
        if whole:
            bind(folder, whole, tried)
    return folder


def _plan(request: Request, o: Opened) -> Iterator[Planned]:
    """Performance and accuracy without a meter, power with it, as often as there are trials."""
    trials = request.trials or o.rules.trials
    if takes(o.scenario, "purpose"):
        yield Planned("accuracy", "accuracy", o.workload, False)
    for k in range(1, trials + 1):
        tag = f"-{k}" if trials > 1 else ""
        yield Planned(f"performance{tag}", "performance", o.workload, False)
        if o.bench.meters:
            yield Planned(f"power{tag}", "power", _for_power(request, o), True)
    if request.compliance:
        yield Planned("repeated", "compliance", _same(o.workload), False)


def _record(request: Request, o: Opened, planned: Planned, path: Path, quiet: bool) -> Path:
    options = {**o.scenario_options, **planned.options}
    # of a device that marks its spans on a pin, only a meter knows when they were
    metered = planned.metered or o.bench.device.info().spans_on_pin
    bench = o.bench if metered else Bench(o.bench.device, (), o.bench.clock)
    given = {
        "workload": planned.workload,
        "phases": bench.device.info().phases,
        "rules": o.rules,
        "clock": bench.clock,
        "purpose": planned.purpose,
        "metered": bool(bench.meters),
    }
    steps = build(o.scenario, given, options)
    scenario: dict[str, Any] = {"name": request.scenario, "options": values_of(o.scenario, options)}
    if planned.purpose == "power" and request.amortise_s is not None:
        scenario["amortise_s"] = request.amortise_s
    solves = int(scenario["options"].get("solves") or 1)
    with _live(solves * len(planned.workload.samples), quiet) as progress:
        try:
            return record(
                path,
                bench,
                planned.workload,
                steps,
                scenario=scenario,
                rules=o.rules,
                purpose=planned.purpose,
                argv=list(request.argv),
                artifacts=request.artifacts,
                progress=progress,
            )
        except RigError as error:
            if path.exists():
                error.remedy = f"{error.remedy}. Recorded until then: {path}".removeprefix(". ")
            raise


def _for_power(request: Request, o: Opened) -> Workload:
    """The workload, or longer sequences of it, over which the cost of configuring is spread."""
    if request.amortise_s is None:
        return o.workload
    if not isinstance(o.workload, Sequenced):
        raise UsageError(
            f"workload {o.workload.name} cannot be cut into longer sequences",
            field="amortise",
            value=request.amortise_s,
            remedy="Leave --amortise out, or use --repeat",
        )
    return o.workload.sequences(request.amortise_s)


def _same(workload: Workload) -> Workload:
    """One sample of a workload, again and again."""
    first = workload.samples[len(workload.samples) // 2]  # none of those that warm up, which it would follow at once
    times = max(REPEATED, min(len(workload.samples), 1024))
    details = {**workload.details, "repeated": first.id}
    return SampleSet(workload.name, workload.task, workload.version, workload.digest_sha256, [first] * times, details)


@contextmanager
def _held(request: Request, o: Opened) -> Iterator[None]:
    """A device outside a simulation is measured by one command at a time on this host."""
    if not request.exclusive or not isinstance(o.bench.clock, HostClock):
        yield
        return
    with device_lock(request.device, wait=False, which=which_of(request.device, request.options)):
        yield


@contextmanager
def _live(total: int, quiet: bool) -> Iterator[Any]:
    if quiet:
        yield None
        return
    with load("reports", "live")(total) as progress:
        yield progress


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does: with a stop line."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.stdout.flush()
