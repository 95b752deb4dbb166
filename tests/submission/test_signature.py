"""A signature is OpenSSH's own, of the manifest, and only for this purpose."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from rig.errors import MissingExtraError, UsageError
from rig.recording.submission import MANIFEST, NAMESPACE, SIGNATURE, open_submission
from rig.submission.signature import sign
from tests.support.submissions import session, submitted

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")


def new_key(path: Path, kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(path)], check=True)
    return path


def unsigned(folder: Path) -> Path:
    folder.mkdir()
    (folder / MANIFEST).write_text("made up\n")
    return folder


def verified(folder: Path, key: Path, namespace: str = NAMESPACE) -> bool:
    signers = folder.parent / "signers"
    signers.write_text(f"lab {key.with_suffix('.pub').read_text()}")
    command = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "lab", "-n", namespace, "-s"]
    command.append(str(folder / SIGNATURE))
    with (folder / MANIFEST).open("rb") as manifest:
        return subprocess.run(command, stdin=manifest, capture_output=True, check=False).returncode == 0


def test_openssh_verifies_a_signed_submission(tmp_path: Path) -> None:
    key = new_key(tmp_path / "key")
    made = submitted(tmp_path / "out", session(tmp_path / "a"), key=key)
    assert verified(made.path, key)
    assert open_submission(made.path).root == made.root
    assert not [p for p in made.path.rglob("*") if p.is_file() and key.read_bytes() in p.read_bytes()]


def test_a_signature_holds_for_its_content_and_its_purpose_alone(tmp_path: Path) -> None:
    key, folder = new_key(tmp_path / "key"), unsigned(tmp_path / "sub")
    sign(folder, key)
    assert verified(folder, key)
    assert not verified(folder, key, "file")
    (folder / MANIFEST).write_text("made up!\n")
    assert not verified(folder, key)


def test_a_key_that_no_audit_verifies_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not an Ed25519 key"):
        sign(unsigned(tmp_path / "sub"), new_key(tmp_path / "key", "ecdsa"))


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    folder = unsigned(tmp_path / "sub")
    with pytest.raises(UsageError, match="not a file"):
        sign(folder, tmp_path / "none")
    (tmp_path / "text").write_text("no key")
    (tmp_path / "text").chmod(0o600)
    with pytest.raises(UsageError, match="did not sign"):
        sign(folder, tmp_path / "text")


def test_without_openssh_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, folder = new_key(tmp_path / "key"), unsigned(tmp_path / "sub")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingExtraError, match="Install OpenSSH"):
        sign(folder, key)
