"""Read audio files as checked mono float32. Nothing here runs inside a measured span.

Wav, flac and ogg are decoded by soundfile and resampled by soxr; both come with the extra
``neurorig[audio]`` and are imported when the first file is opened.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError
from rig.plugins import imported

CLIPPED_LIMIT = 0.001
"""Largest share of a channel's samples that may be clipped; see ``clipped_share``."""

REFERENCE_ERROR = 1e-6
"""Largest difference from the samples of the benchmark's generator for the same audio, relative to full scale."""
FRONT_END = (
    "mean of the channels, resampled by soxr HQ, cut into whole seconds, not scaled: the samples of the reference "
    f"(NeuroBench/system_benchmarks, f9c0b4f, with librosa 0.11) within {REFERENCE_ERROR:g} of full scale"
)

_CLIPPED_RUN = 3
_UNSTATED_BYTES = (0, 0xFFFFFFFF)
_FLOAT_SCALE = {"PCM_U8": 1 - 2**-7, "PCM_S8": 1 - 2**-7}
_FULL_SCALE = 1 - 2**-15
_OGG_TAIL_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class Header:
    """The header of a file: number of frames (each has one value per channel), rate, channels and format."""

    frames: int
    rate_hz: int
    channels: int
    subtype: str

    @property
    def duration_s(self) -> float:
        """Return the length in seconds."""
        return self.frames / self.rate_hz


def versions() -> dict[str, str]:
    """Return versions of the decoder and the resampler. Raises MissingExtraError if one is not installed."""
    soundfile, soxr = _imported("soundfile"), _imported("soxr")
    return {
        "soundfile": str(soundfile.__version__), "libsndfile": str(soundfile.__libsndfile_version__),
        "soxr": str(soxr.__version__),
    }  # fmt: skip


def probe(path: Path) -> Header:
    """Return the header of an audio file, without decoding it.

    Raises DataError (field: the path) if the file is missing, unreadable, empty, or (wav, ogg) shorter than its header
    states. Raises MissingExtraError if soundfile is not installed.
    """
    soundfile = _imported("soundfile")
    try:
        with path.open("rb") as file:
            _check_container(path, file)
        info = soundfile.info(str(path))
    except (OSError, soundfile.SoundFileError) as exc:
        raise _unreadable(path, exc) from exc
    if info.frames <= 0 or info.samplerate <= 0:
        raise unusable(path, "is empty", info.frames, "Remove it from the list or record it again")
    return Header(int(info.frames), int(info.samplerate), int(info.channels), str(info.subtype))


def read_native(path: Path, *, clipped_limit: float = CLIPPED_LIMIT) -> NDArray[np.float32]:
    """Decode and check one file: mono float32 at the file's own rate, shape (frames,), full scale 1.

    Each channel is checked, and then all are averaged. Raises DataError for a file that ``probe`` refuses or the
    decoder does not finish, for NaN or infinity, and for a channel whose ``clipped_share`` is above ``clipped_limit``
    (a limit of 1.0 accepts any clipping).
    """
    header, soundfile = probe(path), _imported("soundfile")
    try:
        with soundfile.SoundFile(str(path)) as file:
            frames: NDArray[np.float32] = file.read(dtype="float32", always_2d=True)
    except (OSError, soundfile.SoundFileError) as exc:
        raise _unreadable(path, exc) from exc
    if len(frames) < header.frames:
        raise _truncated(path, f"{len(frames)} of {header.frames} frames")
    bad = len(frames) - int(np.count_nonzero(np.isfinite(frames).all(axis=1)))
    if bad:
        raise unusable(path, f"has NaN or infinity in {bad} frames", bad, "Export it again, or leave it out")
    full_scale = _FLOAT_SCALE.get(header.subtype, _FULL_SCALE)
    share = max(clipped_share(channel, full_scale) for channel in frames.T)
    if share > clipped_limit:
        remedy = f"Record it at a lower gain, leave it out, or allow it with clipped_limit >= {share:.4f}"
        raise unusable(path, f"is clipped in {share:.2%} of its samples", share, remedy)
    return np.asarray(frames.mean(axis=1), dtype=np.float32)


