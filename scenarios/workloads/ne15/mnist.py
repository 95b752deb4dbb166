"""Read MNIST from the user's idx files, plain or gzip. ``MD5`` has the digests of the unpacked original files."""

import gzip
import hashlib
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rig.errors import DataError, reason

SIDE = 28
PIXELS = SIDE * SIDE
MD5 = {
    "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
}
_PREFIX = {"train": "train", "test": "t10k"}

Bytes = NDArray[np.uint8]


def has(folder: Path, split: str) -> bool:
    """Return whether a folder has the images of a split."""
    return any(path.is_file() for path in _candidates(folder, f"{_PREFIX[split]}-images-idx3-ubyte"))


def read_digits(folder: Path, split: str, verify: bool = True) -> tuple[Bytes, Bytes]:
    """Return images, shape (n, 784), and labels 0 to 9, shape (n,), of the split ``train`` or ``test``.

    With ``verify``, the MD5 digest is checked. Raises ``DataError`` for a file that is missing, truncated or altered.
    """
    prefix = _PREFIX[split]
    images = _read(folder, f"{prefix}-images-idx3-ubyte", (None, SIDE, SIDE), verify)
    labels = _read(folder, f"{prefix}-labels-idx1-ubyte", (len(images),), verify)
    if labels.max(initial=0) > 9:
        raise _unfit(folder / f"{prefix}-labels-idx1-ubyte", "labels", int(labels.max()), "a label is not a digit")
    return images.reshape(-1, PIXELS), labels


def _read(folder: Path, name: str, wanted: tuple[int | None, ...], verify: bool) -> Bytes:
    path = next((p for p in _candidates(folder, name) if p.is_file()), None)
    if path is None:
        raise _unfit(folder, "data", str(folder), f"there is no {name}, plain or .gz")
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise _unfit(path, "data", path.name, f"it cannot be read: {reason(error)}") from error
    start = 4 + 4 * len(wanted)
    if data[:4] != bytes((0, 0, 8, len(wanted))) or len(data) < start:
        raise _unfit(path, "magic", data[:4].hex(), f"it is no idx file of bytes in {len(wanted)} dimensions")
    shape = tuple(np.frombuffer(data[4:start], ">u4").tolist())
    if any(want is not None and want != found for want, found in zip(wanted, shape, strict=True)):
        raise _unfit(path, "shape", shape, f"its shape must be {wanted}")
    if len(data) - start != int(np.prod(shape)):
        raise _unfit(path, "size", len(data), f"its header promises {start + int(np.prod(shape))} bytes")
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if verify and found != MD5[name]:
        raise _unfit(path, "md5", found, f"MNIST's is {MD5[name]}")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def idx_file(data: Bytes) -> bytes:
    """Return an array of bytes in the idx format."""
    return bytes((0, 0, 8, data.ndim)) + np.array(data.shape, ">u4").tobytes() + data.tobytes()


def _candidates(folder: Path, name: str) -> list[Path]:
    return [folder / name, folder / f"{name}.gz"]


def _unfit(path: Path, field: str, value: object, why: str) -> DataError:
    remedy = "Give the folder of the original MNIST files (option data)"
    return DataError(f"{path} cannot be used: {why}", field=field, value=value, remedy=remedy)
