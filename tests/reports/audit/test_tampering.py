"""Each way to alter a submission is refused by the check for it."""

import contextlib
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults.forge import read, store
from fixtures.worlds.lab_recording import plain_lab, write
from fixtures.worlds.labs.filters_and_idle_loads_kinds import KINDS as IDLE_LOAD_KINDS
from fixtures.worlds.labs.lab_kinds import KINDS as LAB_KINDS
from fixtures.worlds.meters.filters_and_ranges_kinds import KINDS as RANGE_KINDS
from reports.audit.audit import Audit, audit
from reports.audit.evidence import Check
from reports.submission.audit_page import counted, worst
from rig.errors import StoreError
from tests.support.asleep import recording
from tests.support.submission_folder import altered, edited, listed, row_edited, unpacked
from tests.support.submissions import session, submitted


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    return submitted(folder, unpacked("session-trials", folder)).path


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "sub"))


def failed(found: Audit) -> set[int]:
    return {c.number for c in found.failed}


def told(found: Audit, number: int) -> Check:
    return next(c for c in found.checks if c.number == number)


NAME = "mock, asc, single-stream"
SHORT_IDLE, MODIFIED = 18, 27
"""Checks that the golden session itself fails: its idle windows are 1 s long."""


def test_the_original_fails_only_expected_checks(original: Path) -> None:
    found = audit(original)
    assert failed(found) <= {SHORT_IDLE, MODIFIED, 6}, found.failed
    assert len(found.checks) == 31
    assert len(found.compared) > 20
    assert found.anchor == "self-consistent, not anchored"


def test_the_worst_finding_comes_first_with_a_remedy(folder: Path) -> None:
    (folder / "report.md").write_text("told otherwise\n")
    found = audit(folder, quick=True, roots=[audit(folder, quick=True).root or ""])
    word, sentence = worst(found)
    assert (word, found.anchored) == ("FAILED", False)
    assert "report.md differs from its hash" in sentence
    assert sentence.endswith("Ask for the original")
    assert found.anchor == "altered after it was hashed, not anchored"


def test_a_file_that_is_no_part_of_the_submission_is_to_be_removed_and_a_missing_one_has_its_path(folder: Path) -> None:
    (folder / ".DS_Store").write_bytes(b"Bud1")
    said = worst(audit(folder, quick=True))[1]
    assert ".DS_Store is not in MANIFEST.sha256" in said
    assert said.endswith(". Remove it")
    (gone := next(folder.rglob("replies.arrows"))).unlink()
    assert f"{gone.relative_to(folder)}: replies.arrows cannot be read" in worst(audit(folder, quick=True))[1]


