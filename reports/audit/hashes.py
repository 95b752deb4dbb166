"""Hashes: of the files of a run, of the runs of a session, of all files of a submission."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reports.audit.files import clean, inside, parse_json, read_bytes, refuse, sha256_of, walk
from reports.audit.reading import GENESIS, Run
from rig.errors import StoreError

SUBMISSION, SESSION = "submission.json", "session.json"
MANIFEST, SIGNATURE = "MANIFEST.sha256", "MANIFEST.sha256.sig"
MANIFEST_BYTES = 64 << 20
UNLISTED = f"is not in {MANIFEST}"
_LINE = re.compile(r"([0-9a-f]{64})  ([^\x00-\x1f\x7f\\]+)")
_RECORDED = re.compile(r"(samples|replies|progress|activity)\.arrows|traces/[^/]+\.arrows|artifacts/payloads/.+")


@dataclass
class Ledger:
    """The hashes that were computed, so that no file is read twice, and every fault that was found."""

    known: dict[Path, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    unsealed: list[str] = field(default_factory=list)
    """The runs and sessions without a seal, for whose last line nothing speaks."""
    files: int = 0

    def of(self, path: Path) -> str:
        """SHA-256 of a file in hex."""
        if path not in self.known:
            self.known[path] = sha256_of(path)
        return self.known[path]

    def compare(self, root: Path, name: object, expected: object, where: str) -> None:
        """Note it if a file is missing, or differs from a hash that was recorded."""
        self.files += 1
        try:
            found = self.of(inside(root, name))
        except StoreError as error:
            self.faults.append(clean(f"{where}: {error.message}"))
            return
        if found != expected:
            self.faults.append(clean(f"{where}: {name} differs from its hash"))

    def compare_seal(self, folder: Path, name: str, digest: str) -> None:
        """Note it if a document has no seal, or differs from it."""
        seal = folder / f"{name}.sha256"
        if not seal.exists() and not seal.is_symlink():
            self.unsealed.append(clean(folder.name))
            return
        self.files += 1
        if read_bytes(seal) != f"{digest}  {name}\n".encode():
            self.faults.append(clean(f"{folder.name}: {name} differs from its seal"))


def check_run(run: Run, ledger: Ledger) -> None:
    """Verify the files of a run against its stop line and its seal."""
    where = run.path.name
    ledger.faults += [clean(f"{where}: {fault}") for fault in run.faults]
    listed: dict[str, Any] = (run.stop or {}).get("files") or {}
    for name, expected in listed.items():
        ledger.compare(run.path, name, expected, where)
    for name in walk(run.path) if run.stop is not None else ():
        if _RECORDED.fullmatch(name) and name not in listed:
            ledger.faults.append(clean(f"{where}: {name} is not listed in the stop line"))
    ledger.compare_seal(run.path, "events.jsonl", run.digest)


def read_session(folder: Path, ledger: Ledger) -> dict[str, Any]:
    """Read ``session.json``, and verify its seal. Raises ``StoreError`` if it is not of the format."""
    content = read_bytes(folder / SESSION)
    document = parse_json(content, SESSION)
    runs = document.get("runs") if isinstance(document, dict) else None
    if not isinstance(runs, list) or document.get("schema") != "neurorig-session/1":
        refuse(SESSION, "is not of the format neurorig-session/1", clean(folder.name))
    if not runs:
        refuse(SESSION, "binds no run: none of them has ended", clean(folder.name))
    keys = ("path", "purpose", "events_sha256")
    if any(not isinstance(run, dict) or any(not isinstance(run.get(key), str) for key in keys) for run in runs):
        refuse(SESSION, "holds a run without a path, purpose or hash", clean(folder.name))
    ledger.compare_seal(folder, SESSION, hashlib.sha256(content).hexdigest())
    return dict(document)


def check_session(document: dict[str, Any], runs: list[Run], ledger: Ledger) -> None:
    """Verify that the runs of a session are those that it binds, in their order."""
    previous, first = GENESIS, (runs[0].start.get("session") if runs else None)
    names = [run["path"] for run in document["runs"]]
    if len(set(names)) < len(names):
        ledger.faults.append(f"{SESSION} binds a run twice")
    for number, (bound, run) in enumerate(zip(document["runs"], runs, strict=True), start=1):
        where = clean(run.path.name)
        if run.digest != bound["events_sha256"]:
            ledger.faults.append(f"{where} is not the run whose hash is in {SESSION}")
        if run.purpose != bound["purpose"]:
            ledger.faults.append(f"{where} was recorded for {clean(run.purpose)}, and {SESSION} says otherwise")
        link = run.start.get("session")
        if (link is None) != (first is None) or (link and first and link.get("id") != first.get("id")):
            ledger.faults.append(f"{where} is a run of another session")
        elif link and (link.get("number"), link.get("previous")) != (number, previous):
            ledger.faults.append(f"{where} does not follow from the run before it: one is missing, moved or replaced")
        previous = run.digest
    if first and isinstance(first.get("of"), int) and first["of"] > len(runs):
        ledger.faults.append(f"{SESSION} binds {len(runs)} of {first['of']} runs")


def check_manifest(folder: Path, ledger: Ledger) -> str:
    """Verify every file of a submission against its manifest; the root hash, that of the manifest itself."""
    content = read_bytes(folder / MANIFEST, MANIFEST_BYTES)
    lines = content.decode("utf-8", "replace").split("\n")
    listed = {found[2]: found[1] for line in lines if (found := _LINE.fullmatch(line))}
    if lines != [*(f"{digest}  {name}" for name, digest in sorted(listed.items())), ""]:
        ledger.faults.append(f"{MANIFEST} is not a hash and a path in each line, each path once and in order")
    for name, expected in listed.items():
        ledger.compare(folder, name, expected, MANIFEST)
    for name in walk(folder):
        if name not in (MANIFEST, SIGNATURE) and name not in listed and "derived" not in name.split("/"):
            ledger.faults.append(clean(f"{name} {UNLISTED}"))
    return hashlib.sha256(content).hexdigest()
