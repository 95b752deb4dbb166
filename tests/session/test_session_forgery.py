"""A session with dropped, swapped, doubled or forged runs is refused, INVALID, or prints another digest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rig
from benchmarks.faults.forge import bind_again, hash_again, lines_of, read, store
from rig.commands.shell.main import main
from rig.errors import IntegrityError, InvalidResultError, StoreError
from rig.recording.session import FILE, SEAL, open_session
from tests.support.forgery import replaced
from tests.support.submissions import session as recorded


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("sessions")
    valid = ("samples=12", "idle_s=2")
    return recorded(folder / "one", *valid), recorded(folder / "other", *valid, "device_seed=1")


@pytest.fixture
def session(sessions: tuple[Path, Path], tmp_path: Path) -> Path:
    return shutil.copytree(sessions[0], tmp_path / "session")


def result_of(session: Path) -> rig.Result:
    """Return the session's result, without its pictures."""
    return rig.evaluated(session).result


def without(name: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["runs"] = [run for run in document["runs"] if run["path"] != name]

    return change


def test_an_untouched_session_is_valid_and_prints_its_digest(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(session)]) == 0
    digest = open_session(session).digest
    assert f"digest  {digest}" in capsys.readouterr().out
    assert (session / SEAL).read_text() == f"{digest}  {FILE}\n"
    assert digest in (session / "derived" / "report.html").read_text()
    assert digest in (session / "derived" / "report.md").read_text()


def swap(document: dict[str, Any]) -> None:
    a, b = document["runs"][:2]
    a["purpose"], b["purpose"] = b["purpose"], a["purpose"]


LEADING = ("..", "../one", "/etc", "a/b", "", ".", "a\nb", "x" * 300)
"""No names of runs in a session."""


@pytest.mark.parametrize(("change", "error", "says"), [
    (without("accuracy"), IntegrityError, "does not follow"),
    (without("performance"), IntegrityError, "does not follow"),
    (swap, IntegrityError, "was recorded for 'accuracy'"),
    (lambda document: document["runs"].reverse(), IntegrityError, "does not follow"),
    (lambda document: document["runs"].append(document["runs"][-1]), IntegrityError, "twice"),
    *((lambda d, name=name: d["runs"][0].update(path=name), StoreError, "cannot be read") for name in LEADING),
])  # fmt: skip
def test_runs_that_are_dropped_swapped_doubled_or_lie_elsewhere_are_refused(
    session: Path, change: Callable[[dict[str, Any]], None], error: type[Exception], says: str
) -> None:
    bind_again(session, change)
    with pytest.raises(error, match=says):
        rig.report(session)


def test_a_dropped_last_run_is_missed(session: Path) -> None:
    bind_again(session, without("power"))
    result = result_of(session)
    assert result.validity is not None
    assert [(c.found, c.allowed) for c in result.validity.checks if c.rule == "runs of the session"] == [("2", "3")]
    assert main(["report", str(session)]) == InvalidResultError.exit_code
    assert main(["report", str(session), "--allow-invalid"]) == 0


def test_a_run_of_another_session_is_refused(session: Path, sessions: tuple[Path, Path]) -> None:
    shutil.rmtree(session / "power")
    shutil.copytree(sessions[1] / "power", session / "power")
    bind_again(session)
    with pytest.raises(IntegrityError, match="another session"):
        rig.report(session)


def right(run: Path) -> None:
    """Forge a run so that the labels equal the answers."""
    said = read(run / "replies.arrows")
    outputs = said["output"].to_pylist()
    first = next(filter(None, outputs))
    store(run / "replies.arrows", replaced(said, "output", [text and first for text in outputs]))
    hash_again(run)


def test_a_forged_accuracy_breaks_the_chain(session: Path) -> None:
    right(session / "accuracy")
    bind_again(session)
    with pytest.raises(IntegrityError, match="performance does not follow"):
        rig.report(session)


def test_runs_that_are_all_forged_have_another_digest(session: Path) -> None:
    before = open_session(session).digest
    right(session / "accuracy")
    for number, name in enumerate(("performance", "power")):
        lines = lines_of(session / name)
        earlier = session / ("accuracy", "performance")[number]
        lines[0]["session"]["previous"] = (earlier / "events.jsonl.sha256").read_text().split()[0]
        hash_again(session / name, lines)
    bind_again(session)
    assert result_of(session).session_digest not in (None, before)


def test_a_changed_byte_of_the_file_is_refused(session: Path) -> None:
    (session / FILE).write_text((session / FILE).read_text().replace("+00:00", "+01:00"))
    with pytest.raises(IntegrityError, match="seal"):
        rig.report(session)


def test_a_link_in_the_place_of_a_run_is_refused(session: Path, tmp_path: Path) -> None:
    (session / "power").rename(tmp_path / "power")
    (session / "power").symlink_to(tmp_path / "power")
    with pytest.raises(IntegrityError, match="is a link"):
        rig.report(session)
    assert not (tmp_path / "power" / "derived").exists()


# ---- nothing is written elsewhere ----------------------------------------------------------


@pytest.mark.parametrize("place", ["derived", "power/derived", "derived/figures", "derived/report.html"])
def test_a_report_follows_no_link_out_of_its_directory(session: Path, tmp_path: Path, place: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    precious = elsewhere / "precious"
    precious.write_text("mine")
    (session / place).parent.mkdir(exist_ok=True)
    (session / place).symlink_to(precious if place.endswith("html") else elsewhere)
    with pytest.raises(StoreError, match="is a link"):
        rig.report(session)
    assert [file.read_text() for file in elsewhere.iterdir()] == ["mine"]


# ---- the verdict ---------------------------------------------------------------------------


def under_rules(path: Path, **changed: object) -> rig.Run:
    lines = lines_of(path)
    lines[0]["rules"] |= changed
    hash_again(path, lines)
    return rig.open_run(path)


def test_recorded_rules_that_are_not_those_of_their_name_are_invalid(session: Path) -> None:
    found = rig.evaluate(under_rules(session / "power", idle_s=0.001))
    assert found.validity is not None
    (failed,) = [c for c in found.validity.checks if not c.ok]
    assert (failed.rule, failed.found) == ("the rules are those of quick", "idle_s is 0.001, not 2.0")


def test_a_set_of_rules_that_is_not_known_is_never_for_submission(session: Path) -> None:
    found = rig.evaluate(under_rules(session / "power", name="neurobench-9", submittable=True))
    assert found.validity is not None and not found.validity.submittable
