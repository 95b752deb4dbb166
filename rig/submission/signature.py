"""Signatures by OpenSSH: ``ssh-keygen`` signs the manifest, with a key that never enters the folder."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

from rig.errors import MissingExtraError, UsageError, refused
from rig.recording.submission import MANIFEST, NAMESPACE, SIGNATURE

KIND = b"ssh-ed25519"
"""The kind of key that an audit can verify without OpenSSH."""


def sign(folder: Path, key: Path) -> None:
    """Sign the manifest in ``folder``.

    Raises ``MissingExtraError`` where OpenSSH is not installed, and ``UsageError`` for a key that cannot be used.
    """
    if not key.is_file():
        remedy = "Make one with `ssh-keygen -t ed25519 -f KEY`"
        raise refused("sign", str(key), remedy, f"the key {key} is not a file")
    command = ["ssh-keygen", "-Y", "sign", "-f", str(key.resolve()), "-n", NAMESPACE, str(folder / MANIFEST)]
    try:
        ended = subprocess.run(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, check=False)
    except OSError as error:
        what, remedy = "signing needs ssh-keygen, which is not installed", "Install OpenSSH (openssh-client on Debian)"
        raise MissingExtraError(what, field="sign", value=str(key), remedy=remedy) from error
    if ended.returncode != 0:
        said = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise _unusable(key, f"ssh-keygen did not sign: {said}")
    signature = folder / SIGNATURE
    signature.chmod(0o644)
    blob = base64.b64decode("".join(signature.read_text().split("\n")[1:]).partition("-----")[0])
    if blob[18 : 18 + len(KIND)] != KIND:  # after 6 bytes, a version and two lengths
        raise _unusable(key, "it is not an Ed25519 key")


def _unusable(key: Path, what: str) -> UsageError:
    return refused("sign", str(key), "Give an Ed25519 key of your own, readable by you alone", f"key {key}: {what}")
