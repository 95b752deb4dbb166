"""The recordings that a folder lists, with their labels and whole seconds.

Two layouts: the TAU Urban Acoustic Scenes Mobile one (``meta.csv`` and ``evaluation_setup``), and
a plain folder with a ``labels.csv``. Headers are read here; samples are not decoded.
"""

import csv
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from rig.errors import DataError, unfit
from rig.terminal import say
from scenarios.workloads.asc.audio import probe, unusable
from scenarios.workloads.asc.scenes import CLASSES

TAU = "tau-urban-2020-mobile"
TAU_DEVICE = "a"
_TAU_REMEDY = "Use the data set's own files, unchanged"
_NAME_COLUMNS = ("filename", "file", "clip")


@dataclass(frozen=True, slots=True)
class Clip:
    """One clip: its name in the list, path, class, whole seconds, and the recording from which it was cut."""

    name: str
    path: Path
    label: str
    seconds: int
    origin: str


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Clips sorted by name, their possible classes, and details of the list."""

    source: str
    classes: tuple[str, ...]
    clips: tuple[Clip, ...]
    details: Mapping[str, Any] = field(default_factory=dict)


def read_folder(root: Path) -> Catalogue:
    """Return the clips that ``root/labels.csv`` lists.

    It has a column named filename, file or clip, and a column named label. A column ``source`` states which clips were
    cut from one recording; without it, each clip is a separate one. Audio lies in ``root`` or in ``root/audio``. Raises
    DataError for a list that cannot be used, for files that are listed and missing, and for clips shorter than a
    second.
    """
    listing = root / "labels.csv"
    rows = read_rows(listing, ",", ("label",), ("filename", "label"))
    column = next((c for c in _NAME_COLUMNS if c in rows[0]), None)
    if column is None:
        raise unusable(listing, "lacks the column filename", ",".join(rows[0]), _headed(rows[0], ("filename", "label")))
    labels = _by_name(listing, [(row[column], row["label"]) for row in rows])
    paths = {name: next(iter(_present(root, name)), None) for name in labels}
    missing = sorted(name for name, path in paths.items() if path is None)
    if missing:
        raise _missing(root, missing, len(labels))
    origins = {row[column]: row.get("source") or row[column] for row in rows}
    clips = tuple(_clip(name, path, labels[name], origins[name]) for name, path in sorted(paths.items()) if path)
    details: dict[str, Any] = {"listing_sha256": hashlib.sha256(listing.read_bytes()).hexdigest()}
    used = {path for path in paths.values() if path}
    heard = (p for p in (*root.glob("*"), *root.glob("audio/*")) if p.suffix.lower() in (".wav", ".flac", ".ogg"))
    if spare := sorted(p.name for p in heard if p not in used):
        noun, are = ("clips", "are") if len(spare) > 1 else ("clip", "is")
        say(f"rig: {len(spare)} {noun} {are} not in labels.csv and {are} not used, such as {spare[0]}", error=True)
        details["unlisted_clips"] = len(spare)
    return Catalogue("folder", tuple(sorted(set(labels.values()))), clips, details)


def part_of(found: Catalogue, fold: str, split: str) -> Catalogue:
    """Return the clips of fold "K/N" for the split "test", and all others for "train".

    All clips of one ``Clip.origin`` are in the same fold. The origins of each label are assigned to folds in turn, in
    the order of their names, so the folds depend only on the list. Raises UsageError for a fold that cannot be made.
    """
    match = re.fullmatch(r"([1-9]\d{0,3})/([1-9]\d{0,3})", fold)
    if match is None or not int(match[1]) <= int(match[2]) or int(match[2]) < 2:
        raise unfit("fold", fold, "is no fold", "Use K/N, such as 1/4 for the first of four")
    own, folds = int(match[1]) - 1, int(match[2])
    by_origin: dict[str, list[Clip]] = defaultdict(list)
    for clip in found.clips:
        by_origin[clip.origin].append(clip)
    by_label: dict[str, list[str]] = defaultdict(list)
    for origin in sorted(by_origin):
        by_label[by_origin[origin][0].label].append(origin)
    if poor := [label for label in found.classes if len(by_label[label]) < folds]:
        what = f"needs {folds} origins of each label, and {poor[0]} has {len(by_label[poor[0]])}"
        raise unfit("fold", fold, what, "Use fewer folds; column source of labels.csv says which clips share an origin")
    tested = {origin for origins in by_label.values() for origin in origins[own::folds]}
    clips = tuple(clip for clip in found.clips if (clip.origin in tested) is (split == "test"))
    return replace(found, clips=clips, details={**found.details, "fold": fold})


def read_tau(root: Path, split: str, whole_seconds: Mapping[str, int]) -> Catalogue:
    """Return the device-a clips of the four scenes in ``split``; labels come from the file names.

    ``train`` holds the clips in ``fold1_train.csv``, and ``test`` every other clip, whether or not
    ``fold1_evaluate.csv`` lists it. When every listed clip is on disk, the seconds of both splits
    must equal ``whole_seconds``. If a listed clip is missing, the catalogue is marked as partial. Raises DataError
    for lists that contradict themselves or each other, and if no clip of the split is on disk.
    """
    labels = _tau_meta(root / "meta.csv")
    setup = root / "evaluation_setup"
    train = _tau_names(setup / "fold1_train.csv")
    _check_folds(setup, train, _tau_names(setup / "fold1_evaluate.csv"), labels)
    members = {"train": sorted(train & labels.keys()), "test": sorted(labels.keys() - train)}
    paths = {name: path for name in labels for path in _present(root, name)}
    missing = sorted(labels.keys() - paths.keys())
    wanted = [name for name in members[split] if name in paths]
    if not wanted:
        raise _missing(root, sorted(set(members[split]) - paths.keys()), len(members[split]))
    # Counting reads every header, so for a partial set the headers of the other split are not read.
    names = wanted if missing else sorted(labels)
    clips = {name: _clip(name, paths[name], labels[name]) for name in names}
    if not missing:
        for part, expected in whole_seconds.items():
            if (found := sum(clips[n].seconds for n in members[part])) != expected:
                what = f"every clip that meta.csv lists is there, but {part} has {found} slices instead of {expected}"
                remedy = f"{_TAU_REMEDY}; a part of the audio may be absent, but meta.csv must list the whole set"
                raise DataError(what, field=str(root), value=found, remedy=remedy)
    details: dict[str, Any] = {
        "device": TAU_DEVICE, "partial": bool(missing), "listed_clips": len(members[split]), "found_clips": len(wanted),
        "found_slices": sum(clips[name].seconds for name in wanted), "whole_slices": whole_seconds[split],
    }  # fmt: skip
    return Catalogue(TAU, CLASSES, tuple(clips[name] for name in wanted), details)


def _tau_meta(path: Path) -> dict[str, str]:
    """Return the label of each used clip by its name; the label is part of the file name."""
    used = []
    for row in read_rows(path, "\t", ("filename", "scene_label")):
        parts = PurePosixPath(row["filename"]).stem.split("-")
        if len(parts) != 5:
            raise unusable(path, "has a name that is not scene-city-place-part-device", row["filename"], _TAU_REMEDY)
        if parts[0] != row["scene_label"] or parts[4] != row.get("source_label", parts[4]):
            raise unusable(path, "contradicts a file name", row["filename"], _TAU_REMEDY)
        if parts[4] == TAU_DEVICE and parts[0] in CLASSES:
            used.append((row["filename"], parts[0]))
    if not used:
        raise unusable(path, "lists no clip of device a in the four scenes", 0, _TAU_REMEDY)
    return _by_name(path, [(name.removeprefix("audio/"), label) for name, label in used])


def _tau_names(path: Path) -> set[str]:
    names = (row["filename"].removeprefix("audio/") for row in read_rows(path, "\t", ("filename",)))
    stems = ((name, PurePosixPath(name).stem.split("-")) for name in names)
    return {name for name, parts in stems if parts[-1] == TAU_DEVICE and parts[0] in CLASSES}


def _check_folds(setup: Path, train: set[str], evaluate: set[str], labels: Mapping[str, str]) -> None:
    both = sorted(train & evaluate)
    if both:
        raise unusable(setup, f"has {len(both)} clips in train and in evaluate, first {both[0]}", both[0], _TAU_REMEDY)
    stray = sorted((train | evaluate) - labels.keys())
    if stray:
        what = f"lists {len(stray)} clips that meta.csv does not, first {stray[0]}"
        raise unusable(setup, what, stray[0], _TAU_REMEDY)


def _headed(found: Iterable[str], wanted: Sequence[str]) -> str:
    return f"Its first line is {','.join(found)[:80]!r}; write {','.join(wanted)}"


def read_rows(path: Path, delimiter: str, columns: Sequence[str], wanted: Sequence[str] = ()) -> list[dict[str, str]]:
    """Return the rows of a table, each as stripped texts by column; missing cells of a short row are empty."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, delimiter=delimiter, restval="", restkey="")
            rows = [{k: v.strip() for k, v in row.items() if k and isinstance(v, str)} for row in reader]
            header = tuple(reader.fieldnames or ())
    except (OSError, UnicodeDecodeError, csv.Error) as exc:
        remedy = "Save it as UTF-8" if isinstance(exc, UnicodeDecodeError) else "Check the path and the file"
        raise unusable(path, f"cannot be read: {exc}", type(exc).__name__, remedy) from exc
    lacking = [column for column in columns if column not in header]
    if lacking:
        raise unusable(path, f"lacks the column {lacking[0]}", ",".join(header), _headed(header, wanted or columns))
    if not rows:
        raise unusable(path, "lists nothing", 0, "Add a row per audio file")
    return rows


