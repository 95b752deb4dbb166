"""A signature is OpenSSH's own, of the manifest, and only for this purpose; an audit reads it as OpenSSH does."""

import shutil
import subprocess
from pathlib import Path

import pytest

from reports.audit.folder.signature import verify
from rig.errors import MissingExtraError, StoreError, UsageError
from rig.recording.submission import MANIFEST, NAMESPACE, SIGNATURE, open_submission
from rig.submission.folder import sign
from tests.support.raised import raised
from tests.support.submissions import session, submitted

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH is not installed")

MESSAGE = b"0123  submission.json\n"


def new_key(path: Path, kind: str = "ed25519") -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)], check=True)
    return path


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_key(tmp_path_factory.mktemp("keys") / "key")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a manifest, unsigned."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / MANIFEST).write_bytes(MESSAGE)
    return tmp_path / "sub"


def signature(folder: Path, key: Path) -> bytes:
    sign(folder, key)
    return (folder / SIGNATURE).read_bytes()


def openssh_verifies(folder: Path, signers: str, namespace: str = NAMESPACE) -> bool:
    (folder.parent / "signers").write_bytes(signers.encode())
    options = {"-f": folder.parent / "signers", "-I": "lab", "-n": namespace, "-s": folder / SIGNATURE}
    command = ["ssh-keygen", "-Y", "verify", *(str(word) for pair in options.items() for word in pair)]
    with (folder / MANIFEST).open("rb") as manifest:
        return subprocess.run(command, stdin=manifest, capture_output=True, check=False).returncode == 0


# ---- signed ---------------------------------------------------------------------------------


def test_openssh_verifies_a_signed_submission(tmp_path: Path, key: Path) -> None:
    made = submitted(tmp_path / "out", session(tmp_path / "a"), key=key)
    assert openssh_verifies(made.path, f"lab {key.with_suffix('.pub').read_text()}")
    assert open_submission(made.path).root == made.root
    assert not [p for p in made.path.rglob("*") if p.is_file() and key.read_bytes() in p.read_bytes()]


def test_a_signature_holds_for_one_purpose(folder: Path, key: Path) -> None:
    sign(folder, key)
    assert not openssh_verifies(folder, f"lab {key.with_suffix('.pub').read_text()}", "file")


def test_an_unsupported_key_is_refused(folder: Path, tmp_path: Path) -> None:
    raised(UsageError, sign, folder, new_key(tmp_path / "key", "ecdsa"), says="not an Ed25519 key")


def test_a_missing_key_is_refused(folder: Path, tmp_path: Path) -> None:
    raised(UsageError, sign, folder, tmp_path / "none", says="not a file")
    (tmp_path / "text").write_text("no key")
    (tmp_path / "text").chmod(0o600)
    raised(UsageError, sign, folder, tmp_path / "text", says="did not sign")


def test_a_missing_openssh_is_named(folder: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    raised(MissingExtraError, sign, folder, key, says="Install OpenSSH")


# ---- verified -------------------------------------------------------------------------------


def test_a_good_signature_names_its_signer(folder: Path, key: Path) -> None:
    made = signature(folder, key)
    line = f"# ours\nlab@example.org {key.with_suffix('.pub').read_text()}"
    for signers, who in ((line, "lab@example.org"), ("", "")):
        found = verify(MESSAGE, made, signers)
        assert found.who == who
        assert found.fingerprint.startswith("SHA256:")


LINES = {
    "a name": "lab {key}",
    "this purpose among others": 'lab namespaces="file,neurorig-submission" {key}',
    "a pattern of purposes, since a date": 'lab namespaces="neurorig-*",valid-after="20200101" {key}',
    "another purpose": 'lab namespaces="file" {key}',
    "a date that is over": 'lab valid-before="20200101" {key}',
    "an authority": "lab cert-authority {key}",
    "a carriage return": "lab {key} x\r",
    "a comment": "# lab {key}",
    "a negated namespace": 'lab namespaces="!neurorig-submission,*" {key}',
    "an unknown option": 'lab frobnicate="x" {key}',
    "a quote that does not end": 'lab namespaces="* {key}',
    "a junk date": 'lab valid-before="never" {key}',
    "a time to come": 'lab valid-after="299901010101" {key}',
    "a bad line before": 'lab frobnicate="x" {key}\nlab {key}',
    "another purpose before": 'lab namespaces="git" {key}\nlab {key}',
    "a line that only Unicode has": "# x\u2028lab {key}",
}
GOOD = {"a name", "this purpose among others", "a pattern of purposes, since a date", "another purpose before"}


@pytest.mark.parametrize("case", LINES)
def test_signer_lines_are_read_like_ssh_keygen(folder: Path, key: Path, case: str) -> None:
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    signers = LINES[case].replace("{key}", public) + "\n"
    found = verify(MESSAGE, signature(folder, key), signers).who == "lab"
    assert found is openssh_verifies(folder, signers)
    assert found or case not in GOOD


def test_another_file_or_purpose_is_refused(folder: Path, key: Path) -> None:
    raised(StoreError, verify, MESSAGE + b"x", signature(folder, key), "", says="not good")
    (folder / SIGNATURE).unlink()
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", "file", str(folder / MANIFEST)]
    subprocess.run(command, check=True, capture_output=True)
    raised(StoreError, verify, MESSAGE, (folder / SIGNATURE).read_bytes(), "", says="namespace")


@pytest.mark.parametrize(
    "text", [b"", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----", b"\xff\xfe"]
)
def test_a_bad_signature_is_refused(text: bytes) -> None:
    raised(StoreError, verify, MESSAGE, text, "", says="not good")