def test_a_submission_is_unsigned_without_openssh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is impossible, as the check states; the exit code is that of a failed check."""
    unsigned = audit(folder, quick=True, signers="lab ssh-ed25519 AAAA")
    (folder / "MANIFEST.sha256.sig").write_text("a signature\n")
    monkeypatch.setenv("PATH", "")
    found = audit(folder, quick=True, signers="lab ssh-ed25519 AAAA")
    assert "ssh-keygen is not installed" in told(found, 3).found
    assert {c.number for c in found.failed} == {c.number for c in unsigned.failed}
    assert audit(folder, quick=True).anchor == "self-consistent, not anchored"


def test_unsubmittable_rules_decide_the_outcome(folder: Path) -> None:
    found = audit(folder / "sessions" / "session-trials" / "accuracy", quick=True)
    simulated, measured = worst(found), worst(replace(found, simulated=False))
    assert simulated[0] == measured[0] == "NEVER SUBMITTABLE"
    assert measured[1].startswith("judged by quick. Measure again with --rules neurobench-1.0; ")
    assert simulated[1].startswith("simulated, and no rules take a simulation. Measure hardware by neurobench-1.0; ")


def test_the_final_word_states_how_much_was_derived(original: Path) -> None:
    found = replace(audit(original), checks=(), rules=(), unfit=(), invalid=(), remade="pages not compared")
    word, sentence = worst(found)
    assert word == "no check failed"
    derived = f"{len(found.compared)} of {found.claimed} claims were derived again; pages not compared"
    assert sentence == f"{derived}; self-consistent, not anchored: give --signers FILE or --root HASH"
    assert found.claimed > len(found.compared) > 20


def test_a_recording_without_claims_is_reported(tmp_path: Path) -> None:
    found = audit(unpacked("by-hand-example", tmp_path), quick=True)
    _, sentence = worst(replace(found, claimed=0, quick=False, checks=(), unfit=(), rules=()))
    assert sentence.startswith("it claims no figure; self-consistent")


def test_an_invalid_row_is_called_invalid(original: Path) -> None:
    found = replace(audit(original, quick=True), checks=(), rules=(), unfit=())
    assert worst(found)[0] == "INVALID" and f"by its own verdict: {NAME}" in worst(found)[1]


def test_a_broken_rule_makes_a_claimed_verdict_fail(folder: Path) -> None:
    assert 4 not in failed(audit(folder, quick=True))
    row_edited(folder, lambda row: row.update(verdict="VALID"))
    assert "is called VALID, and power-1: shortest idle window" in told(audit(folder, quick=True), 4).found


def test_empty_submission_fields_fail_their_own_check(folder: Path) -> None:
    edited(folder, lambda document: document["about"].update(contact="", tuning=" ", date="tomorrow"))
    found = {c.number: c for c in audit(folder, quick=True).failed}
    assert 1 not in found
    assert found[31].found.startswith("contact, tuning: empty; about.date: Expected `str` matching regex")


@pytest.mark.parametrize("key", ["active_power_w", "energy_per_inference_j", "execution_time_s", "latency_mean_s"])
def test_a_figure_that_is_half_a_percent_off_fails(folder: Path, key: str) -> None:
    def change(row: dict[str, Any]) -> None:
        one = row["claims"][key]
        one["value"] *= 1.005
        one["trials"] = [one["value"]]

    row_edited(folder, change)
    found = audit(folder)
    off = [c for c in found.compared if not c.ok]
    assert [c.key for c in off] == [key]
    assert f"{len(found.compared)} of {found.claimed} claims were derived again, 1 out of bounds" in counted(found)
    assert off[0].bound <= 2e-3 * abs(off[0].plain) or key.startswith("energy")


def off_its_mean(row: dict[str, Any]) -> None:
    row["claims"]["active_power_w"]["value"] *= 1.051


def integrated(row: dict[str, Any]) -> None:
    one = row["claims"]["energy_per_inference_integrated_j"]
    one |= {key: 4 * one[key] for key in ("value", "low", "high")} | {"trials": [4 * one["value"]]}


@pytest.mark.parametrize(("change", "number", "said"), [
    (off_its_mean, 17, ": active_power_w is 0.0031556"),
    (integrated, 25, ", and energy_per_inference_integrated_j is"),
    (lambda row: row.update({"class": "measured"}), 29, ""),
])  # fmt: skip
def test_a_changed_claim_fails_its_check(
    folder: Path, change: Callable[[dict[str, Any]], None], number: int, said: str
) -> None:
    row_edited(folder, change)
    found = told(audit(folder, quick=True), number)
    assert found.outcome == "failed" and said in found.found


def test_a_name_like_a_spreadsheet_formula_is_allowed(folder: Path) -> None:
    """``rig submit`` writes an apostrophe before such a name."""
    row_edited(folder, lambda row: row.update(name="@home", device="=chip"))
    text = (folder / "results.csv").read_text()
    (folder / "results.csv").write_text(text.replace(f'"{NAME}",', "'@home,").replace(",mock,", ",'=chip,"))
    listed(folder)
    assert 30 not in failed(audit(folder, quick=True))


@pytest.mark.parametrize(("old", "new", "said"), [
    ("name,class", "name,active_power_w,class", "the column 'active_power_w' is there twice"),
    (NAME, "x" * 200_000, "no table that can be read"),
    ("name,class", "name,tops_per_watt,class", "in order, each with a cell for every column"),
    ("simulated", "simulated ", ": class is simulated , not simulated"),
])  # fmt: skip
def test_a_table_that_says_more_than_the_claims_fails(folder: Path, old: str, new: str, said: str) -> None:
    (folder / "results.csv").write_text((folder / "results.csv").read_text().replace(old, new))
    listed(folder)
    assert said in told(audit(folder, quick=True), 30).found


def test_runs_of_another_session_are_reported(tmp_path: Path) -> None:
    one, two = (session(tmp_path / name) for name in ("one", "two"))
    folder = submitted(tmp_path / "made", one).path
    assert 2 not in failed(audit(folder, quick=True))
    run = folder / "sessions" / "one" / "performance"
    shutil.rmtree(run)
    shutil.copytree(two / "performance", run)
    altered(run, lambda lines: None, run.parent)
    listed(folder)
    assert "of another session" in told(audit(folder, quick=True), 2).found


RUN = "sessions/session-trials/power-1"


def without_trace(lines: list[dict[str, Any]]) -> None:
    lines[0]["meters"][0].setdefault("rails", [{"name": "core"}]).append({"name": "io"})


def idle_that_holds_spans(lines: list[dict[str, Any]]) -> None:
    next(line for line in lines if line["type"] == "idle")["off_ns"] += 300_000_000


def seeds_of_tuning(lines: list[dict[str, Any]]) -> None:
    lines[0]["device"]["algorithm"] = {"tuning": {"seeds": list(range(1990, 2010))}}


@pytest.mark.parametrize(("change", "number"), [(without_trace, 24), (idle_that_holds_spans, 19), (seeds_of_tuning, 9)])
def test_a_run_that_was_changed_fails_its_check(
    folder: Path, change: Callable[[list[dict[str, Any]]], None], number: int
) -> None:
    altered(folder / RUN, change, (folder / RUN).parent)
    listed(folder)
    assert number in failed(audit(folder, quick=True))


@pytest.mark.parametrize("classes", [5, {"a": 1}, [["a"], {}]])
def test_classes_of_another_kind_stop_no_audit(tmp_path: Path, classes: object) -> None:
    run = unpacked("by-hand-example", tmp_path)
    altered(run, lambda lines: lines[0]["workload"].update(details={"classes": classes}))
    assert len(audit(run, quick=True).checks) == 31


def test_idle_that_was_measured_asleep_fails_its_check(tmp_path: Path) -> None:
    """Gaps between spans have the ready device's power, and the idle windows less."""
    asleep = told(audit(recording(tmp_path / "run", idle_w=0.5e-3, gap_w=1e-3)), 18)
    assert asleep.outcome == "failed" and "asleep" in asleep.found
    assert told(audit(recording(tmp_path / "ready", idle_w=1e-3, gap_w=1e-3)), 18).outcome == "passed"
    works_on = told(audit(recording(tmp_path / "some", idle_w=1e-3, gap_w=3e-3, each=2)), 18)
    assert works_on.outcome == "warned" and "something else works beside the spans" in works_on.found
    hot = told(audit(recording(tmp_path / "hot", idle_w=2.5e-3, gap_w=1e-3)), 18)
    assert hot.outcome == "warned"
    assert "dynamic power is 0.0004998 W above the idle windows, 0.002 W above the gaps" in hot.found


