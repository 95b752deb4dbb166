"""Record one run: the start line, the steps and the stop line, with everything that a reader needs."""

import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from rig.engine.acquisition import Bench, Progress
from rig.engine.clock import HostClock
from rig.engine.device_errors import guard
from rig.engine.play_steps import collect
from rig.engine.watchdog import Watch
from rig.errors import DataError, DeviceError, Ended, MeterError
from rig.recording.anonymise import without_place, without_places
from rig.recording.descriptions import check_descriptions
from rig.recording.disk.decoding import declared_start
from rig.recording.events import Start
from rig.recording.layout import payload_path
from rig.recording.records import Environment
from rig.recording.write_events import line_of
from rig.recording.writer import Recorder
from rig.types import ClockInfo, Sample, Step, Workload

PACKAGES = ("neurorig", "numpy", "scipy", "pyarrow", "pandas")


def record(
    path: Path,
    bench: Bench,
    workload: Workload,
    steps: Iterable[Step],
    *,
    scenario: Mapping[str, Any],
    progress: Progress | None = None,
    artifacts: Mapping[str, bytes] | None = None,
    keep_identity: bool = False,
    watch: Watch | None = None,
    **said: Any,
) -> Path:
    """Record one run into ``path``; ``scenario`` is its name and all its options.

    ``said`` are further fields of the first line; see ``start_document``.

    Raises ``StoreError`` for a directory that is not empty or a declaration that cannot be stored, ``DataError`` for
    samples with the same id, and whatever ``collect`` raises. Once the recorder is open, the remedy also names
    ``path``, where everything recorded until then is.
    """
    from rig.bench.bench_file_fields import lab_of

    check_ids(workload)
    files = artifacts or {}
    said |= lab_of(files.get("bench.toml", b""))
    start = start_document(bench, workload, path.name, scenario, keep_identity=keep_identity, **said)
    check_descriptions(start, {})
    line_of(start, keep_identity)  # refuses what a reader would refuse, before anything is written
    background = isinstance(bench.clock, HostClock)  # in simulated time, no write is too late
    with Recorder(path, keep_identity, background) as recorder:
        try:
            recorder.event(start)
            for name, content in files.items():
                recorder.artifact(name, content)
            collect(steps, bench, recorder, progress, workload=workload, watch=watch)
        except Ended as error:
            error.remedy = f"{error.remedy}. Recorded until then: {path}".removeprefix(". ")
            raise
    return path


def start_document(
    bench: Bench,
    workload: Workload,
    run_id: str,
    scenario: Mapping[str, Any],
    argv: Iterable[str] = (),
    keep_identity: bool = False,
    workload_options: Mapping[str, Any] | None = None,
    device_options: Mapping[str, Any] | None = None,
    local_code: Mapping[str, str] | None = None,
    **said: Any,
) -> Start:
    """Return the first line of ``events.jsonl``; ``said`` are further fields of it, such as the rules and the session.

    ``local_code`` is the SHA-256 of the user's own files by path. Home directories and absolute paths in the command
    line and in options are shortened unless ``keep_identity`` is set.

    Raises ``StoreError`` for a driver or workload that declares a value that a line cannot hold.
    """
    device: Any = guard(bench.device.info, DeviceError, "the device failed to describe itself")
    meters = [guard(meter.info, MeterError, "a meter failed to describe itself") for meter in bench.meters]
    clocks = [ClockInfo("host", 1e9, 0.0), *([device.clock] if device.clock else []), *(m.clock for m in meters)]

    def stated(options: Mapping[str, Any] | None) -> dict[str, Any]:
        return {k: v if keep_identity else without_place(v) for k, v in (options or {}).items()}

    if device_options:
        device = {f.name: getattr(device, f.name) for f in fields(device)} | {"options": stated(device_options)}
    names = ("name", "task", "version", "digest_sha256")
    described = {name: getattr(workload, name) for name in names} | {"samples": len(workload.samples)}
    described |= {"details": dict(workload.details or {}), "benchmark": getattr(workload, "benchmark", None)}
    return declared_start({
        "run_id": run_id, "t0_ns": bench.clock.now_ns(), "argv": [*argv] if keep_identity else without_places(argv),
        "device": device, "meters": meters, "clocks": list({c.name: c for c in clocks}.values()),
        "scenario": {**scenario, "options": stated(scenario.get("options"))},
        "workload": {**described, "options": stated(workload_options)},
        "environment": environment_with(local_code or {}, keep_identity),
        **said,
    })  # fmt: skip


def check_ids(workload: Workload) -> None:
    """Refuse a workload in which two samples share an id, or the file of their payloads. Raises ``DataError``."""
    if not isinstance(workload.samples, list | tuple):  # to make all samples of a lazy sequence could take hours
        return
    seen: dict[str, Sample] = {}
    for sample in workload.samples:
        for name in (sample.id, *([payload_path(str(sample.id)).casefold()] if sample.keep else [])):
            if (first := seen.setdefault(name, sample)) is not sample:
                both = " or ".join(sorted({repr(first.id), repr(sample.id)}))
                what = f"two samples of the workload {workload.name} have the id {both}"
                remedy = "Give every sample an id of its own, also as a file's name; answers are matched by it"
                raise DataError(what, field="sample", value=sample.id, remedy=remedy)


def environment_with(local_code: Mapping[str, str], keep_identity: bool) -> Environment:
    """Return the environment with the digests of the user's own files, by their paths."""
    files = {path if keep_identity else without_place(path): digest for path, digest in local_code.items()}
    return replace(environment(), local_code=files)


@cache
def environment() -> Environment:
    """Return interpreter, machine, package versions, and the commit of the source if it is a checkout.

    They are read once, because a process keeps the code that it has loaded, even if files change.
    """
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    processor = platform.processor() or platform.machine()
    host = (platform.python_version(), platform.platform(), processor, os.cpu_count())
    return Environment(*host, packages, *_commit())


def _commit() -> tuple[str | None, bool | None]:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None, None
    git = partial(subprocess.run, capture_output=True, text=True, timeout=5, check=True)
    try:
        head = git(["git", "-C", root, "rev-parse", "HEAD"])
        state = git(["git", "--no-optional-locks", "-C", root, "status", "--porcelain"])
    except (OSError, subprocess.SubprocessError):
        return None, None
    return head.stdout.strip(), bool(state.stdout.strip())
