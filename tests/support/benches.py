"""Bench files that are read without a problem, for tests of their content."""

from pathlib import Path

from rig.bench.bench_file import examine
from rig.bench.bench_file_fields import BenchFile


def open_bench(path: Path) -> BenchFile:
    """Return a bench file; raise its first problem if it has one."""
    bench, problems = examine(path)
    for problem in problems:
        raise problem.error
    return bench
