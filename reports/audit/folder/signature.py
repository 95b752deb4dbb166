"""Verify the signature of a submission with OpenSSH (``ssh-keygen -Y verify``).

The file of signers has the form of ssh-keygen(1).
"""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from reports.audit.folder.reading import clean, refuse

NAMESPACE, WAIT_S = "neurorig-submission", 60.0
_GOOD = re.compile(rb'Good "\S+" signature with \S+ key (SHA256:\S+)\s*')


@dataclass(frozen=True)
class Signed:
    """A good signature: the signer's name in the file of signers (empty if the file does not allow it), and the key."""

    who: str
    fingerprint: str


def verify(message: bytes, signature: bytes, signers: str) -> Signed:
    """Verify a signature. Raises ``StoreError`` if it is not good, ``FileNotFoundError`` without OpenSSH."""
    with tempfile.TemporaryDirectory(prefix="audit-") as folder:
        made, allowed = Path(folder, "signature"), Path(folder, "signers")
        made.write_bytes(signature)

        def ssh(do: str, *words: str) -> subprocess.CompletedProcess[bytes]:
            command = ["ssh-keygen", "-Y", do, *words, "-s", str(made)]
            return subprocess.run(command, input=message, capture_output=True, check=False, timeout=WAIT_S)

        good = ssh("check-novalidate", "-n", NAMESPACE)
        found = _GOOD.fullmatch(good.stdout)
        if good.returncode or found is None:
            said = clean(good.stderr.decode(errors="replace")).rstrip(".")
            refuse("the signature", f"is not good, or of another file: {said}", remedy="Ask for the original")
        for line in signers.split("\n"):  # line by line, because OpenSSH stops at the first line with the key
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            allowed.write_bytes(line.encode("utf-8", "replace") + b"\n")
            names = ssh("find-principals", "-f", str(allowed)).stdout.decode(errors="replace")
            for who in names.strip().split(",") if names.strip() else ():
                if not ssh("verify", "-f", str(allowed), "-I", who, "-n", NAMESPACE).returncode:
                    return Signed(who, found[1].decode())
    return Signed("", found[1].decode())
