"""An interruption ends any search or repetition without a result; a lack of memory ends a search with an answer."""

import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import rig
from fixtures.bench.mock_device import MockDevice
from rig.commands.shell.main import main
from rig.errors import Interrupted
from rig.recording.session_json import open_session
from rig.session.rate_and_size_search import memory_bound
from rig.session.report import GO_ON, report
from rig.session.resumable_session import request_in
from tests.support.paths import SUPPORT
from tests.support.processes import MAIN, options, python
from tests.support.raised import Capture, Patch
from tests.support.undrawn import UNDRAWN

linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="limits of data are Linux's")


def search(solver: str, out: Path, *more: str) -> list[str]:
    """Return the words of a search for a size that begins at 10 nodes."""
    asked = ["measure", "--scenario", "optimization", "--workload", "qubo-mis", "--find-size", "--meter", "none"]
    asked += ["--device", f"{SUPPORT / 'lazy_solver.py'}:{solver}", "--out", str(out)]
    return [*asked, *options("nodes=10", "density=0.5", "idle_s=0", "seeds=0", *more)]


def searched(folder: Path, number: int) -> int:
    """Return the exit code of a search that is interrupted at 40 nodes."""
    (folder / "signal").write_text(str(int(number)))
    return main([*search("interrupted", folder / "run", f"signal_file={folder / 'signal'}"), "--json"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_search_reports_no_size(tmp_path: Path, number: int, capsys: Capture) -> None:
    assert searched(tmp_path, number) == 130
    assert json.loads(capsys.readouterr().out)["error"] == "Interrupted"

    runs = [path.name for path, _ in open_session(tmp_path / "run").runs]
    assert runs == ["probe-01", "probe-02", "probe-03"]
    ended = rig.open_run(tmp_path / "run" / "probe-03").error
    assert ended is not None and ended.error == "Interrupted"
    assert main(["report", str(tmp_path / "run"), "--json"]) == 31
    said = json.loads(capsys.readouterr().out)
    assert [Path(run["run"]).name for run in said["runs"]] == runs
    assert "largest_nodes" not in json.dumps(said)
    assert "Interrupted broke it off: interrupted" in json.dumps(said)


def test_a_resumed_search_repeats_the_interrupted_size(tmp_path: Path) -> None:
    searched(tmp_path, signal.SIGINT)
    rig.measure(request_in(tmp_path / "run", trust=True), quiet=True, resume=True)
    held = {probe.nodes: probe.held for probe in open_session(tmp_path / "run").probes}

    assert held[40]
    assert max(nodes for nodes, solved in held.items() if solved) >= 42


def interrupt_at(number: int, monkeypatch: Patch) -> None:
    """Interrupt this process as the mock device gets its sample of this number."""
    submit, count = MockDevice.submit, iter(range(10**6))

    def interrupted(self: MockDevice, samples: Sequence[rig.Sample], budget: rig.Budget | None) -> None:
        if next(count) == number:
            signal.raise_signal(signal.SIGINT)
        submit(self, samples, budget)

    monkeypatch.setattr(MockDevice, "submit", interrupted)


def test_remedies_after_an_interrupt_say_resume(tmp_path: Path, monkeypatch: Patch) -> None:
    interrupt_at(14, monkeypatch)
    options = ("samples=8", "audio_hz=1000", "idle_s=0.1")
    with pytest.raises(Interrupted):
        rig.measure(rig.Request("mock", options=options, rules="neurobench-1.0", out=tmp_path / "run"), quiet=True)
    result = report(tmp_path / "run", pages=False).result

    assert result is not None and result.validity is not None
    remedies = {check.rule: check.remedy for check in result.validity.checks if not check.ok}
    ended = {rule: remedy for rule, remedy in remedies.items() if rule.startswith("accuracy: ")}
    assert ended["accuracy: device and meters"].startswith("Measure on hardware")
    assert remedies.pop("performance-1: the run").startswith(f"{GO_ON}. Interrupted broke it off")
    others = [remedy for rule, remedy in remedies.items() if rule not in ended]
    assert {*others, *(refused.remedy for refused in result.refusals)} == {GO_ON}


def test_an_interrupted_search_reports_no_peak(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    interrupt_at(60, monkeypatch)
    asked = ["--scenario", "server", "--find-peak", "--rules", "quick", "--json"]
    given = options("arrival_hz=10", "latency_bound_s=0.05", "duration_s=2", "samples=8", "idle_s=0")
    out = tmp_path / "run"
    assert main(["measure", "--device", "mock", *asked, *given, "--out", str(out)]) == 130
    capsys.readouterr()
    assert open_session(out).sealed
    assert {purpose for _, purpose in open_session(out).runs} == {"probe"}
    main(["report", str(out), "--json"])
    assert "peak" not in json.dumps(json.loads(capsys.readouterr().out))


def test_the_report_after_an_interrupt_is_whole(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    monkeypatch.setattr("rig.session.report.report", lambda *_, **__: signal.raise_signal(signal.SIGINT))
    out = tmp_path / "run"
    asked = ["--mode", "together", *options("samples=8", "idle_s=0"), "--out", str(out)]
    assert main(["measure", "--device", "mock", *asked]) == 130
    assert f"interrupted. The recording is complete: rig report {out}" in capsys.readouterr().err


def test_except_exception_does_not_catch_an_interruption() -> None:
    """So a script that continues after an error still ends when it is interrupted."""
    assert not issubclass(Interrupted, Exception)


def test_an_interrupted_training_writes_no_network(tmp_path: Path, monkeypatch: Patch) -> None:
    told = []

    def interrupted(text: str, **_: object) -> None:
        told.append(text)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("drivers.devices.network_command.say", interrupted)
    out = tmp_path / "network.json"
    given = options("samples=40", "audio_hz=8000")
    assert main(["network", "train", "asc", "--hidden", "8", "--epochs", "3", "--out", str(out), *given]) == 130
    assert len(told) == 1
    assert not out.exists()


# ---- memory ---------------------------------------------------------------------------------


@linux
def test_more_than_its_share_of_memory_does_not_end_the_process() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_bound(0.01), pytest.raises(MemoryError):
        np.empty(2**40, dtype=np.uint8)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(np.empty(2**26, dtype=np.uint8)) == 2**26


@linux
def test_a_limit_that_the_operator_set_is_not_widened() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (2**40, before[1]))
    try:
        with memory_bound(1000.0):
            assert resource.getrlimit(resource.RLIMIT_DATA)[0] == 2**40
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


@linux
def test_a_solver_without_memory_ends_the_size_search(tmp_path: Path) -> None:
    done = python(UNDRAWN + MAIN, *search("hungry", tmp_path / "run"), timeout=120)
    assert done.returncode in (0, 30), done.stderr
    found = re.search(r"the largest is (\d+) nodes", done.stderr)
    assert found is not None, done.stderr
    assert int(found[1]) >= 20
    results = json.loads((tmp_path / "run" / "derived" / "results.json").read_text())
    assert results["quantities"]["largest_nodes"]["value"] == int(found[1])
    assert "Memory" in " ".join(results["notes"])
