"""One run, recorded: the start document, the steps, the stop. Everything a reader needs is written here."""

from __future__ import annotations

import os
import platform
import secrets
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rig.engine.acquisition import Bench, Progress
from rig.engine.collect import collect
from rig.recording.writer import SCHEMA, Recorder
from rig.types import ClockInfo, Rules, Step, Workload

PACKAGES = ("neurorig", "numpy", "scipy", "pyarrow", "pandas")


def record(
    path: Path,
    bench: Bench,
    workload: Workload,
    steps: Iterable[Step],
    *,
    scenario: Mapping[str, Any],
    rules: Rules | None = None,
    purpose: str = "all",
    argv: list[str] | None = None,
    progress: Progress | None = None,
    artifacts: Mapping[str, bytes] | None = None,
) -> Path:
    """Record one run into ``path``. ``scenario`` is its name and every option it ran with.

    Raises ``StoreError`` for a directory in use, and whatever ``collect`` raises; the directory is
    whole either way.
    """
    with Recorder(path) as recorder:
        whose = _whose((artifacts or {}).get("bench.toml"))
        recorder.event("start", **start_document(bench, workload, scenario, purpose, argv, path.name, rules), **whose)
        for name, content in (artifacts or {}).items():
            recorder.artifact(name, content)
        collect(steps, bench, recorder, progress)
    return path


def start_document(
    bench: Bench,
    workload: Workload,
    scenario: Mapping[str, Any],
    purpose: str,
    argv: list[str] | None,
    run_id: str,
    rules: Rules | None = None,
) -> dict[str, Any]:
    """The first line of ``events.jsonl``; see ``rig/schemas/start.json``."""
    device = bench.device.info()
    meters = [meter.info() for meter in bench.meters]
    clocks = [ClockInfo("host", 1e9, 0.0), *([device.clock] if device.clock else []), *(m.clock for m in meters)]
    by_name = {c.name: plain(c) for c in clocks}
    return {
        "schema": SCHEMA,
        "run_id": run_id,
        "created_utc": datetime.now(UTC).isoformat(timespec="seconds"),
        "t0_ns": bench.clock.now_ns(),
        "argv": list(sys.argv if argv is None else argv),
        "purpose": purpose,
        "device": plain(device),
        "meters": [plain(m) for m in meters],
        "clocks": list(by_name.values()),
        "scenario": dict(scenario),
        "rules": None if rules is None else plain(rules),
        "workload": {
            "name": workload.name,
            "task": workload.task,
            "version": workload.version,
            "digest_sha256": workload.digest_sha256,
            "samples": len(workload.samples),
            "details": dict(workload.details or {}),
        },
        "environment": environment(),
    }


def _whose(bench_file: bytes | None) -> dict[str, str]:
    """Lab and operator, as far as the bench file that was used names them."""
    from rig.bench.read import lab_of

    if bench_file is None:
        return {}
    return {name: said for name, said in zip(("lab", "operator"), lab_of(bench_file), strict=True) if said}


def plain(info: Any) -> dict[str, Any]:
    """A dataclass as a dict, one level at a time, so that read-only mappings need not be copied."""
    return {f.name: getattr(info, f.name) for f in fields(info)}


def run_name(device: str, scenario: str) -> str:
    """A directory name that sorts by time and does not collide."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%SZ")
    safe = "".join(c if c.isalnum() else "-" for c in device).strip("-")[-24:]
    return f"{now}-{safe}-{scenario}-{secrets.token_hex(2)}"


def environment() -> dict[str, Any]:
    """What ran this: interpreter, machine, package versions, and the source's commit when it is a checkout."""
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    commit, dirty = _commit()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "packages": packages,
        "commit": commit,
        "dirty": dirty,
    }


def _commit() -> tuple[str | None, bool | None]:
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None, None
    try:
        head = subprocess.run(
            ["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=5, check=True
        )
        state = subprocess.run(
            ["git", "-C", root, "status", "--porcelain"], capture_output=True, text=True, timeout=5, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None, None
    return head.stdout.strip(), bool(state.stdout.strip())
