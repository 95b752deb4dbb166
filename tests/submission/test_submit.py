"""A submission holds complete sessions, claims their figures, and nothing of others in it can run."""

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from fixtures.bench.mock_meter import MockMeter
from reports.submission.results_csv import results_csv
from rig.commands.shell.main import main
from rig.comparing.compare import compare
from rig.errors import DataError, IntegrityError, RigError, StoreError, UsageError
from rig.recording.submission import About, missing, open_submission
from rig.session.report import evaluated
from rig.submission.configurations import rows_of
from rig.submission.folder import Submitted, submit
from rig.submission.submission_toml import FIELDS, read_about, write_template
from tests.support.hardware_clothes import HERE, recorded
from tests.support.raised import Capture, Patch, raised, raising
from tests.support.schema import schemas
from tests.support.submission_folder import edited, row_edited
from tests.support.submissions import WHOLE, session, submitted


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sessions of one configuration, and one of another."""
    folder = tmp_path_factory.mktemp("lab")
    session(folder / "a", "meter.noise=1e-3", trials=2)
    session(folder / "b", "meter.noise=1e-3", "meter_seed=7", trials=2)
    session(folder / "slow", "warmup=2")
    return folder


@pytest.fixture(scope="module")
def made(lab: Path) -> Submitted:
    """A submission of the three sessions of ``lab``."""
    return submitted(lab / "made", lab / "a", lab / "b", lab / "slow", archive=lab / "made" / "sub.tar.gz")


def refused(lab: Path, tmp_path: Path, about: str = WHOLE, **more: Any) -> RigError:
    """Return the error of a submission of ``a``, which leaves nothing behind."""
    (tmp_path / "submission.toml").write_text(about)
    before = sorted(tmp_path.iterdir())
    caught = raised(RigError, submitted, tmp_path, lab / "a", about=about, **more)
    assert sorted(tmp_path.iterdir()) == before
    return caught


# ---- one recording counts once ------------------------------------------------------------


def test_a_renamed_copy_of_a_session_is_refused(lab: Path, tmp_path: Path) -> None:
    again = shutil.copytree(lab / "a", tmp_path / "again")
    with pytest.raises(DataError, match=r"hold one recording: their events\.jsonl are equal") as caught:
        submitted(tmp_path, lab / "a", again)
    assert str(lab / "a" / "accuracy") in caught.value.message
    assert str(again / "accuracy") in caught.value.message
    assert "measure again" in caught.value.remedy


# ---- the folder ---------------------------------------------------------------------------


def test_sessions_are_copied_without_derived_files(lab: Path, made: Submitted) -> None:
    for name in ("a", "b", "slow"):
        kept = {p.relative_to(lab / name) for p in (lab / name).rglob("*") if p.is_file() and "derived" not in p.parts}
        copy = made.path / "sessions" / name
        assert {p.relative_to(copy) for p in copy.rglob("*") if p.is_file()} == kept
        assert all((copy / p).read_bytes() == (lab / name / p).read_bytes() for p in kept)
    assert made.left_out == ()


def test_the_manifest_covers_every_file(made: Submitted) -> None:
    listed = {line[66:] for line in (made.path / "MANIFEST.sha256").read_text().splitlines()}
    files = {p.relative_to(made.path).as_posix() for p in made.path.rglob("*") if p.is_file()}
    assert listed == files - {"MANIFEST.sha256"}
    assert made.root == hashlib.sha256((made.path / "MANIFEST.sha256").read_bytes()).hexdigest()
    if shutil.which("sha256sum"):
        subprocess.run(["sha256sum", "-c", "--quiet", "MANIFEST.sha256"], cwd=made.path, check=True)


def test_the_description_fits_its_schema(made: Submitted) -> None:
    document = json.loads((made.path / "submission.json").read_text())
    jsonschema.Draft202012Validator(schemas()["submission"]).validate(document)
    document["about"]["contact"] = " "  # only the submitter knows it
    assert not jsonschema.Draft202012Validator(schemas()["submission"]).is_valid(document)


def test_the_crate_names_every_session_and_the_program(made: Submitted) -> None:
    graph = json.loads((made.path / "ro-crate-metadata.json").read_text())["@graph"]
    by = {entity["@id"]: entity for entity in graph}
    parts = {part["@id"] for part in by["./"]["hasPart"]}
    assert {f"sessions/{name}/" for name in ("a", "b", "slow")} | {"report.html", "results.csv"} <= parts
    assert parts <= set(by)
    (first, *_) = (e["result"] for e in graph if e["@type"] == "CreateAction")
    assert first == [{"@id": "sessions/a/"}, {"@id": "sessions/b/"}]


def test_the_archive_has_the_same_bytes_again_and_the_folder_the_mode_that_the_umask_leaves(
    lab: Path, tmp_path: Path
) -> None:
    with ExitStack() as after:
        after.callback(os.umask, os.umask(0o077))
        found = [submitted(tmp_path / name, lab / "slow", archive=tmp_path / f"{name}.tar.gz") for name in "ab"]
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()
    assert found[0].root == found[1].root
    assert found[0].path.stat().st_mode & 0o777 == 0o700


def test_two_sessions_whose_names_differ_only_in_case_are_both_kept_on_any_disk(lab: Path, tmp_path: Path) -> None:
    other = session(tmp_path / "SLOW", "warmup=2")
    found = submitted(tmp_path / "out", lab / "slow", other)
    assert found.document.configurations[0].sessions == ["sessions/slow", "sessions/SLOW-2"]


# ---- what is claimed ----------------------------------------------------------------------


def test_sessions_of_one_configuration_are_trials(made: Submitted) -> None:
    rows = made.document.configurations
    assert [row.sessions for row in rows] == [["sessions/a", "sessions/b"], ["sessions/slow"]]
    assert len({row.name for row in rows}) == 2


OWN = """
from fixtures.bench.mock_device import open_device as mock
def open_device(bench, *, tuned: int = 1):
    return mock(bench)
