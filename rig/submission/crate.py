"""``ro-crate-metadata.json``: what a submission holds, in the words of RO-Crate 1.1, for archives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from rig.recording.submission import Submission

FILE = "ro-crate-metadata.json"


def crate(document: Submission, files: Iterable[str]) -> bytes:
    """Return the metadata of a submission; ``files`` are those at its root."""
    about = document.about
    folders = [folder for row in document.configurations for folder in row.sessions]
    rig = {"@id": "#neurorig", "@type": "SoftwareApplication", "name": "neurorig", "version": document.rig_version}
    root: dict[str, Any] = {
        "@id": "./",
        "@type": "Dataset",
        "name": about.title or document.name,
        "description": f"Submission of {len(document.configurations)} configurations by neurorig",
        "datePublished": about.date,
        "license": about.licence,
        "author": {"@id": "#submitter"} if about.organization else "",
        "hasPart": [{"@id": name} for name in (*files, *(f"{folder}/" for folder in folders))],
    }
    actions = [
        {
            "@id": f"#configuration-{k}", "@type": "CreateAction", "name": row.name, "instrument": {"@id": "#neurorig"},
            "result": [{"@id": f"{folder}/"} for folder in row.sessions],
        }
        for k, row in enumerate(document.configurations, 1)
    ]  # fmt: skip
    graph = [
        {
            "@id": FILE, "@type": "CreativeWork", "about": {"@id": "./"},
            "conformsTo": {"@id": "https://w3id.org/ro/crate/1.1"},
        },
        {key: value for key, value in root.items() if value},
        *({"@id": name, "@type": "File", "name": name} for name in files),
        *({"@id": f"{folder}/", "@type": "Dataset", "name": folder} for folder in folders),
        rig,
        *([{"@id": "#submitter", "@type": "Organization", "name": about.organization}] if about.organization else []),
        *actions,
    ]  # fmt: skip
    return json.dumps({"@context": "https://w3id.org/ro/crate/1.1/context", "@graph": graph}, indent=1).encode() + b"\n"