def read_audio(path: Path, rate_hz: float, *, clipped_limit: float = CLIPPED_LIMIT) -> NDArray[np.float32]:
    """Return ``read_native`` resampled to ``rate_hz``: mono float32, shape (about duration * rate_hz,).

    If the file is close to full scale, the resampled values may be slightly above it.
    """
    mono = read_native(path, clipped_limit=clipped_limit)
    native_hz = probe(path).rate_hz
    if native_hz == rate_hz:
        return mono
    resampled: NDArray[np.float32] = _imported("soxr").resample(mono, native_hz, rate_hz, quality="HQ")
    return np.asarray(resampled, dtype=np.float32)


def clipped_share(channel: NDArray[np.floating[Any]], full_scale: float = _FULL_SCALE) -> float:
    """Return the share of samples, 0 to 1, in runs of three or more whose magnitude is at least ``full_scale``.

    ``channel`` has shape (n,). A single sample at full scale is a peak. Three in a row are clipped, because real sound
    at audio rates does not stay at the converter's last code.
    """
    if not len(channel):
        return 0.0
    hot = np.zeros(len(channel) + 2, dtype=np.int8)
    hot[1:-1] = np.abs(channel) >= full_scale
    edges = np.diff(hot)
    runs = np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)
    return float(runs[runs >= _CLIPPED_RUN].sum() / len(channel))


def _check_container(path: Path, file: BinaryIO) -> None:
    # The decoder accepts a truncated wav or ogg without an error, so the stated length is checked here.
    magic = file.read(12)
    if not magic:
        raise unusable(path, "is empty", 0, "Remove it from the list or copy it again")
    if magic[:4] in (b"RIFF", b"RIFX", b"RF64") and magic[8:] == b"WAVE":
        _check_riff(path, file, magic[:4])
    elif magic[:4] == b"OggS":
        _check_ogg(path, file)


def _check_riff(path: Path, file: BinaryIO, kind: bytes) -> None:
    order, size = (">" if kind == b"RIFX" else "<"), path.stat().st_size
    long_bytes: int | None = None
    while len(head := file.read(8)) == 8:
        name, promised = struct.unpack(f"{order}4sI", head)
        start = file.tell()
        if name == b"ds64":
            long_bytes = struct.unpack("<8xQ", file.read(16))[0] if promised >= 16 else None
        if name == b"data":
            if promised in _UNSTATED_BYTES:
                promised = long_bytes or 0
            if promised > size - start:
                raise _truncated(path, f"{size - start} of {promised} data bytes")
            return
        file.seek(start + promised + promised % 2)
    raise _truncated(path, "a header without data")


def _check_ogg(path: Path, file: BinaryIO) -> None:
    file.seek(max(0, path.stat().st_size - _OGG_TAIL_BYTES))
    tail = file.read()
    at = tail.rfind(b"OggS")
    while at >= 0:
        page = tail[at:]
        if len(page) >= 27 and len(page) >= 27 + page[26]:
            length = 27 + page[26] + sum(page[27 : 27 + page[26]])
            # A match inside a page is accidental; only a page that ends with the file is valid.
            if length == len(page) and page[5] & 4:
                return
        at = tail.rfind(b"OggS", 0, at)
    raise _truncated(path, "no closing page")


def unusable(path: Path, what: str, value: object, remedy: str) -> DataError:
    """Return the error for a file that cannot be used because of ``what``."""
    return DataError(f"{path.name} {what}", field=str(path), value=value, remedy=remedy)


def _truncated(path: Path, held: str) -> DataError:
    return unusable(path, f"is truncated: it holds {held}", held, "Copy or download it again")


def _unreadable(path: Path, exc: Exception) -> DataError:
    remedy = "Give a wav, flac or ogg file that can be read" if path.is_file() else "Check the path"
    return unusable(path, f"cannot be read: {exc}", type(exc).__name__, remedy)


def _imported(package: str) -> Any:
    return imported(package, "reading audio files", "audio", field=package)