"""


def test_sessions_with_other_device_options_are_separate_rows(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    options = {"a": ("tuned=1",), "b": ("device.tuned=2", "meter_seed=7"), "c": ()}
    own = [session(tmp_path / k, *v, device=f"{tmp_path / 'own.py'}:open_device") for k, v in options.items()]
    rows = submitted(tmp_path / "made", *own).document.configurations
    assert [row.sessions for row in rows] == [["sessions/a", "sessions/c"], ["sessions/b"]]
    assert [row.name.rpartition(", ")[2] for row in rows] == ["tuned 1", "tuned 2"]
    (found,) = compare(own[:2])
    assert found.differs["device.options.tuned"] == (1, 2)
    assert not any("tuned" in place for place in found.differs if place.startswith("option."))


def test_sessions_over_other_rails_are_separate_rows(tmp_path: Path, monkeypatch: Patch) -> None:
    """Their mean would be the power of no supply."""
    both, opened = session(tmp_path / "both", "rails=2"), MockMeter.__init__

    def narrow(self: MockMeter, plant: Any, settings: Any, clock: Any, rails: Any, pin: Any) -> None:
        opened(self, plant, settings, clock, rails[:1], pin)

    monkeypatch.setattr(MockMeter, "__init__", narrow)
    rows = open_submission(submitted(tmp_path, both, session(tmp_path / "one", "rails=2")).path).document.configurations
    assert [row.name.partition("rails ")[2] for row in rows] == ["rail0, rail1", "rail0"]


def test_simulated_and_measured_meters_make_separate_rows(tmp_path: Path) -> None:
    meters = {"measured": f"{HERE}:meter", "simulated": "mock"}
    found = {name: session(tmp_path / name, device=f"{HERE}:device", meters=(m,)) for name, m in meters.items()}
    rows = rows_of([(name, evaluated(path)) for name, path in found.items()])
    assert [row.configuration.class_ for row in rows] == ["measured", "simulated"]


def test_a_claim_is_the_mean_of_trials(lab: Path, made: Submitted) -> None:
    results = [evaluated(lab / name).result.quantities["active_power_w"] for name in ("a", "b")]
    claim = made.document.configurations[0].claims["active_power_w"]
    assert claim.trials == [q.value for q in results]
    assert claim.value == pytest.approx(sum(claim.trials) / 2, rel=1e-12)
    assert claim.runs == 4
    assert claim.low is not None and claim.high is not None
    assert claim.low <= min(claim.trials) < max(claim.trials) <= claim.high


def test_trial_rules_count_all_sessions(made: Submitted) -> None:
    validity = made.rows[0].result.validity
    assert validity is not None
    checks = [check for check in validity.checks if check.rule.endswith("runs for performance")]
    assert [(check.rule, check.found) for check in checks] == [("runs for performance", "4")]
    assert {check.rule.partition(".")[0] for check in validity.checks if "power-1: " in check.rule} == {"a", "b"}


def test_repeated_samples_do_not_narrow_accuracy(lab: Path, made: Submitted) -> None:
    one = evaluated(lab / "a").result.quantities["accuracy"]
    claim = made.document.configurations[0].claims["accuracy"]
    assert (claim.low, claim.high) == pytest.approx(one.interval(), rel=1e-12)


def test_a_name_is_never_a_spreadsheet_formula(made: Submitted) -> None:
    row = replace(made.document.configurations[0], name="=cmd()", device="@x", workload="-1")
    document = replace(made.document, configurations=[row])
    (said,) = csv.DictReader(results_csv(document, []).decode().splitlines())
    assert (said["name"], said["device"], said["workload"]) == ("'=cmd()", "'@x", "'-1")


def test_the_page_has_all_rows_and_six_sections(made: Submitted) -> None:
    for page, text in ((p, (made.path / p).read_text()) for p in ("report.html", "report.md")):
        said = text.replace("\\", "")
        assert all(part in said for row in made.document.configurations for part in row.name.split(", ")), page
        titles = ("System architecture", "Algorithm", "Workflow", "Timing measurement", "Power measurement", "Results")
        assert all(f"{number}. {section}" in text for number, section in enumerate(titles, 1))
        assert "lab@example.org" in text
        assert "Missing:" not in text
        assert "derived/" not in text  # a link that leads nowhere
    assert (made.path / made.document.configurations[1].page).is_file()


# ---- what only the submitter knows --------------------------------------------------------


def test_missing_fields_are_marked(lab: Path, tmp_path: Path) -> None:
    found = submitted(tmp_path, lab / "slow", about='title = "x"\ncontact = "  "\n')
    assert set(found.missing) == set(About.__struct_fields__) - {"title", "notes"}
    assert "Missing: Organization, Contact" in (found.path / "report.html").read_text()
    document = json.loads((found.path / "submission.json").read_text())
    assert not jsonschema.Draft202012Validator(schemas()["submission"]).is_valid(document)


def test_the_template_asks_for_unrecorded_facts(lab: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "submission.toml"
    assert main(["submit", str(lab / "a"), "--init", "--about", str(file)]) == 0
    about, _ = read_about(file)
    assert about.title == "mock: asc, single-stream"
    assert about.system == "SIMULATED device on a simulated bench"
    left = missing(about)
    assert {"contact", "licence", "split"} <= set(left)
    assert file.read_text().count("TO FILL IN") == len(left)
    assert re.search(r"# The recordings say: \d{4}-\d\d-\d\d\ndate = ", file.read_text())
    assert f"fill in {', '.join(left)}" in capsys.readouterr().out


def test_the_template_asks_for_every_field() -> None:
    assert tuple(FIELDS) == About.__struct_fields__


def test_a_template_is_not_overwritten(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("mine")
    assert main(["submit", str(lab / "a"), "--init", "--about", str(tmp_path / "s.toml")]) == UsageError.exit_code
    assert (tmp_path / "s.toml").read_text() == "mine"
    caught = raised(StoreError, write_template, tmp_path / "s.toml" / "below.toml", [], says="cannot be written")
    assert "--about FILE" in caught.remedy


@pytest.mark.parametrize(("about", "field"), [
    ("contact = 3", "contact"), ('contact = ["a"]', "contact"), ('colour = "blue"', "colour"),
    ('availability = "soon"', "availability"), ('date = "yesterday"', "date"), ("date = 2026-11-22", "date"),
    (f'title = "{"x" * 501}"', "title"), (f'model = "{"x" * 10_001}"', "model"), ("not toml", "TOML"),
    ("a" * (2 << 20), "about"),
], ids=lambda value: value[:20])  # fmt: skip
def test_a_field_of_wrong_type_or_size_is_refused(lab: Path, tmp_path: Path, about: str, field: str) -> None:
    error = refused(lab, tmp_path, about)
    assert isinstance(error, DataError | UsageError)
    assert field in str(error) or field == "TOML"


def test_hostile_text_is_inert_in_the_page(lab: Path, tmp_path: Path) -> None:
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(2)>'
    about = WHOLE.replace('"A lab"', json.dumps(evil)).replace('"nothing"', json.dumps("[x](javascript:alert(3))"))
    found = submitted(tmp_path, lab / "slow", about=about)
    html, markdown = ((found.path / name).read_text() for name in ("report.html", "report.md"))
    assert "<script>alert" not in html and "<img" not in html
    assert "<script>" not in markdown and "\\[x\\](javascript" in markdown


# ---- refused, with nothing left behind ----------------------------------------------------


def test_an_existing_folder_is_refused(lab: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert refused(lab, tmp_path).field == "out"


@pytest.mark.parametrize("broken", ["source", "target"])
def test_an_uncopyable_file_is_named(lab: Path, tmp_path: Path, monkeypatch: Patch, broken: str) -> None:
    def copied(source: Path, target: Path) -> str:
        raise OSError(13, "Permission denied", str(source if broken == "source" else target))

    monkeypatch.setattr("rig.submission.folder._copy", copied)
    place, what = (lab / "a", "read") if broken == "source" else (tmp_path / "sub" / "sessions" / "a", "written")
    said = refused(lab, tmp_path).message
    assert said.startswith(f"{place}/") and f"cannot be {what} (Permission denied)" in said


def test_an_archive_of_an_unknown_kind_is_refused(lab: Path, tmp_path: Path) -> None:
    assert refused(lab, tmp_path, archive=tmp_path / "sub.zip").field == "archive"


def altered(lab: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(lab / "slow", tmp_path / "copy"))


def flipped(session: Path) -> None:
    with (session / "power" / "replies.arrows").open("r+b") as file:
        file.seek(700)
        file.write(b"\xff")


def linked(session: Path) -> None:
    (session / "broken").mkdir()
    (session / "broken" / "x").symlink_to("/etc/passwd")


def unnameable(session: Path) -> None:
    (session / "broken").mkdir()
    (session / "broken" / "f\udcfcr").touch()


def unfinished(session: Path) -> None:
    (session / "request.json").write_text("{}")


@pytest.mark.parametrize(("spoil", "error", "says"), [
    (flipped, IntegrityError, "replies.arrows"), (linked, StoreError, "link"), (unfinished, StoreError, "not whole"),
    (unnameable, StoreError, "cannot be in a manifest"),
])  # fmt: skip
def test_an_altered_or_partial_session_is_refused(
    lab: Path, tmp_path: Path, spoil: Callable[[Path], None], error: type[RigError], says: str
) -> None:
    copy = altered(lab, tmp_path)
    spoil(copy)
    raised(error, submitted, tmp_path / "out", copy, says=says)
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "submission.toml"]


def test_unhashed_files_are_left_out(lab: Path, tmp_path: Path) -> None:
    copy = altered(lab, tmp_path)
    (copy / "power" / "password.txt").write_text("secret")
    found = submitted(tmp_path / "out", copy)
    assert found.left_out == (str(copy / "power" / "password.txt"),)
    assert not list(found.path.rglob("password.txt"))


def test_a_session_named_twice_is_refused(lab: Path, tmp_path: Path) -> None:
    raised(UsageError, submitted, tmp_path, lab / "a", lab / "a", says="twice")


def test_a_link_to_itself_is_no_session(tmp_path: Path) -> None:
    (tmp_path / "self").symlink_to("self")
    raised(OSError, submitted, tmp_path / "out", tmp_path / "self", says="symbolic links")


def test_ctrl_c_leaves_no_incomplete_file(lab: Path, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("rig.submission.folder._copy", raising(KeyboardInterrupt()))
    raised(KeyboardInterrupt, submitted, tmp_path / "out", lab / "slow")
    assert list((tmp_path / "out").iterdir()) == [tmp_path / "out" / "submission.toml"]


# ---- reading a submission -----------------------------------------------------------------


@pytest.fixture
def copy(made: Submitted, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.path, tmp_path / "copy"))


def test_a_changed_byte_of_any_file_is_noticed(copy: Path) -> None:
    for file in sorted(p for p in copy.rglob("*") if p.is_file()):
        content = file.read_bytes()
        file.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        raised(RigError, open_submission, copy)
        file.write_bytes(content)
    open_submission(copy)


def test_an_unlisted_file_is_noticed(copy: Path) -> None:
    (copy / "sessions" / "a" / "derived").mkdir()
    (copy / "sessions" / "a" / "derived" / "report.html").write_text("x")
    open_submission(copy)
    (copy / "sessions" / "a" / "more").write_text("x")
    raised(IntegrityError, open_submission, copy, says="not in the manifest")


@pytest.mark.parametrize("edit", [
    {"format": 2}, {"configurations": []}, {"configurations": [[[]]]}, {"about": {"title": 3}},
    {"about": {"colour": "blue"}}, {"name": "x" * 501}, {"name": json.loads("[" * 70 + "]" * 70)},
], ids=lambda edit: str(edit)[:30])  # fmt: skip
def test_a_description_of_the_wrong_shape_is_refused(copy: Path, edit: dict[str, Any]) -> None:
    edited(copy, lambda document: document.update(edit))
    raised(StoreError, open_submission, copy)


@pytest.mark.parametrize("name", ["sessions/../../x", "/etc", "sessions/a/b", "sessions/.", "sessions/a\nb"])
def test_a_description_names_only_own_sessions(copy: Path, name: str) -> None:
    row_edited(copy, lambda row: row.update(sessions=[name]))
    raised(StoreError, open_submission, copy)


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a/../../b", "a\\b", "", "./x"])
def test_a_manifest_path_stays_inside(copy: Path, name: str) -> None:
    with (copy / "MANIFEST.sha256").open("a") as manifest:
        manifest.write(f"{'0' * 64}  {name}\n")
    raised(IntegrityError, open_submission, copy, says="line")


# ---- where it is written ------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["", "pages", "sessions/a", "sessions/a/accuracy"])
@pytest.mark.parametrize("argument", ["out", "archive"])
def test_a_nested_submission_is_refused(lab: Path, copy: Path, tmp_path: Path, argument: str, inside: str) -> None:
    (copy / "pages").mkdir(exist_ok=True)
    inner = copy / inside / "new.tar.gz"
    out, archive = (inner, None) if argument == "out" else (tmp_path / "new", inner)
    (tmp_path / "submission.toml").write_text(WHOLE)
    caught = raised(UsageError, submit, [lab / "b"], tmp_path / "submission.toml", out, archive, says="lies inside of")
    assert caught.field == argument
    assert "Name a place beside it" in caught.remedy
    assert open_submission(copy).root
    assert not (tmp_path / "new").exists()


def test_a_derived_folder_may_hold_a_submission(lab: Path, copy: Path, tmp_path: Path) -> None:
    (copy / "derived").mkdir()
    (tmp_path / "submission.toml").write_text(WHOLE)
    made = submit([lab / "b"], tmp_path / "submission.toml", copy / "derived" / "new")
    assert open_submission(made.path)
    assert open_submission(copy)


# ---- the last line ------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "begins", "ends"), [
    (lambda path: recorded("single-stream", path, rules="quick").path, "NEVER SUBMITTABLE mock, ",
     "judged by quick; measure with --rules neurobench-1.0"),
    (lambda path: session(path / "s", "idle_s=2"), "NEVER SUBMITTABLE mock, ",
     "simulated, and rules for submission take hardware only; measure the hardware by neurobench-1.0"),
    (lambda path: session(path / "s"), "INVALID mock, ", ""),
])  # fmt: skip
def test_the_last_line_states_what_is_missing(
    tmp_path: Path, capsys: Capture, make: Callable[[Path], Path], begins: str, ends: str
) -> None:
    (tmp_path / "submission.toml").write_text(WHOLE)
    words = ["--about", str(tmp_path / "submission.toml"), "--out", str(tmp_path / "sub")]
    assert main(["submit", str(make(tmp_path)), *words]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith(begins) and line.endswith(ends)
