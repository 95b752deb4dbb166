"""Verify the hashes of a submission's files. Hashes of a run or session are verified where it is read."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from reports.audit.folder.reading import clean, inside, read_bytes, sha256_of, walk
from rig.errors import StoreError

SUBMISSION, SESSION, EVENTS = "submission.json", "session.json", "events.jsonl"
MANIFEST, SIGNATURE = "MANIFEST.sha256", "MANIFEST.sha256.sig"
MANIFEST_BYTES = 64 << 20
UNLISTED = f"is not in {MANIFEST}"
_LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\x7f\\]+)")


@dataclass
class Ledger:
    """The faults found in hashes, the parts without a seal, and the hashes in the manifest."""

    faults: list[str] = field(default_factory=list)
    unsealed: list[str] = field(default_factory=list)
    """The runs and sessions without a seal: nothing confirms their last line."""
    listed: dict[str, str] = field(default_factory=dict)
    """The hashes of a manifest by path."""

    def used(self, name: str, digest: str) -> None:
        """Add a fault if a file differs from the manifest at the moment of its use."""
        fault = clean(f"{MANIFEST}: {name} differs from its hash")
        if self.listed and self.listed.get(name) != digest and fault not in self.faults:
            self.faults.append(fault)


def check_manifest(folder: Path, ledger: Ledger) -> str:
    """Verify every file of a submission against its manifest. Return the root hash: the hash of the manifest."""
    content = read_bytes(folder / MANIFEST, MANIFEST_BYTES)
    lines = content.decode("utf-8", "replace").split("\n")
    ledger.listed = {found[2]: found[1] for line in lines if (found := _LINE.fullmatch(line))}
    if lines != [*(f"{digest}  {name}" for name, digest in sorted(ledger.listed.items())), ""]:
        ledger.faults.append(f"{MANIFEST} is not a hash and a path in each line, each path once and in order")
    for name in ledger.listed:
        try:
            ledger.used(name, sha256_of(inside(folder, name)))
        except StoreError as error:
            ledger.faults.append(clean(f"{MANIFEST}: {name}: {error.message}"))
    for name in walk(folder):
        if name not in (MANIFEST, SIGNATURE) and name not in ledger.listed and "derived" not in name.split("/"):
            ledger.faults.append(clean(f"{name} {UNLISTED}"))
    return hashlib.sha256(content).hexdigest()
