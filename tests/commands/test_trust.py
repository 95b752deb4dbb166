"""Code that a file of others names runs only with --trust."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from drivers.links.remote_start import checked_host
from rig.bench.bench_file import request_of
from rig.commands.main import main
from rig.errors import DataError, SetupError, UsageError
from rig.plugins import code_in
from rig.session.locks import locked, runtime_dir
from rig.sweep.dask import check_address
from rig.sweep.grid import Facts, Grid, GridSpec
from rig.sweep.store import FILE, freeze

pytestmark = pytest.mark.usefixtures("no_pictures")

EVIL = "import pathlib\npathlib.Path('ran').touch()\nfrom fixtures.bench.mock_device import open_device\n"
BENCH = '[devices.board]\ndriver = "evil.py:open_device"\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURORIG_RUNTIME_DIR", str(tmp_path / "locks"))
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path


def sweep_of(folder: Path, spec: GridSpec) -> Path:
    folder.mkdir()
    freeze(
        folder,
        Grid(spec, spec.options, spec.vary, {d: {} for d in spec.devices}, {d: Facts(False, ()) for d in spec.devices}),
        (),
    )
    return folder


def test_a_sweep_that_names_code_does_not_run_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = sweep_of(here / "sweep", GridSpec((f"{here}/evil.py:open_device",), simulate=True))
    assert main(["sweep", str(folder)]) == UsageError.exit_code
    assert "--trust" in capsys.readouterr().err
    assert not (here / "ran").exists()


@pytest.mark.parametrize("option", ["interpreter=/tmp/evil", "device.interpreter=/tmp/evil", "path=/tmp/evil"])
def test_an_option_that_names_a_program_counts_as_code(here: Path, option: str) -> None:
    assert code_in(("mock",), (option, "samples=4")) == [option]
    key, _, value = option.partition("=")
    assert main(["sweep", str(sweep_of(here / "sweep", GridSpec(("mock",), vary={key: (value,)})))]) == 3


def test_a_sweep_named_on_the_command_line_is_the_users_own(here: Path) -> None:
    words = ["--device", "evil.py:open_device", "--simulate", "--option", "samples=2", "--option", "idle_s=0.1"]
    assert main(["sweep", *words, "--out", "sweep", "--jobs", "0"]) == 0
    assert (here / "ran").exists()
    assert main(["sweep", "sweep", "--jobs", "0"]) == UsageError.exit_code
    assert main(["sweep", "sweep", "--jobs", "0", "--trust"]) == 0
    assert json.loads((here / "sweep" / FILE).read_text())


@pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX")
def test_a_bench_file_that_everyone_may_write_runs_no_code(here: Path) -> None:
    path = here / "bench.toml"
    path.write_text(BENCH)
    path.chmod(0o666)
    with pytest.raises(DataError, match="others can write") as caught:
        request_of(path, "board", (), ())
    assert "--trust" in caught.value.remedy
    assert not (here / "ran").exists()
    assert request_of(path, "board", (), (), trust=True).device.endswith("evil.py:open_device")
    path.chmod(0o644)
    assert request_of(path, "board", (), ()).device.endswith("evil.py:open_device")


# ---- hosts, locks ---------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "user@-x", "", "a;b", "a\nb", "$(x)", "@a", "a@b@c"])
def test_a_host_that_ssh_would_take_for_an_option_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match="not the name of a host"):
        checked_host(host)


@pytest.mark.parametrize("host", ["board", "user@board", "10.0.0.1", "me@host-1.lab.example", "fe80::1%eth0"])
def test_a_host_as_ssh_takes_it_stays(host: str) -> None:
    assert checked_host(host) == host


@pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX")
def test_locks_lie_in_a_directory_of_ones_own(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert runtime_dir().stat().st_mode & 0o777 == 0o700
    (here / "shared").mkdir()
    (here / "shared").chmod(0o777)
    (here / "link").symlink_to(here / "locks")
    for name, says in (("shared", "written by others"), ("link", "is a link")):
        monkeypatch.setenv("NEURORIG_RUNTIME_DIR", str(here / name))
        with pytest.raises(SetupError, match=says):
            runtime_dir()


def test_a_lock_follows_no_link(here: Path) -> None:
    (here / "precious").write_text("mine")
    for name in ("a.lock", "b.lock.holder"):
        (here / name).symlink_to(here / "precious")
    for name in ("a.lock", "b.lock"):
        with pytest.raises(Exception, match="cannot lock"), locked(here / name, "it", wait=False):
            pass
    assert (here / "precious").read_text() == "mine"


@pytest.mark.parametrize(
    "address", ["tcp://lab1:8786", "10.0.0.2:8786", "lab1:8786", "tcp://127.0.0.1.evil:1", "ws://x"]
)
def test_a_scheduler_on_another_host_needs_tls(address: str) -> None:
    with pytest.raises(UsageError, match="not reached by TLS"):
        check_address(address, trust=False)
    check_address(address, trust=True)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "localhost:8786", "tcp://[::1]:8786", "tls://lab1:8786"])
def test_a_scheduler_on_this_host_or_with_tls_is_taken(address: str) -> None:
    check_address(address, trust=False)