def _by_name(listing: Path, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for name, label in pairs:
        pure = PurePosixPath(name)
        if not name or pure.is_absolute() or ".." in pure.parts:
            raise unusable(listing, "names a file outside its folder", name, "Use names relative to the folder")
        if name in labels:
            raise unusable(listing, f"lists {name} twice", name, "Keep one row per file")
        if not label:
            raise unusable(listing, f"has no label for {name}", name, "Give every file a label")
        labels[name] = label
    return labels


def _present(root: Path, name: str) -> list[Path]:
    return [path for path in (root / "audio" / name, root / name) if path.is_file()][:1]


def _clip(name: str, path: Path, label: str, origin: str = "") -> Clip:
    header = probe(path)
    seconds = header.frames // header.rate_hz
    if seconds < 1:
        raise unusable(path, f"is too short: {header.duration_s:.3f} s", header.duration_s, "Use 1 s or longer")
    return Clip(name, path, label, seconds, origin or name)


def _missing(root: Path, names: Sequence[str], listed: int) -> DataError:
    first = names[0] if names else "none listed"
    what = f"{len(names)} of {listed} listed audio files are missing, first {first}"
    remedy = "Put the audio beside its list, or in a folder named audio there"
    return DataError(what, field=str(root), value=first, remedy=remedy)
