"""Common parts of the benchmarks' command lines: options from their defaults, and the result as the last line."""

import json
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping
from typing import Any


def parser_of(about: str | None, **defaults: Any) -> ArgumentParser:
    """Return a parser with the description ``about`` and an option for each default, of the default's type."""
    parser = ArgumentParser(description=about, formatter_class=RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    return parser


def concluded(found: Mapping[str, Any], passed: bool) -> int:
    """Print the results as the last line, and return the exit code: 1 for a missed goal."""
    print(json.dumps(found))
    return 0 if passed else 1
