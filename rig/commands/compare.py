"""``rig compare``: show runs, sessions or submissions side by side."""

import argparse
from pathlib import Path

from rig.errors import NotDecidedError, WorseError
from rig.terminal import answer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "path", nargs="+", type=Path, metavar="PATH",
        help="a run, a session, a folder with a run for each fold, a submission, or a name below runs/; the first is "
        "the reference",
    )  # fmt: skip
    add(
        "--fail-if", action="append", default=[], metavar="LIMIT",
        help="exit with 34 if a figure is worse than this, such as 'energy_per_inference_j > +5%%', and with 35 if "
        "that is not decided; may be repeated",
    )  # fmt: skip
    add("--verbose", action="store_true", help="show every figure, and all that differs")


def run(args: argparse.Namespace) -> int:
    """Print the differences; return the worst exit code of ``--fail-if``.

    Raises a ``RigError`` for recordings that cannot be read or compared.
    """
    from rig.comparing.compare import compare
    from rig.comparing.gate import judged, limit_of
    from rig.plugins import load
    from rig.session.find_recordings import meant

    limits = [limit_of(text) for text in args.fail_if]
    found = compare([meant(path) for path in args.path])
    gates = [[judged(comparison, limit) for limit in limits] for comparison in found]
    if args.json:
        documents = [c.to_json() | {"gates": [j.to_json() for j in g]} for c, g in zip(found, gates, strict=True)]
        answer(documents)
    else:
        load("reports", "comparison")(found, gates, verbose=args.verbose)
    outcomes = {one.outcome for gate in gates for one in gate}
    codes = {"worse": WorseError.exit_code, "not decided": NotDecidedError.exit_code}
    return next((code for outcome, code in codes.items() if outcome in outcomes), 0)