def test_a_rehashed_recording_is_not_anchored(folder: Path, original: Path) -> None:
    altered(folder / RUN, lambda lines: lines[0].update(operator="another"), (folder / RUN).parent)
    listed(folder)
    root = audit(original, quick=True).root
    assert root is not None
    again = audit(folder, quick=True)
    assert 2 not in failed(again)
    assert again.anchor == "self-consistent, not anchored"
    assert f"and the published one is {root}" in told(audit(folder, quick=True, roots=[root]), 3).found
    assert audit(original, quick=True, roots=[root]).anchor == "anchored by the published root hash"


def test_a_run_without_a_seal_is_reported(tmp_path: Path) -> None:
    """Its root hash is that of the current lines, and confirms none of them."""
    run = unpacked("by-hand-example", tmp_path)
    (run / "events.jsonl.sha256").write_text(f"{audit(run, quick=True).root}  events.jsonl\n")
    assert told(audit(run, quick=True), 2).found.endswith("sealed")
    (run / "events.jsonl.sha256").unlink()
    assert told(audit(run, quick=True), 2).found.endswith("no seal of by-hand-example")


def test_every_flipped_bit_is_noticed(folder: Path) -> None:
    """A few of the positions; benchmarks/audit.py flips 2,000."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file()]
    chance = random.Random(5)
    for _ in range(6):
        place = chance.choice(files)
        content = bytearray(place.read_bytes())
        at = chance.randrange(len(content))
        content[at] ^= 1 << chance.randrange(8)
        before = place.read_bytes()
        place.write_bytes(content)
        with contextlib.suppress(StoreError):
            assert 2 in failed(audit(folder, quick=True))
        place.write_bytes(before)


def test_only_the_changed_file_is_reported(folder: Path) -> None:
    events = next(folder.glob("sessions/*/power*/events.jsonl"))
    events.write_bytes(events.read_bytes() + b" ")
    (folder / "submission.json").write_bytes((folder / "submission.json").read_bytes() + b" ")
    found = told(audit(folder), 2).found
    assert found.count("differs from its hash") == 2
    assert str(events.relative_to(folder)) in found and "session.json differs" not in found


def test_host_work_is_not_taken_for_device_sleep(tmp_path: Path) -> None:
    """In the middle of long gaps, power is that of the idle windows."""
    busy = recording(tmp_path / "busy", idle_w=1e-3, gap_w=2.5e-3, gap_s=0.08, host_s=0.01)
    host = told(audit(busy), 18)
    assert host.outcome == "warned"
    assert "0.0005 W above the gaps" not in host.found
    assert "something else works beside the spans, such as the host" in host.found
    assert told(audit(recording(tmp_path / "short", 1e-3, 2.5e-3, gap_s=0.003)), 18).outcome == "warned"
    always = told(audit(recording(tmp_path / "all", 1e-3, 2.5e-3, gap_s=0.02, host_s=0.01)), 18)
    assert always.outcome == "failed"
    assert "leave gaps" in always.found


@pytest.mark.parametrize(("kind", "seed"), [
    ("drops_now_and_then", 18), ("drops_now_and_then", 35), ("every_reading_twice", 14), ("lost_block", 5),
    ("pulses_timed_by_a_smart_plug", 2),
])  # fmt: skip
def test_lost_or_late_readings_are_no_moved_trace(tmp_path: Path, kind: str, seed: int) -> None:
    lab = plain_lab(seed, kind)
    (LAB_KINDS | IDLE_LOAD_KINDS | RANGE_KINDS)[kind](lab)
    write(lab, tmp_path / "run")
    assert not [c.found for c in audit(tmp_path / "run").failed if "shows the spans" in c.found]


def test_changed_conversion_volts_are_found(tmp_path: Path) -> None:
    """Changed volts change the gain of every reading; the start line and the trace state the same volts."""
    run = unpacked("current-burden", tmp_path)
    assert 24 not in failed(audit(run))
    table = read(place := run / "traces/core.arrows")
    meta = {key: value.replace(b'"supply_v": 1.8', b'"supply_v": 0.9') for key, value in table.schema.metadata.items()}
    store(place, table.replace_schema_metadata(meta))
    altered(run, lambda lines: lines[0]["meters"][0]["rails"][0]["conversion"].update(supply_v=0.9))
    assert "supply_v is 0.9 in the conversion, and 1.8 as stated" in told(audit(run), 24).found
