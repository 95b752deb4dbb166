"""The wheel works with nothing else installed, and reports another project that replaces its packages.

A wheel is built once and unpacked into an environment that holds only its declared dependencies and pytest. This
takes some 20 s; nothing else would notice a file missing in the wheel or an undeclared dependency.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from rig.errors import DISTRIBUTION, SetupError
from tests.support.paths import ROOT

PACKAGES = ("rig", "drivers", "scenarios", "reports", "fixtures")
SHORT = ("--quiet", "--option", "samples=8", "--option", "audio_hz=1000", "--mode", "together")


def declared(name: str, known: set[str]) -> Iterator[str]:
    """Return the declared dependencies of a distribution, and theirs."""
    for text in distribution(name).requires or ():
        needed = Requirement(text)
        applies = needed.marker is None or needed.marker.evaluate({"extra": ""})
        if applies and needed.name.lower() not in known:
            known.add(needed.name.lower())
            yield needed.name
            yield from declared(needed.name, known)


def link_into(site: Path, name: str) -> None:
    """Put an installed distribution into another environment, without a copy."""
    found = distribution(name)
    for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(found.locate_file(top))))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel, what it declares, and pytest."""
    folder = tmp_path_factory.mktemp("wheel")
    source, venv = folder / "source", folder / "venv"
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", str(folder), str(source)], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (wheel,) = folder.glob("*.whl")
    into = ["--python", str(venv / "bin" / "python"), "install", "--no-deps", "--no-compile"]
    subprocess.run([*pip, *into, str(wheel)], check=True)
    for name in (*declared(DISTRIBUTION, set()), "pytest", *declared("pytest", set())):
        link_into(site_of(venv), name)
    return venv


def site_of(venv: Path) -> Path:
    return next(venv.glob("lib/python*/site-packages"))


def rig(venv: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command in a folder without the sources."""
    known = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    known |= {"PATH": f"{venv / 'bin'}:/usr/bin:/bin", "OPENBLAS_NUM_THREADS": "1"}
    command = [str(venv / "bin" / "rig"), *words]
    return subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, check=False)


def put_into(site: Path, package: str) -> None:
    """Install another's distribution that owns a package of this name and overwrites its ``__init__.py``."""
    (site / package).mkdir(parents=True, exist_ok=True)
    (site / package / "__init__.py").write_text("")
    info = site / f"{package}-4.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 4.2\n")
    (info / "RECORD").write_text(f"{package}/__init__.py,,\n")


def test_the_wheel_works_with_its_declared_dependencies(environment: Path, tmp_path: Path) -> None:
    assert rig(environment, tmp_path, "--version").stdout.startswith("rig ")
    measured = rig(environment, tmp_path, "measure", "--device", "mock", *SHORT, "--allow-invalid", "--out", "run")
    assert (measured.returncode, measured.stderr) == (0, "")
    assert (tmp_path / "run" / "derived" / "report.html").is_file()
    audited = rig(environment, tmp_path, "audit", "run")
    assert "claims were derived again" in audited.stdout, audited.stderr
    assert "Traceback" not in audited.stderr


@pytest.mark.real_time
@pytest.mark.parametrize("packages", [False, True], ids=["folders", "packages"])
def test_an_own_repository_is_tested_with_the_plug_in(environment: Path, tmp_path: Path, packages: bool) -> None:
    """The repository has its own folders ``drivers`` and ``fixtures``."""
    own = shutil.copytree(ROOT / "examples" / "own_repository", tmp_path / "own")
    for name in ("drivers", "fixtures") if packages else ():
        (own / name / "__init__.py").touch()
    command = [str(environment / "bin" / "python"), "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider"]  # as pytest
    known = {"HOME": str(tmp_path), "PATH": f"{environment / 'bin'}:/usr/bin:/bin"}

    run = subprocess.run(command, cwd=own, env=known, capture_output=True, text=True, check=False)

    assert "3 passed" in run.stdout, run.stdout + run.stderr


def test_an_overwritten_package_is_named(environment: Path, tmp_path: Path) -> None:
    """The last test of this file, because it damages the environment."""
    put_into(site_of(environment), "rig")

    for command in (("--version",), ("measure", "--device", "mock")):
        run = rig(environment, tmp_path, *command)
        assert run.returncode == SetupError.exit_code
        assert "the package rig of neurorig was overwritten by rig" in run.stderr
        assert "an environment of its own" in run.stderr
