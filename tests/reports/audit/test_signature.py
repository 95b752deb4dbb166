"""OpenSSH verifies a signature: its signer, its content, its purpose."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from reports.audit.folder.signature import verify
from rig.errors import StoreError

if shutil.which("ssh-keygen") is None:
    pytest.skip("ssh-keygen makes the signatures of this test", allow_module_level=True)

MESSAGE = b"0123  submission.json\n"


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("keys") / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(place)], check=True)
    return place


def signature(key: Path, folder: Path, namespace: str = "neurorig-submission") -> bytes:
    file = folder / "MANIFEST.sha256"
    file.write_bytes(MESSAGE)
    (folder / "MANIFEST.sha256.sig").unlink(missing_ok=True)
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", namespace, str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "MANIFEST.sha256.sig").read_bytes()


def test_a_good_signature_names_its_signer(key: Path, tmp_path: Path) -> None:
    public = key.with_suffix(".pub").read_text()
    for signers, who in ((f"# ours\nlab@example.org {public}", "lab@example.org"), ("", "")):
        found = verify(MESSAGE, signature(key, tmp_path), signers)
        assert found.who == who
        assert found.fingerprint.startswith("SHA256:")


@pytest.mark.parametrize(
    ("options", "who"),
    [
        ('namespaces="file,neurorig-submission"', "lab"), ('namespaces="neurorig-*",valid-after="20200101"', "lab"),
        ('namespaces="file"', ""), ('valid-before="20200101"', ""), ('valid-after="29990101"', ""),
        ("cert-authority", ""),
    ],
)  # fmt: skip
def test_the_file_of_signers_says_what_a_key_may(key: Path, tmp_path: Path, options: str, who: str) -> None:
    signers = f"lab {options} {key.with_suffix('.pub').read_text()}"
    assert verify(MESSAGE, signature(key, tmp_path), signers).who == who


LINES = {
    "a name": "lab {key}",
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


@pytest.mark.parametrize("case", LINES)
def test_a_line_of_signers_is_read_as_ssh_keygen_reads_it(key: Path, tmp_path: Path, case: str) -> None:
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    text, made = LINES[case].replace("{key}", public) + "\n", signature(key, tmp_path)
    (tmp_path / "signers").write_bytes(text.encode())
    options = {"-f": "signers", "-I": "lab", "-n": "neurorig-submission", "-s": "MANIFEST.sha256.sig"}
    command = ["ssh-keygen", "-Y", "verify", *(word for pair in options.items() for word in pair)]
    theirs = subprocess.run(command, input=MESSAGE, cwd=tmp_path, capture_output=True, check=False)
    assert (verify(MESSAGE, made, text).who == "lab") == (theirs.returncode == 0), theirs.stderr


def test_another_file_or_purpose_is_refused(key: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not good"):
        verify(MESSAGE + b"x", signature(key, tmp_path), "")
    (tmp_path / "MANIFEST.sha256.sig").unlink()
    with pytest.raises(StoreError, match="namespace"):
        verify(MESSAGE, signature(key, tmp_path, "file"), "")


@pytest.mark.parametrize(
    "text", [b"", b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----", b"\xff\xfe"]
)
def test_what_is_no_signature_is_refused(text: bytes) -> None:
    with pytest.raises(StoreError, match="not good"):
        verify(MESSAGE, text, "")
