"""A signature by OpenSSH is verified without ssh: by whom, of what, for what."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from reports.audit.signature import verify
from rig.errors import StoreError

pytest.importorskip("cryptography")
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
    command = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", namespace, str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "MANIFEST.sha256.sig").read_bytes()


def test_a_good_signature_names_its_signer(key: Path, tmp_path: Path) -> None:
    public = key.with_suffix(".pub").read_text()
    found = verify(MESSAGE, signature(key, tmp_path), f"# ours\nlab@example.org {public}")
    assert found.who == "lab@example.org"
    assert found.fingerprint.startswith("SHA256:")


@pytest.mark.parametrize(
    ("options", "who"),
    [
        ('namespaces="file,neurorig-submission"', "lab"),
        ('namespaces="neurorig-*",valid-after="20200101"', "lab"),
        ('namespaces="file"', ""),
        ('valid-before="20200101"', ""),
        ('valid-after="29990101"', ""),
        ("cert-authority", ""),
    ],
)
def test_the_file_of_signers_says_what_a_key_may(key: Path, tmp_path: Path, options: str, who: str) -> None:
    signers = f"lab {options} {key.with_suffix('.pub').read_text()}"
    assert verify(MESSAGE, signature(key, tmp_path), signers).who == who


def test_a_key_that_no_line_names_is_nobody(key: Path, tmp_path: Path) -> None:
    found = verify(MESSAGE, signature(key, tmp_path), "")
    assert (found.who, found.why) == ("", "no line of the signers has its key")


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
