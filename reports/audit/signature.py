"""Signatures of OpenSSH (``ssh-keygen -Y sign``), verified without ssh; Ed25519 only.

The format is PROTOCOL.sshsig of OpenSSH; the file of signers is that of ssh-keygen(1), ALLOWED SIGNERS.
"""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import re
import struct
from dataclasses import dataclass
from datetime import UTC, datetime

from rig.errors import StoreError, missing_extra

NAMESPACE = "neurorig-submission"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_KEY = b"ssh-ed25519"
_LINE = re.compile(r'\s*(?P<who>"[^"]*"|[^\s#]\S*)\s+(?P<options>\S.*?\s+)?ssh-ed25519\s+(?P<key>\S+)')
_OPTION = re.compile(r'([a-z-]+)(?:="([^"]*)")?')


@dataclass(frozen=True)
class Signed:
    """A good signature: by whom, as the file of signers calls them, and the fingerprint of the key.

    ``who`` is empty for a good signature by a key that the file does not allow, with ``why``.
    """

    who: str
    why: str
    fingerprint: str


def verify(message: bytes, signature: bytes, signers: str) -> Signed:
    """Verify a signature. Raises ``StoreError`` if it is not good, ``MissingExtraError`` without the extra."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError as error:
        raise missing_extra("a signature", error, "audit") from error
    try:
        key, public, raw, whole = _parts(message, signature)
        Ed25519PublicKey.from_public_bytes(public).verify(raw, whole)
    except (ValueError, KeyError, struct.error, InvalidSignature) as error:
        what = f"the signature is not good: {str(error) or 'it was made of another file, or altered'}"
        raise StoreError(what, field="signature", value="MANIFEST.sha256.sig") from error
    fingerprint = "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
    return Signed(*_allowed(key, signers), fingerprint)


def _parts(message: bytes, signature: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    """The key as a file of signers has it, its public part, the raw signature, and what it signs."""
    text = signature.decode("ascii").strip()
    if not text.startswith(_BEGIN) or not text.endswith(_END):
        raise ValueError("it has no frame")
    blob = base64.b64decode(text.removeprefix(_BEGIN).removesuffix(_END))
    key, namespace, reserved, algorithm, signed = _strings(blob[10:], 5)
    (kind, public), (kind_signed, raw) = _strings(key, 2), _strings(signed, 2)
    if (blob[:10], kind, kind_signed) != (b"SSHSIG\0\0\0\1", _KEY, _KEY):
        raise ValueError("it is not of version 1 with an Ed25519 key")
    if namespace != NAMESPACE.encode():
        raise ValueError(f"it is for the namespace {namespace[:40]!r}, not {NAMESPACE}")
    digest = {b"sha512": hashlib.sha512, b"sha256": hashlib.sha256}[algorithm](message).digest()
    return key, public, raw, b"SSHSIG" + b"".join(map(_string, (namespace, reserved, algorithm, digest)))


def _string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def _strings(blob: bytes, count: int) -> list[bytes]:
    found, rest = list[bytes](), blob
    for _ in range(count):
        (length,) = struct.unpack_from(">I", rest)
        found.append(rest[4 : 4 + length])
        rest = rest[4 + length :]
    if b"".join(map(_string, found)) != blob:
        raise ValueError("it does not end where its parts end")
    return found


def _allowed(key: bytes, signers: str) -> tuple[str, str]:
    """Who of the file of signers has a key; or else why no one may sign with it."""
    why, now = "no line of the signers has its key", datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    for line in signers.splitlines():
        found = _LINE.match(line)
        if found is None or found["key"] != base64.b64encode(key).decode():
            continue
        options = dict(_OPTION.findall(found["options"] or ""))
        spaces = options.get("namespaces", "*").split(",")
        if "cert-authority" in options or not any(fnmatch.fnmatchcase(NAMESPACE, space) for space in spaces):
            why = "its key is not allowed for submissions"
        elif not options.get("valid-after", "0") <= now < options.get("valid-before", "9"):
            why = "its key is not valid today"
        else:
            return found["who"].strip('"'), ""
    return "", why
