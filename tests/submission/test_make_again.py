"""A submission is bound to its recordings: it is made again from them, and every difference is named."""

import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from rig.commands.shell.main import main
from rig.errors import RigError
from rig.recording.submission import Submission
from rig.submission.files_made import Made, made_of
from rig.submission.make_again import differences, made_again
from tests.support.submission_folder import listed, row_edited
from tests.support.submissions import session, submitted

Edit = Callable[[Path], None]
CHECK = 32


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows with pictures, of three sessions; one session's name cannot be a folder of a submission."""
    lab = tmp_path_factory.mktemp("lab")
    session(lab / "a (1)", "meter.noise=1e-3")
    session(lab / "b", "meter.noise=1e-3", "meter_seed=7")
    session(lab / "slow", "warmup=2")
    return submitted(lab / "made", lab / "a (1)", lab / "slow", lab / "b", archive=lab / "sub.tar.gz").path


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "sub"))


def checked(path: Path, out: Path, *words: str) -> dict[str, Any]:
    """Return the command's output for one path, and its check of the remade pages."""
    main(["audit", str(path), "--out", str(out), *words])
    (found,) = json.loads((out / "audit.json").read_text())["audits"]
    return dict(found) | {"again": next(c for c in found["checks"] if c["number"] == CHECK)}


# ---- honest submissions -------------------------------------------------------------------


def test_a_moved_or_packed_submission_is_reproduced_exactly(made: Path, tmp_path: Path) -> None:
    for path in (shutil.copytree(made, tmp_path / "another name"), made.parent.parent / "sub.tar.gz"):
        found = checked(path, tmp_path / "out")
        assert (found["again"]["outcome"], found["remade"]) == ("passed", "pages made again and equal")
        assert "by the rig's own code" in found["again"]["name"]


def test_a_quick_audit_compares_no_pages(made: Path, tmp_path: Path) -> None:
    found = checked(made, tmp_path / "out", "--quick")
    assert (found["again"]["outcome"], found["remade"]) == ("not applicable", "pages not compared")


# ---- forged submissions -------------------------------------------------------------------


def rewritten(name: str, old: str, new: str) -> Edit:
    def edit(folder: Path) -> None:
        text = (folder / name).read_text()
        assert re.search(old, text)
        (folder / name).write_text(re.sub(old, new, text))

    return edit


def row(change: Callable[[dict[str, Any]], object]) -> Edit:
    return lambda folder: row_edited(folder, change)


def claims(change: Callable[[dict[str, Any]], object]) -> Edit:
    return row(lambda one: change(one["claims"]))


def scaled(*keys: str) -> Edit:
    def change(held: dict[str, Any]) -> None:
        for key in keys:
            held[key]["value"] *= 1e-3
            held[key]["trials"] = [v * 1e-3 for v in held[key]["trials"]]

    return claims(change)


def narrow(held: dict[str, Any]) -> None:
    for one in held.values():
        if one["low"] is not None:
            one["low"] = one["value"] - (one["value"] - one["low"]) / 1000


def another(name: str, content: str = "<h1>Energy 1 nJ</h1>") -> Edit:
    def edit(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)

    return edit


