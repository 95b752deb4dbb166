"""Whatever a folder or archive holds, the auditor reads or refuses it, and writes nothing outside --out."""

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path

import psutil
import pytest

from reports.audit.audit import audit
from reports.audit.folder.reading import clean, inside, parse_json, sha256_of, walk
from reports.audit.rules import known_values
from reports.submission.archive import unpack
from rig.commands.shell.main import main
from rig.errors import StoreError
from scenarios.rules import SETS, rules
from tests.support.processes import MAIN, python
from tests.support.raised import Capture, Patch, raised
from tests.support.submission_folder import unpacked
from tests.support.submissions import submitted


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a//b", "", ".", "a\0b", "c:x", "a\\b", "a/passwd"])
def test_a_path_or_link_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").symlink_to("/etc")
    raised(StoreError, inside, tmp_path, name, says="link" if name == "a/passwd" else "leads outside")


def test_an_unlistable_folder_is_an_error(tmp_path: Path) -> None:
    raised(FileNotFoundError, lambda: list(walk(tmp_path / "gone")))


@pytest.mark.skipif(sys.platform != "linux", reason="how many descriptors are open is counted on Linux")
def test_a_system_limit_is_not_blamed_on_a_recording(tmp_path: Path) -> None:
    held = unpacked("single-session", tmp_path)
    few = "import resource, reports.submission.audit_command, reports.audit.audit, rig.commands.shell.main\n"
    few += "resource.setrlimit(resource.RLIMIT_NOFILE, (6, 6)); "
    done = python(few + MAIN, "audit", "--quick", held)
    assert done.returncode == 7
    assert "cannot be read: [Errno 24] Too many open files" in done.stderr
    assert "ulimit" in done.stderr


@pytest.mark.parametrize(
    "text", ["NaN", "[1e999]", '{"a": 1, "a": 2}', "[" * 100_000, "9" * 10_000, "{", "[" * 5_000 + "]" * 5_000]
)
def test_json_outside_the_format_is_refused(text: str) -> None:
    raised(StoreError, parse_json, text.encode(), "a file")


def test_control_characters_are_not_shown() -> None:
    assert clean("a\x1b[31m\u202eb\nc\u2067\ud800d") == "a [31m b c d"


Member = tuple[str | tarfile.TarInfo | zipfile.ZipInfo, str]


