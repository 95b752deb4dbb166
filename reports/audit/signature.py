"""Signatures of OpenSSH (``ssh-keygen -Y sign``), verified without ssh; Ed25519 only.

The format is PROTOCOL.sshsig of OpenSSH; the file of signers is that of ssh-keygen(1), ALLOWED SIGNERS.
"""

from __future__ import annotations

import base64
import hashlib
import re
import struct
from dataclasses import dataclass
from datetime import UTC, datetime

from rig.errors import StoreError, missing_extra

NAMESPACE = "neurorig-submission"
_BEGIN, _END = "-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"
_KEY = b"ssh-ed25519"
_LINE = re.compile(r'[ \t]*(?:"(?P<quoted>[^"]*)"[ \t]*|(?P<plain>[^\s"#][^\s"]*)[ \t]+)(?P<rest>.*)')
_KEYED = re.compile(r'(?:(?P<options>(?:"(?:\\"|[^"])*+"|\\"|[^ \t"])++)[ \t]+)?ssh-ed25519[ \t]+(?P<key>[^ \t]+)')
_OPTION = re.compile(
    r'(?:(cert-authority)|(namespaces|valid-after|valid-before)="((?:\\"|[^"])*+)")(?:,(?!$)|$)', re.IGNORECASE
)
_TIMES = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


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
    why, encoded = "no line of the signers has its key", base64.b64encode(key).decode()
    for line in (_LINE.match(text.rstrip("\r")) for text in signers.split("\n")):
        found = None if line is None else _KEYED.match(line["rest"])
        if line is None or found is None or found["key"] != encoded:
            continue
        try:
            why = _refusal(_options(found["options"] or ""))
        except ValueError as error:
            why = f"its line of the signers cannot be read: {error}"
        if not why:
            return line["quoted"] or line["plain"] or "", ""
    return "", why


def _options(text: str) -> dict[str, str]:
    """The options of a line by their names. Raises ``ValueError`` where ssh-keygen refuses the line."""
    found: dict[str, str] = {}
    at = 0
    while at < len(text):
        option = _OPTION.match(text, at)
        if option is None:
            raise ValueError(f"unknown option {text[at : at + 40]!r}")
        name = (option[1] or option[2]).lower()
        if name in found and option[2]:
            raise ValueError(f"{name} stands twice")
        found[name] = (option[3] or "").replace('\\"', '"')
        at = option.end()
    return found


def _refusal(options: dict[str, str]) -> str:
    """Why a key with these options may not sign a submission now; empty if it may."""
    now = datetime.now(UTC)
    after, before = (_moment(options[name]) if name in options else now for name in ("valid-after", "valid-before"))
    if "valid-after" in options and "valid-before" in options and before <= after:
        raise ValueError("valid-before is not after valid-after")
    if "cert-authority" in options or not _permitted(options.get("namespaces", "*")):
        return "its key is not allowed for submissions"
    return "" if after <= now <= before else "its key is not valid today"


def _permitted(patterns: str) -> bool:
    """Whether a list of patterns allows the namespace: one of them fits, and none of those that begin with ``!``."""
    fitting = [p for p in patterns.split(",") if _pattern(p.removeprefix("!")).fullmatch(NAMESPACE)]
    return bool(fitting) and not any(p.startswith("!") for p in fitting)


def _pattern(text: str) -> re.Pattern[str]:
    """A pattern of ssh_config(5): ``*`` stands for any characters, and ``?`` for one."""
    return re.compile(re.escape(text).replace(r"\*", ".*").replace(r"\?", "."))


def _moment(text: str) -> datetime:
    """A date or time of the format YYYYMMDD[HHMM[SS]], in local time, or in UTC where a Z follows."""
    digits = re.sub(r"(?i)(?:Z|UTC)$", "", text)
    if len(digits) not in _TIMES or not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text[:40]!r} is no time")
    moment = datetime.strptime(digits, _TIMES[len(digits)])
    return moment.replace(tzinfo=UTC) if digits != text else moment.astimezone(UTC)