INVENTED = {"value": 1e-9, "unit": "W", "low": None, "high": None, "trials": [1e-9, 1e-9], "runs": 5}
FORGED: dict[str, Edit] = {
    "a number of the page": rewritten("report.html", r"\d(\.\d+\s± )", r"0\1"),
    "a number of the text": rewritten("report.md", r"\| (\d\.\d+) ±", "| 0.001 ±"),
    "a narrow interval": claims(narrow),
    "another device": row(lambda one: one.update(device="Loihi 2", name="Loihi 2, asc", scenario="server")),
    "claims left out": claims(lambda held: held.pop("accuracy")),
    "another unit": claims(lambda held: held["active_power_w"].update(unit="uW")),
    "what no auditor derives": scaled("execution_time_se_s"),
    "an invented claim": claims(lambda held: held.update(runtime_power_w=INVENTED)),
    "more runs": claims(lambda held: held["accuracy"].update(runs=5000)),
    "more runs in the table": rewritten("results.csv", r",2,2,", ",2,5000,"),
    "a column more": rewritten("results.csv", r"^(.*)\n(.*)\n", r"\1,tops_per_watt\n\2,4200.0\n"),
    "a column that looks alike": rewritten("results.csv", "active_power_w,", "\u0430ctive_power_w,"),
    "a zero of another sign": claims(lambda held: held["active_power_w"].update(value=-0.0)),
    "a page that is not there": row(lambda one: one.update(page="pages/nothing.html")),
    "a report in a folder that no hash covers": another("derived/report.html"),
    "a page of no row": another("pages/9.html"),
    "a page left out": lambda folder: (folder / "pages" / "2.md").unlink(),
    "metadata of another device": rewritten("ro-crate-metadata.json", "mock, asc", "Loihi, asc"),
    "two organizations": rewritten("submission.toml", "A lab", "Another lab"),
    "a submission.toml that is none": another("submission.toml", "\x01 ]]]"),
}  # fmt: skip


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of the same sessions and ``submission.toml`` is made once, because it depends only on these."""
    monkeypatch.setattr("rig.submission.make_again.made_of", _made_once)


MADE: dict[tuple[object, ...], Made] = {}


def _made_once(folder: Path, names: Sequence[str], head: Submission, about: bytes) -> Made:
    key = (tuple(names), msgspec.json.encode(head), about)
    return MADE.setdefault(key, MADE.get(key) or made_of(folder, names, head, about))


BY_VERSIONS = {
    "claims left out", "a column more", "a column that looks alike", "more runs in the table",
    "metadata of another device", "a page left out", "a submission.toml that is none",
}  # fmt: skip
"""Forgeries that another version of the rig could explain, or that make the folder unreadable."""


OTHER = rewritten("submission.json", r'"commit": "[^"]*"', '"commit": "0123456"')


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize("how", FORGED)
def test_any_forged_text_of_a_submission_is_found(folder: Path, how: str) -> None:
    FORGED[how](folder)
    listed(folder)
    try:
        found = made_again(folder)
    except RigError as error:
        assert how == "a submission.toml that is none", error
    else:
        assert found.documents or found.pages
        assert not found.others
    if how not in BY_VERSIONS:
        OTHER(folder)
        listed(folder)
        found = made_again(folder)
        assert found.others and found.unexplained


def moved(key: str, by: float) -> Edit:
    """Shift a figure and the ends of its interval by this share of its half-width."""

    def change(held: dict[str, Any]) -> None:
        one = held[key]
        far = by * (one["high"] - one["low"]) / 2
        one |= {end: one[end] + far for end in ("value", "low", "high")} | {"trials": [v + far for v in one["trials"]]}

    return claims(change)


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize(("share", "same"), [(0.005, True), (0.02, False)])
def test_another_rounding_of_a_claim_is_no_difference(folder: Path, share: float, same: bool) -> None:
    moved("active_power_w", share)(folder)
    assert (not made_again(folder).documents) is same


@pytest.mark.usefixtures("once")
def test_the_audit_names_the_first_differences(folder: Path, tmp_path: Path) -> None:
    FORGED["another unit"](folder)
    listed(folder)
    found = checked(folder, tmp_path / "out")
    assert (found["ok"], found["again"]["outcome"]) == (False, "failed")
    said = r"submission\.json, line \d+: '.*\"unit\": \"uW\".*', made again '.*\"unit\": \"W\".*'"
    assert re.match(said, found["again"]["found"])


@pytest.mark.usefixtures("once")
def test_derived_reports_in_the_folder_are_no_difference(folder: Path) -> None:
    another("sessions/slow/derived/report.html")(folder)
    assert not (found := made_again(folder)).documents and not found.pages


# ---- other versions -----------------------------------------------------------------------

WORDS = rewritten("report.md", "half the 95 % interval", "half of the 95 % interval")
"""A sentence of a page that another version words differently."""


def judged(folder: Path, out: Path, *edits: Edit) -> dict[str, Any]:
    """Return the check's findings on a folder with these edits and new hashes."""
    for edit in edits:
        edit(folder)
    listed(folder)
    return dict(checked(folder, out)["again"])


@pytest.mark.usefixtures("once")
def test_pages_of_unstated_versions_are_not_compared(folder: Path, tmp_path: Path) -> None:
    stated = rewritten("submission.json", r'"jinja2": "[^"]*"', '"plotted_with": "3.0.0"')
    again = judged(folder, tmp_path / "out", stated, WORDS)
    assert again["outcome"] == "warned"
    assert "jinja2 not stated" in again["found"]
    assert "submission.json and results.csv are equal" in again["found"]
    assert "other versions or edits by hand changed the rest: report.md, line " in again["found"]


@pytest.mark.usefixtures("once")
@pytest.mark.parametrize(("by", "outcome", "says"), [
    (0.4, "warned", "submission.json or results.csv differs too, by less than the intervals"),
    (1.5, "failed", "submission.json: active_power_w: low end "),
])  # fmt: skip
def test_another_version_explains_small_moves(folder: Path, tmp_path: Path, by: float, outcome: str, says: str) -> None:
    again = judged(folder, tmp_path / "out", OTHER, moved("active_power_w", by))
    assert again["outcome"] == outcome
    assert says in again["found"]


# ---- how texts are compared ---------------------------------------------------------------


@given(st.floats(1e-12, 1e12), st.floats(-1e-7, 1e-7))
def test_the_rounding_of_a_number_is_no_difference(value: float, share: float) -> None:
    assert not differences(f"a {value + 0.5!r} W".encode(), f"a {(value + 0.5) * (1 + share)!r} W".encode())


@pytest.mark.parametrize(("there", "here", "n"), [
    ("2.5 mW", "2.50001 mW", 1), ("2.5 mW", "2.5 uW", 1), ("7 of 8", "8 of 8", 1), ("1e-06", "2e-06", 1),
    ("2.5", "-2.5", 1), ("a", "b", 1), ("12.34", "12.35", 0), ("12.34", "12.36", 1), ("1.2", "1.3", 1),
])  # fmt: skip
def test_a_visible_change_is_a_difference(there: str, here: str, n: int) -> None:
    """The last of many digits may be rounded otherwise."""
    assert len(differences(there.encode(), here.encode())) == n


def test_the_first_differing_line_is_named() -> None:
    there, here = b'{\n "a": 1,\n "b": 2\n}', b'{\n "a": 1\n}'
    assert differences(there, here) == ["""line 3: ' "b": 2', made again '}'"""]
    assert differences(here, there) == ["""line 3: '}', made again ' "b": 2'"""]


def test_a_picture_may_differ_by_a_hundredth_of_a_point() -> None:
    assert not differences(b'<svg d="L 1.25"/>', b'<svg d="L 1.24"/>')
    assert differences(b'<svg d="L 1.25"/>', b'<svg d="L 1.23"/>')
    assert differences(b"<svg ><text>2.5</text>", b"<svg ><text>2.4</text>")
