"""One page of many submissions: measured and simulated separately, audits by root hash, others' text only as text."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from reports.submission.leaderboard import EQUAL
from rig.commands.shell.main import main
from rig.errors import DataError, UsageError
from rig.recording.layout import sha256_of
from rig.recording.submission import FILE, MANIFEST, About, Claim, Configuration, Submission, manifest_of

ABOUT = About(
    title="A", organization="A lab", contact="x", date="2026-11-22", availability="research", system="x", model="x",
    tuning="x", split="x", components="x", host="x", software="x", licence="x",
)  # fmt: skip


def claim(value: float, unit: str = "W") -> Claim:
    return Claim(value=value, unit=unit, low=0.9 * value, high=1.1 * value, trials=[value], runs=1)


def made(folder: Path, name: str, about: About = ABOUT, **more: Any) -> str:
    """Make a submission without sessions in ``folder/name``; return its root hash."""
    given: dict[str, Any] = {"name": name, "scenario": "single-stream", "workload": "asc", "rules": "quick"}
    given |= {"device": "d", "class_": "measured", "verdict": "VALID", "page": "report.html"}
    given |= {"sessions": ["sessions/a"], "claims": {"active_power_w": claim(1e-3)}} | more
    document = Submission(format=1, rig_version="0", name=name, about=about, configurations=[Configuration(**given)])
    (folder / name).mkdir(parents=True)
    (folder / name / FILE).write_bytes(msgspec.json.encode(document))
    (folder / name / MANIFEST).write_bytes(manifest_of({FILE: sha256_of(folder / name / FILE)}))
    return sha256_of(folder / name / MANIFEST)


def board(folder: Path, *audits: Path) -> str:
    words = [word for path in audits for word in ("--audit", str(path))]
    assert main(["leaderboard", str(folder), "--out", str(folder / "page.html"), *words]) == 0
    return (folder / "page.html").read_text()


def audited(folder: Path, *audits: dict[str, Any]) -> str:
    """Return the page of a folder with these audits."""
    (folder / "audit.json").write_text(json.dumps({"schema": "x", "audits": audits}))
    return board(folder, folder / "audit.json")


def rows(page: str, caption: str) -> list[str]:
    """Return the rows of the table with this caption."""
    (table,) = [t for t in re.findall(r"<table>.*?</table>", page, re.DOTALL) if f"<caption>{caption}" in t]
    return re.findall(r"<tr>(<th scope=\"row\".*?)</tr>", table, re.DOTALL)


def test_measured_and_simulated_rows_are_listed_apart(tmp_path: Path) -> None:
    for of in ("measured", "simulated", "imported", "estimated"):
        made(tmp_path, f"one-{of}", class_=of)
    page = board(tmp_path)
    for caption, of in (("Measured on", "measured"), ("SIMULATED", "simulated"), ("Estimated", "estimated")):
        assert [f"one-{of}" in row for row in rows(page, caption)] == [True]
    assert "arXiv" in rows(page, "Published by others")[0]


def test_a_figure_is_shown_with_interval_and_sort_value(tmp_path: Path) -> None:
    made(tmp_path, "a")
    assert '<td class="num" data-value="0.001">1.00 ± 0.10 mW</td>' in rows(board(tmp_path), "Measured on")[0]
    assert main(["leaderboard", str(tmp_path / "a"), "--out", str(tmp_path / "one.html")]) == 0


def test_a_row_names_the_rails_of_its_powers(tmp_path: Path) -> None:
    """A core alone draws less than a core and its memory; the two rows are no ranking."""
    keys = ("rail.memory.active_power_w", "rail.core.active_power_w", "trimmed.rail.x.active_power_w")
    made(tmp_path, "a", claims=dict.fromkeys((*keys, "active_power_w"), claim(1e-3)))
    assert "<td>core, memory</td>" in rows(board(tmp_path), "Measured on")[0]


def test_a_column_has_one_unit(tmp_path: Path) -> None:
    for name, rate_hz in (("slow", 0.92), ("quick", 8.25)):
        made(tmp_path, name, claims={"throughput_samples_hz": claim(rate_hz, "Hz")})
    assert [row.count(" samples/s</td>") for row in rows(board(tmp_path), "Measured on")] == [1, 1]


@pytest.mark.parametrize(("of_audit", "more", "status"), [
    ({"ok": True, "anchored": True, "remade": EQUAL}, {}, "audited"),
    ({"ok": True, "remade": EQUAL}, {}, "audited, not anchored"),
    ({"ok": True, "anchored": True, "remade": "pages not compared: x"}, {}, "audited, pages not compared"),
    ({"ok": True, "anchored": True}, {}, "audited, pages not compared"),
    ({"ok": True, "anchored": True, "quick": True}, {}, "audited without arithmetic and pages"),
    ({"ok": True, "root": "0" * 64}, {}, "under audit"),
    ({"ok": True}, {"about": replace(ABOUT, contact=" ")}, "incomplete"),
    ({"ok": True}, {"verdict": "INVALID"}, "invalid"),
    ({"ok": True}, {"verdict": "INVALID", "about": About()}, "invalid, incomplete"),
], ids=str)  # fmt: skip
def test_an_audit_has_one_root(tmp_path: Path, of_audit: dict[str, Any], more: dict[str, Any], status: str) -> None:
    """A page that was not made again may hold any script, and has no link."""
    row = rows(audited(tmp_path, {"root": made(tmp_path, "a", **more)} | of_audit), "Measured on")[0]
    assert f"<td>{status}</td>" in row and ("<a href=" in row) == (EQUAL in of_audit.values())


@pytest.mark.parametrize("order", [(True, False), (False, True), (False,)])
def test_figures_whose_audit_failed_are_not_shown(tmp_path: Path, order: tuple[bool, ...]) -> None:
    """Another audit of the same submission that passed, such as a quick one, changes nothing."""
    made(tmp_path, "good")
    root = made(tmp_path, "bad", device="another")
    page = audited(tmp_path, *({"root": root, "ok": ok} for ok in order))
    assert len(rows(page, "Measured on")) == 1
    assert "<li>bad: its audit failed</li>" in page


@pytest.mark.parametrize(
    ("gap", "tier"), [(-0.1, "gap ≤ 1%"), (0.01, "gap ≤ 1%"), (0.04, "gap ≤ 5%"), (0.2, "gap &gt; 10%")]
)
def test_solvers_are_listed_by_benchmark_tier(tmp_path: Path, gap: float, tier: str) -> None:
    made(tmp_path, "a", claims={"gap_official_mean": claim(gap, "1")})
    assert f"<td>{tier}</td>" in rows(board(tmp_path), "Measured on")[0]


def test_hostile_text_is_inert(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[2J"
    made(tmp_path, "a", replace(ABOUT, organization=evil), device=evil)
    page = board(tmp_path)
    assert "<script>alert" not in page and "\x1b" not in page
    assert page.count("<script>") == 1


def test_an_altered_submission_is_left_out_and_named(tmp_path: Path) -> None:
    made(tmp_path, "good")
    made(tmp_path, "bad")
    (tmp_path / "bad" / FILE).write_text("{}")
    page = board(tmp_path)
    assert len(rows(page, "Measured on")) == 1
    assert "differs from the manifest" in page


def test_an_empty_folder_and_a_bad_audit_are_refused(tmp_path: Path) -> None:
    words = ["leaderboard", str(tmp_path), "--out", str(tmp_path / "page.html")]
    assert main(words) == UsageError.exit_code
    made(tmp_path, "a")
    (tmp_path / "audit.json").write_text('{"audits": [{"root": 3}]}')
    assert main([*words, "--audit", str(tmp_path / "audit.json")]) == DataError.exit_code
    assert not (tmp_path / "page.html").exists()


def test_a_link_to_a_submission_is_not_followed(tmp_path: Path) -> None:
    made(tmp_path / "elsewhere", "a")
    made(tmp_path / "board", "b")
    (tmp_path / "board" / "a").symlink_to(tmp_path / "elsewhere" / "a")
    page = board(tmp_path / "board")
    assert len(rows(page, "Measured on")) == 1
    assert "a: it is a link" in page