def packed(path: Path, *members: Member, method: int = zipfile.ZIP_STORED) -> Path:
    """Write an archive of members, each by its name or with a header that the test makes."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", method) as archive:
            for head, content in members:
                archive.writestr(head, content)  # type: ignore[arg-type]
        return path
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for head, content in members:
            entry = head if isinstance(head, tarfile.TarInfo) else tarfile.TarInfo(str(head))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content.encode()))
    return path


def linked(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return entry


@pytest.mark.parametrize("name", ["a.tar.gz", "link.tar.gz", "a.zip", "win.zip"])
def test_outside_paths_in_an_archive_are_refused(tmp_path: Path, name: str) -> None:
    outward: dict[str, Member] = {"link.tar.gz": (linked("link"), ""), "win.zip": ("..\\out", "x")}
    packed(tmp_path / name, outward.get(name, ("../out", "x")))
    error = raised(StoreError, unpack, tmp_path / name, tmp_path / "into", says=f"^{name}.* (leads outside|is a link)")
    assert not (tmp_path / "out").exists()
    assert not [file for file in psutil.Process().open_files() if file.path == str(tmp_path / name)], error


@pytest.mark.parametrize(("members", "place"), [
    ([("sub/a.txt", "a"), ("__MACOSX/sub/._a.txt", "x")], "a.txt"),
    ([("sub\\", ""), ("sub\\b\\a.txt", "a")], "b/a.txt"),
], ids=["of Finder", "with backslashes"])  # fmt: skip
def test_an_archive_of_another_system_is_read(tmp_path: Path, members: list[Member], place: str) -> None:
    held = unpack(packed(tmp_path / "a.zip", *members), tmp_path / "into")
    assert [path.relative_to(held).as_posix() for path in held.rglob("*") if path.is_file()] == [place]


def test_an_archive_bomb_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("reports.submission.archive.SMALL", 1 << 20)
    packed(tmp_path / "a.zip", ("zeros", "\0" * (8 << 20)), method=zipfile.ZIP_DEFLATED)
    raised(StoreError, unpack, tmp_path / "a.zip", tmp_path / "into", says="is a bomb")


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_cut_or_flipped_archive_is_called_damaged(tmp_path: Path, share: float) -> None:
    """The archive is not compressed, because a flipped bit of compressed zeros may still give the same zeros."""
    with tarfile.open(tmp_path / "whole.tar.gz", "w:gz", compresslevel=0) as archive:
        archive.add(unpacked("by-hand-example", tmp_path), "sub")
    whole = (tmp_path / "whole.tar.gz").read_bytes()
    at = max(20, int(len(whole) * share))  # the head of the file has 20 bytes
    (tmp_path / "cut.tar.gz").write_bytes(whole[:at])
    (tmp_path / "flipped.tar.gz").write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
    for name in ("cut.tar.gz", "flipped.tar.gz"):
        with pytest.raises(StoreError, match=f"^{name} is damaged.* Fetch it again"):
            unpack(tmp_path / name, tmp_path / f"into-{name}")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_zip_that_unpacks_beyond_its_stated_size_is_refused(tmp_path: Path, method: int) -> None:
    path = packed(tmp_path / "a.zip", ("sub/x", "abc" * 4000), method=method)
    raised(StoreError, unpack, path, tmp_path / "into", says="neither stored nor deflated")


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_long_header_is_refused_unread(tmp_path: Path, kind: bytes) -> None:
    entry = tarfile.TarInfo("sub/x")
    entry.type = kind
    path = packed(tmp_path / "a.tar.gz", (entry, "1" * 5000), ("sub/x", ""))
    raised(StoreError, unpack, path, tmp_path / "into", says="has a header of 5000 bytes")


@pytest.mark.parametrize("headers", [{"map": "a,b"}, {"major": "1", "minor": "0"}, {"size": "zz", "numblocks": "1"}])
def test_an_invalid_sparse_file_head_is_called_damaged(tmp_path: Path, headers: dict[str, str]) -> None:
    entry = tarfile.TarInfo("sub/x")
    entry.pax_headers = {f"GNU.sparse.{key}": value for key, value in headers.items()}
    with pytest.raises(StoreError, match=r"^a.tar.gz:? .*(damaged|no regular file)"):
        unpack(packed(tmp_path / "a.tar.gz", (entry, "x")), tmp_path / "into")


@pytest.mark.parametrize("name", ["a.tar.gz", "a.zip"])
def test_too_many_archive_files_are_refused(tmp_path: Path, monkeypatch: Patch, name: str) -> None:
    monkeypatch.setattr("reports.submission.archive.FILES_MOST", 3)
    packed(tmp_path / name, *((f"sub/{number}", "") for number in range(4)))
    raised(StoreError, unpack, tmp_path / name, tmp_path / "into", says="holds more than 3 files")
    assert not list((tmp_path / "into").iterdir())


def test_a_sparse_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(1 << 40)
    raised(StoreError, sha256_of, tmp_path / "hole", says="of which 0 are on the disk")


def test_path_names_send_no_terminal_codes(tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "ev\x1b[2K\rno check failed"
    folder.mkdir()
    assert main(["audit", str(folder), str(tmp_path / "gone")]) == StoreError.exit_code
    said = capsys.readouterr().err
    assert "\x1b" not in said and "\r" not in said


def test_an_archive_that_holds_a_path_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"^a\.tar\.gz is damaged"):
        unpack(packed(tmp_path / "a.tar.gz", ("same", "x"), ("same", "y")), tmp_path / "into")


def test_a_link_in_a_zip_becomes_no_link(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    into = unpack(packed(tmp_path / "a.zip", (link, "/etc/passwd")), tmp_path / "into")
    assert (into / "link").read_text() == "/etc/passwd"


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    raised(StoreError, audit, tmp_path, says=r"has no events\.jsonl")
    (tmp_path / "events.jsonl").write_text(json.dumps({"seq": 0}) + "\n")
    found = audit(tmp_path)
    assert [c.number for c in found.failed] == [2]
    assert {c.why for c in found.checks if c.number > 3} == {"no run can be read"}


def test_the_command_prints_writes_and_exits(tmp_path: Path, capsys: Capture) -> None:
    run = unpacked("by-hand-example", tmp_path)
    assert main(["audit", str(run), "--out", str(tmp_path / "out")]) == 32  # its device has no description
    assert "self-consistent, not anchored" in capsys.readouterr().out
    document = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert {c["number"] for c in document["audits"][0]["checks"]} == set(range(1, 32))
    assert "<script" not in (tmp_path / "out" / "audit.html").read_text()
    assert main(["audit", str(run), "--out", str(run / "inside")]) == 3
    assert main(["audit", str(run), "--quick", "--json"]) == 32
    assert json.loads(capsys.readouterr().out)["audits"][0]["quick"]


def test_unhashed_files_are_reported(tmp_path: Path, capsys: Capture) -> None:
    """A submitter can put an audit of their own into the folder."""
    folder = submitted(tmp_path / "made", unpacked("single-session", tmp_path / "lab")).path
    (folder / "derived").mkdir()
    (folder / "derived" / "audit.html").write_text("no check failed")
    main(["audit", str(folder), "--quick", "--out", str(tmp_path / "out")])
    said = "files not read, and covered by no hash: derived/audit.html"
    assert f"beside  {said}\n" in capsys.readouterr().out
    assert said in (tmp_path / "out" / "audit.html").read_text()


@pytest.mark.parametrize("name", sorted(SETS))
def test_the_auditor_has_the_current_sets_of_rules(name: str) -> None:
    for scenario in SETS[name][2]:
        values = known_values(name, scenario)[-1]
        today = rules(name, scenario)
        assert {k: list(v) if isinstance(v := getattr(today, k), tuple) else v for k in values} == values
