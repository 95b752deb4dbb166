"""A killed session keeps its ended runs, is INVALID, and can be continued; a forged session is recognised."""

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rig
from benchmarks.faults.forge import bind_again
from rig.commands.shell.main import main
from rig.engine.record import environment, record
from rig.errors import IntegrityError, Interrupted, InvalidResultError, StoreError, UsageError
from rig.recording.disk.files import set_aside
from rig.recording.disk.full_disk import Whole
from rig.recording.session_json import FILE, REQUEST, SEAL, bind, open_session
from rig.session.resumable_session import go_on, request_in
from tests.support.raised import Capture, Patch, raised
from tests.support.submission_folder import altered
from tests.support.submissions import session as recorded

OPTIONS = ("samples=12", "idle_s=2.0")


class Killed(BaseException):
    """Stands for SIGKILL: no code of the rig catches it."""


def result_of(session: Path) -> rig.Result:
    """Return the session's result, without its pictures."""
    return rig.evaluated(session).result


@contextmanager
def killed_before(name: str, then: Callable[[], object] = lambda: None) -> Iterator[None]:
    """End a measurement before its run of this name, as a kill does; ``then`` is called just before."""

    def killed(path: Path, *args: Any, **more: Any) -> Path:
        if path.name == name:
            then()
            raise Killed
        return record(path, *args, **more)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr("rig.session.measure.record", killed)
        yield


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A session that ended in the middle of its second run, with the files of a killed process."""
    folder = tmp_path_factory.mktemp("killed") / "session"
    left = folder.with_name("left")

    def snapshot() -> None:
        torn = shutil.copytree(folder / "accuracy", folder / "performance")
        (torn / "events.jsonl.sha256").unlink()
        lines = (torn / "events.jsonl").read_bytes().splitlines(keepends=True)
        (torn / "events.jsonl").write_bytes(b"".join(lines[:3]))
        shutil.copytree(folder, left)

    with killed_before("performance", snapshot):
        rig.measure(rig.Request(device="mock", meters=("mock",), options=OPTIONS, out=folder), quiet=True)
    return left


@pytest.fixture
def session(killed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(killed, tmp_path / "session")


def test_a_killed_session_reports_its_ended_runs(session: Path) -> None:
    result = result_of(session)
    assert result.validity is not None and result.verdict == "INVALID"
    assert ("1", "3") in [(c.found, c.allowed) for c in result.validity.checks if c.rule == "runs of the session"]
    assert "Recordings that are no part of the session: 1 (performance, it was broken off)" in result.notes


def test_a_report_says_how_to_resume(session: Path, capsys: Capture) -> None:
    assert main(["report", str(session)]) == InvalidResultError.exit_code
    assert f"next    rig measure --resume {session}" in capsys.readouterr().out


@pytest.mark.parametrize(("asked", "advice"), [(True, "--resume"), (False, "original")])
def test_an_audit_says_how_to_resume(session: Path, capsys: Capture, asked: bool, advice: str) -> None:
    if not asked:
        (session / REQUEST).unlink()
    assert main(["audit", str(session), "--json"]) == 32
    worst = json.loads(capsys.readouterr().out)["audits"][0]["worst"]
    assert "binds 1 of 3 runs" in worst
    assert ("still recorded" in worst) == asked
    assert advice in worst


def test_a_session_without_a_first_run_is_refused(session: Path, tmp_path: Path) -> None:
    bind(session, [], seal=False)
    caught = raised(StoreError, rig.report, session, says="no run of the session")
    assert "--resume" in caught.remedy
    about = tmp_path / "submission.toml"
    assert main(["submit", str(session), "--init", "--about", str(about)]) == StoreError.exit_code
    assert not about.exists()


def test_an_empty_run_directory_is_replaced(session: Path) -> None:
    (session / "power" / "traces").mkdir(parents=True)
    rig.measure(request_in(session, trust=False), quiet=True, resume=True)
    assert len(open_session(session).runs) == 3


@pytest.mark.parametrize("writes", [0, 1])
def test_a_run_that_never_began_is_left_out(tmp_path: Path, monkeypatch: Patch, writes: int) -> None:
    left = [None] * writes

    def limited(*_: object) -> int:
        if not left:
            raise OSError(errno.EFBIG, "File too large")
        return len(left.pop() or "")

    folder = tmp_path / "session"
    with monkeypatch.context() as patch, pytest.raises(StoreError, match="File too large"):
        patch.setattr(Whole, "write", limited)
        rig.measure(rig.Request(device="mock", meters=("mock",), options=OPTIONS, out=folder), quiet=True)
    assert open_session(folder).runs == ()
    rig.measure(request_in(folder, trust=False), quiet=True, resume=True)
    assert (len(open_session(folder).runs), open_session(folder).repeated) == (3, ("broken/accuracy.1",))


def test_resuming_records_only_the_missing_runs(session: Path) -> None:
    accuracy = rig.open_run(session / "accuracy").digest
    assert rig.measure(request_in(session, trust=False), quiet=True, resume=True) == session
    found = open_session(session)
    assert [path.name for path, _ in found.runs] == ["accuracy", "performance", "power"]
    assert rig.open_run(session / "accuracy").digest == accuracy
    assert found.sealed
    assert found.repeated == ("broken/performance.1",)
    assert sorted(p.name for p in session.iterdir() if p.is_file()) == [FILE, f"{FILE}.sha256"]
    result = result_of(session)
    assert result.verdict == "VALID"
    aside = "Recordings that are no part of the session: 1 (broken/performance.1, its run was recorded again)"
    assert aside in result.notes


def killed_again(session: Path, monkeypatch: Patch, at: str, after: Callable[..., Path] | None) -> Path:
    """Resume a session and end it by Ctrl-C in its second run; resume it again, and kill it in the call ``at``.

    The call first does ``after``. Return a copy of what is left.
    """
    left = session.with_name("left again")

    def interrupted(path: Path, bench: Any, workload: Any, steps: Any, **more: Any) -> Path:
        def pressed() -> Iterator[rig.Step]:
            yield next(iter(steps))
            raise KeyboardInterrupt

        return record(path, bench, workload, pressed(), **more)

    def kill(*args: Any, **__: Any) -> Path:
        if after is not None:
            after(*args)
        shutil.copytree(session, left)
        raise Killed

    for name, instead, error in (("rig.session.measure.record", interrupted, Interrupted), (at, kill, Killed)):
        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setattr(name, instead)
            rig.measure(request_in(session, trust=False), quiet=True, resume=True)
    return left


MOVING, RECORDING = "rig.session.resumable_session.set_aside", "rig.session.measure.record"


@pytest.mark.parametrize(("at", "after"), [(MOVING, None), (MOVING, set_aside), (RECORDING, None)])
def test_resuming_may_be_killed(session: Path, monkeypatch: Patch, at: str, after: Callable[..., Path] | None) -> None:
    left = killed_again(session, monkeypatch, at, after)
    validity = result_of(left).validity
    assert validity is not None and not validity.valid

    rig.measure(request_in(left, trust=False), quiet=True, resume=True)
    found = open_session(left)
    assert [path.name for path, _ in found.runs] == ["accuracy", "performance", "power"]
    assert found.repeated == ("broken/performance.1", "broken/performance.2")


def test_a_whole_session_has_nothing_to_resume(session: Path) -> None:
    (session / REQUEST).unlink()
    raised(UsageError, request_in, session, says="nothing left", trust=False)


def test_resuming_a_session_with_own_code_requires_trust(session: Path) -> None:
    assert go_on(session) == f"rig measure --resume {session}"
    document = json.loads((session / REQUEST).read_text())
    (session / REQUEST).write_text(json.dumps(document | {"device": "/tmp/evil.py:open_device"}))

    assert go_on(session) == f"rig measure --resume {session} --trust"
    raised(UsageError, request_in, session, says="names the code", trust=False)
    assert request_in(session, trust=True).device == "/tmp/evil.py:open_device"


MINE = "from fixtures.bench.mock_device import open_device\n"


@pytest.fixture
def own(here: Path) -> Path:
    """A session that was killed before its second run; its device is the user's own code."""
    (here / "mine.py").write_text(MINE)
    with killed_before("performance"):
        rig.measure(rig.Request("mine.py:open_device", ("mock",), options=OPTIONS, out=Path("run")), quiet=True)
    return Path("run")


