"""Cross-validation: clips of a folder are dealt to folds; each is measured once, after training on the others."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace

from rig.errors import unfit
from scenarios.workloads.asc.catalogue import Catalogue, Clip


def part_of(found: Catalogue, fold: str, split: str) -> Catalogue:
    """Return the clips of fold "K/N" for the split "test", and all others for "train".

    Clips of one ``Clip.origin`` stay together. Within each label, the origins are dealt in the order of their names, so
    that only the list determines the folds. Raises UsageError for a fold that cannot be made.
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
        raise unfit(
            "fold", fold, what, "Use fewer folds; the column source of labels.csv says which clips share an origin"
        )
    tested = {origin for origins in by_label.values() for origin in origins[own::folds]}
    clips = tuple(clip for clip in found.clips if (clip.origin in tested) is (split == "test"))
    return replace(found, clips=clips, details={**found.details, "fold": fold})