def test_only_a_copy_of_ones_own_session_needs_trust(own: Path) -> None:
    assert go_on(own) == "rig measure --resume run"
    assert request_in(own, trust=False).device == "mine.py:open_device"
    shutil.copytree(own, "copy")
    assert go_on(Path("copy")) == "rig measure --resume copy --trust"
    raised(UsageError, request_in, Path("copy"), says="no one asked for this here", trust=False)


@pytest.mark.parametrize("changed", [False, True])
def test_code_changed_between_runs_is_reported(
    own: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, changed: bool
) -> None:
    if changed:
        Path("mine.py").write_text(f"{MINE}# new\n")
        monkeypatch.setitem(environment().packages, "numpy", "new")
    rig.measure(request_in(own, trust=False), quiet=True, resume=True)
    assert ("mine.py changed since run accuracy" in capsys.readouterr().err) == changed
    assert any("several versions of mine.py, numpy" in text for text in rig.evaluated(own).result.notes) == changed


def test_unchanged_outside_code_is_not_reported(own: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    with killed_before("performance"):
        device = f"{tmp_path}/mine.py:open_device"
        rig.measure(rig.Request(device, ("mock",), options=OPTIONS, out=Path("other")), quiet=True)
    rig.measure(request_in(Path("other"), trust=False), quiet=True, resume=True)
    assert "changed" not in capsys.readouterr().err


@pytest.mark.parametrize("changed", [False, True])
def test_a_device_changed_after_a_break_is_reported(here: Path, changed: bool) -> None:
    (here / "board.py").write_text(BOARD)
    (here / "firmware").write_text("1.0")
    with killed_before("performance"):
        rig.measure(rig.Request("board.py:board", ("none",), options=OPTIONS, out=Path("run")), quiet=True)
    if changed:
        (here / "firmware").write_text("1.1")
    rig.measure(request_in(Path("run"), trust=False), quiet=True, resume=True)
    told = [note for note in result_of(Path("run")).notes if "declared otherwise" in note]
    assert ["in performance than in accuracy (versions)" in note for note in told] == [True] * changed


@pytest.mark.parametrize("changed", [False, True])
def test_a_bench_file_changed_after_a_break_is_reported(here: Path, capsys: Capture, changed: bool) -> None:
    bench = '[devices.board]\ndriver = "mock"\noptions = { idle_w = 0.001 }\n'
    (here / "bench.toml").write_text(bench)
    with killed_before("performance"):
        measure = ["measure", "--device", "board", "--option", "samples=8", "--option", "scenario.idle_s=2", "--quiet"]
        main([*measure, "--out", "run"])
    if changed:
        (here / "bench.toml").write_text(bench.replace("0.001", "0.002"))
    rig.measure(request_in(Path("run"), trust=False), quiet=True, resume=True)
    assert ("bench.toml changed since the session began" in capsys.readouterr().err) == changed


BOARD = """
import rig
from pathlib import Path

def board():
    version = Path("firmware").read_text()
    info = rig.DeviceInfo("board", "hardware", "a board", phases=("inference",), versions={"firmware": version})
    return rig.blocking(lambda sample: sample.label, info)
"""
LISTED = """
import numpy as np
import rig
from pathlib import Path

def listed():
    labels = Path("labels").read_text().split()
    samples = [rig.Sample(f"s{k}", np.array([k]), label=label, duration_s=1.0) for k, label in enumerate(labels)]
    return rig.workload(samples, name="listed")
"""


@pytest.mark.parametrize("changed", [False, True])
def test_data_changed_between_runs_are_invalid(here: Path, changed: bool) -> None:
    (here / "listed.py").write_text(LISTED)
    (here / "labels").write_text("a b a b")
    with killed_before("power"):
        asked = rig.Request("mock", ("mock",), workload="listed.py:listed", options=OPTIONS[1:], out=Path("run"))
        rig.measure(asked, quiet=True)
    if changed:
        (here / "labels").write_text("a b a a")
    rig.measure(request_in(Path("run"), trust=False), quiet=True, resume=True)
    validity = result_of(Path("run")).validity
    assert validity is not None
    assert ("data sets of the runs" in [check.rule for check in validity.checks if not check.ok]) == changed


ARTIFACTS = '{"device": "mock", "artifacts": {"%s": ""}}'


@pytest.mark.parametrize("content", [
    "", "[]", '{"device": 1}', '{"device": "mock", "out": [1]}', "[" * 5000, ARTIFACTS % "../x", ARTIFACTS % "\\u0000",
])  # fmt: skip
def test_an_unreadable_request_is_refused(session: Path, content: str) -> None:
    (session / REQUEST).write_text(content)
    raised(StoreError, request_in, session, says="cannot be read", trust=False)


# ---- sessions with dropped, swapped, doubled or forged runs are refused, INVALID, or have another digest


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sessions")
    return recorded(folder / "one", *OPTIONS), recorded(folder / "other", *OPTIONS, "device_seed=1")


@pytest.fixture
def whole(wholes: tuple[Path, Path], tmp_path: Path) -> Path:
    return shutil.copytree(wholes[0], tmp_path / "session")


def without(name: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["runs"] = [run for run in document["runs"] if run["path"] != name]

    return change


def test_an_untouched_session_is_valid_with_its_digest(whole: Path, capsys: Capture) -> None:
    assert main(["report", str(whole)]) == 0
    digest = open_session(whole).digest
    assert f"digest  {digest}" in capsys.readouterr().out
    assert (whole / SEAL).read_text() == f"{digest}  {FILE}\n"
    assert digest in (whole / "derived" / "report.html").read_text()
    assert digest in (whole / "derived" / "report.md").read_text()


def swap(document: dict[str, Any]) -> None:
    a, b = document["runs"][:2]
    a["purpose"], b["purpose"] = b["purpose"], a["purpose"]


LEADING = ("..", "../one", "/etc", "a/b", "", ".", "a\nb", "x" * 300)
"""Paths that no run of a session may have."""


@pytest.mark.parametrize(("change", "error", "says"), [
    (without("accuracy"), IntegrityError, "does not follow"),
    (without("performance"), IntegrityError, "does not follow"),
    (swap, IntegrityError, "was recorded for 'accuracy'"),
    (lambda document: document["runs"].reverse(), IntegrityError, "does not follow"),
    (lambda document: document["runs"].append(document["runs"][-1]), IntegrityError, "twice"),
    *((lambda d, name=name: d["runs"][0].update(path=name), StoreError, "cannot be read") for name in LEADING),
])  # fmt: skip
def test_dropped_swapped_doubled_or_moved_runs_are_refused(
    whole: Path, change: Callable[[dict[str, Any]], None], error: type[Exception], says: str
) -> None:
    bind_again(whole, change)
    raised(error, rig.report, whole, says=says)


def test_a_dropped_last_run_is_noticed(whole: Path) -> None:
    bind_again(whole, without("power"))
    result = result_of(whole)
    assert result.validity is not None
    assert [(c.found, c.allowed) for c in result.validity.checks if c.rule == "runs of the session"] == [("2", "3")]
    assert main(["report", str(whole)]) == InvalidResultError.exit_code
    assert main(["report", str(whole), "--allow-invalid"]) == 0


def test_a_run_of_another_session_is_refused(whole: Path, wholes: tuple[Path, Path]) -> None:
    shutil.rmtree(whole / "power")
    shutil.copytree(wholes[1] / "power", whole / "power")
    bind_again(whole)
    raised(IntegrityError, rig.report, whole, says="another session")


def test_a_changed_byte_of_the_file_is_refused(whole: Path) -> None:
    (whole / FILE).write_text((whole / FILE).read_text().replace("+00:00", "+01:00"))
    raised(IntegrityError, rig.report, whole, says="seal")


def test_a_link_instead_of_a_run_is_refused(whole: Path, tmp_path: Path) -> None:
    (whole / "power").rename(tmp_path / "power")
    (whole / "power").symlink_to(tmp_path / "power")
    raised(IntegrityError, rig.report, whole, says="is a link")
    assert not (tmp_path / "power" / "derived").exists()


# ---- nothing is written elsewhere ----------------------------------------------------------


@pytest.mark.parametrize("place", ["derived", "power/derived", "derived/figures", "derived/report.html"])
def test_a_report_follows_no_link_out_of_its_directory(whole: Path, tmp_path: Path, place: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    precious = elsewhere / "precious"
    precious.write_text("mine")
    (whole / place).parent.mkdir(exist_ok=True)
    (whole / place).symlink_to(precious if place.endswith("html") else elsewhere)
    raised(StoreError, rig.report, whole, says="is a link")
    assert [file.read_text() for file in elsewhere.iterdir()] == ["mine"]


# ---- the verdict ---------------------------------------------------------------------------


def under_rules(path: Path, **changed: object) -> rig.Run:
    altered(path, lambda lines: lines[0]["rules"].update(changed))
    return rig.open_run(path)


def test_altered_rules_under_a_known_name_are_invalid(whole: Path) -> None:
    found = rig.evaluate(under_rules(whole / "power", idle_s=0.001))
    assert found.validity is not None
    (failed,) = [c for c in found.validity.checks if not c.ok]
    assert (failed.rule, failed.found) == ("the rules are those of quick", "idle_s is 0.001, not 2.0")


def test_an_unknown_rule_set_is_never_submittable(whole: Path) -> None:
    found = rig.evaluate(under_rules(whole / "power", name="neurobench-9", submittable=True))
    assert found.validity is not None and not found.validity.submittable
