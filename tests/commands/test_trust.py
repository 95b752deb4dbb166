"""Code named by others' files runs only with --trust."""

import json
import os
import py_compile
import shutil
from pathlib import Path

import pytest

from drivers.links.worker_link import checked_host
from rig.bench.bench_file import request_of
from rig.commands.shell.main import main
from rig.errors import DataError, IntegrityError, Interrupted, SetupError, StoreError, UsageError
from rig.plugins import code_in
from rig.session.locks import locked, runtime_dir
from rig.sweep.dask import check_address
from rig.sweep.grid import Facts, Grid, GridSpec
from rig.sweep.sweep_folder import FILE, freeze
from tests.support.raised import Capture, Patch, raised

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes are POSIX")

EVIL = "import pathlib\npathlib.Path('ran').touch()\nfrom fixtures.bench.mock_device import open_device\n"
BENCH = '[devices.board]\ndriver = "evil.py:open_device"\n'


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NEURORIG_RUNTIME_DIR", str(tmp_path / "locks"))
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path


def sweep_of(folder: Path, spec: GridSpec, **more: str) -> Path:
    folder.mkdir()
    seeds, facts = {d: dict[str, int]() for d in spec.devices}, {d: Facts(False, ()) for d in spec.devices}
    freeze(folder, Grid(spec, spec.options | more, spec.vary, seeds, facts), ())
    return folder


def test_a_sweep_does_not_run_foreign_code(here: Path, capsys: Capture) -> None:
    folder = sweep_of(here / "sweep", GridSpec((f"{here}/evil.py:open_device",), simulate=True))
    assert main(["sweep", str(folder)]) == UsageError.exit_code
    assert "--trust" in capsys.readouterr().err
    assert not (here / "ran").exists()


@pytest.mark.parametrize("option", [
    "interpreter=/tmp/evil", "device.interpreter=/tmp/evil", "path=/tmp/evil", "nest_interpreter=/tmp/evil",
    "meter.visa_library=/tmp/evil@ivi", "play=sh /tmp/evil",
])  # fmt: skip
def test_a_program_option_counts_as_code(here: Path, option: str) -> None:
    assert code_in(("mock",), (option, "samples=4")) == [option]
    assert code_in(("mock",), ("network=evil.py:module", "label=a:b")) == ["evil.py:module"]
    key, _, value = option.partition("=")
    assert main(["sweep", str(sweep_of(here / "sweep", GridSpec(("mock",), vary={key: (value,)})))]) == 3


MINE = ("--device", "evil.py:open_device", "--simulate", "--option", "samples=2", "--option", "idle_s=0.1")


@pytest.fixture
def mine(here: Path) -> Path:
    """The user's own sweep, which names code by its path."""
    assert main(["sweep", *MINE, "--out", "sweep", "--jobs", "0"]) == 0
    (here / "ran").unlink()  # what is named on the command line is the user's own
    assert main(["sweep", str(here / "sweep"), "--jobs", "0"]) == 0
    return here / "sweep"


def test_a_changed_or_copied_sweep_needs_trust(mine: Path, here: Path, capsys: Capture) -> None:
    copy = Path(shutil.copytree(mine, here / "copy"))
    assert main(["sweep", str(copy), "--jobs", "0"]) == UsageError.exit_code
    said = capsys.readouterr().err
    assert f"{copy / FILE} names the code evil.py:open_device" in said
    assert "no one asked for this here" in said
    document = json.loads((mine / FILE).read_text())
    shutil.copytree(mine, here / "kept")
    shutil.rmtree(mine)
    sweep_of(mine, GridSpec(("evil.py:open_device",), simulate=True, options={"samples": "3"}))
    assert json.loads((mine / FILE).read_text()) != document
    assert main(["sweep", str(mine), "--jobs", "0"]) == UsageError.exit_code


@posix
def test_world_writable_code_of_an_own_sweep_is_refused(mine: Path, here: Path, capsys: Capture) -> None:
    (here / "evil.py").chmod(0o666)
    assert main(["sweep", str(mine), "--jobs", "0"]) == UsageError.exit_code
    assert "evil.py may be written by everyone" in capsys.readouterr().err


def test_a_foreign_sweep_runs_no_untyped_code(here: Path) -> None:
    """The sweep's file asks for what is typed here, and also names a program as its interpreter."""
    spec = GridSpec(("mock",), simulate=True, options={"samples": "2"})
    sweep_of(here / "sweep", spec, interpreter="/tmp/evil")
    words = ["--device", "mock", "--simulate", "--option", "samples=2"]
    assert main(["sweep", *words, "--out", "sweep", "--jobs", "0"]) in (UsageError.exit_code, IntegrityError.exit_code)


def test_without_a_cache_of_ones_own_trust_is_required_and_nothing_is_recorded(
    mine: Path, here: Path, monkeypatch: Patch
) -> None:
    (here / "file").touch()
    monkeypatch.setenv("NEURORIG_CACHE_DIR", str(here / "file"))
    new = ["--device", "mock", "--simulate", "--option", "samples=2", "--out", "new"]
    assert (main(["sweep", *new, "--jobs", "0"]), Path("new/pending").exists()) == (StoreError.exit_code, False)
    assert main(["sweep", str(mine), "--jobs", "0"]) == UsageError.exit_code


def refused_as_of_others(path: Path) -> bool:
    try:
        request_of(path, "board", (), ())
    except DataError as error:
        assert "others can write" in str(error) and "--trust" in error.remedy
        return True
    return False


only_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
STRANGER = 65534


@pytest.fixture
def bench(here: Path) -> Path:
    path = here / "bench.toml"
    path.write_text(BENCH)
    return path


@posix
@pytest.mark.parametrize("mode", [0o755, 0o700, 0o775, 0o1777, 0o777])
def test_code_in_a_world_writable_folder_is_refused(here: Path, bench: Path, mode: int) -> None:
    here.chmod(mode)
    assert refused_as_of_others(bench) is (mode == 0o777)
    assert (here / "ran").exists() is (mode != 0o777)


@posix
@pytest.mark.parametrize("file", ["bench.toml", "evil.py"])
def test_a_world_writable_bench_or_code_file_is_refused(here: Path, bench: Path, file: str) -> None:
    (here / file).chmod(0o666)
    assert refused_as_of_others(bench)
    assert not (here / "ran").exists()
    assert request_of(bench, "board", (), (), trust=True).device.endswith("evil.py:open_device")
    (here / file).chmod(0o644)
    assert not refused_as_of_others(bench)


@only_root
def test_an_own_bench_file_runs_no_foreign_code(here: Path, bench: Path) -> None:
    os.chown(here / "evil.py", STRANGER, STRANGER)
    assert refused_as_of_others(bench)


@only_root
@pytest.mark.parametrize(("mode", "group", "others"), [(0o755, 0, True), (0o2775, 0, False), (0o2775, STRANGER, True)])
def test_a_group_folder_counts_as_own(here: Path, bench: Path, mode: int, group: int, others: bool) -> None:
    os.chown(here, STRANGER, group)
    here.chmod(mode)
    assert refused_as_of_others(bench) is others


@posix
def test_code_is_found_beside_the_linked_bench_file(here: Path, bench: Path) -> None:
    lab = here / "lab"
    lab.mkdir()
    (lab / "evil.py").write_text(EVIL.replace("'ran'", "'ran of the lab'"))
    bench.rename(lab / "bench.toml")
    bench.symlink_to(lab / "bench.toml")
    assert not refused_as_of_others(bench)
    assert (here / "ran of the lab").exists()
    assert not (here / "ran").exists()


def test_the_resume_hint_keeps_trust(here: Path, monkeypatch: Patch, capsys: Capture) -> None:
    folder = sweep_of(here / "sweep", GridSpec((f"{here}/evil.py:open_device",), simulate=True))

    def stopped(folder: Path, *_: object) -> None:
        raise Interrupted("interrupted", remedy=f"Continue with: rig sweep {folder}")

    monkeypatch.setattr("rig.commands.sweep.work_off", stopped)
    assert main(["sweep", str(folder), "--trust"]) != 0
    assert f"rig sweep {folder} --trust" in capsys.readouterr().err


def test_stale_bytecode_is_not_run(here: Path, bench: Path) -> None:
    def written(text: str) -> str:
        (here / "evil.py").write_text(text)
        os.utime(here / "evil.py", ns=(10**18, 10**18))
        return str(here / "evil.py")

    py_compile.compile(written(EVIL.replace("'ran'", "'was'")))
    written(EVIL)
    request_of(bench, "board", (), ())
    assert (here / "ran").exists()
    assert not (here / "was").exists()


# ---- hosts, locks ---------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "user@-x", "", "a;b", "a\nb", "$(x)", "@a", "a@b@c"])
def test_a_host_like_an_ssh_option_is_refused(host: str) -> None:
    raised(UsageError, checked_host, host, says="not the name of a host")


@pytest.mark.parametrize("host", ["board", "user@board", "10.0.0.1", "me@host-1.lab.example", "fe80::1%eth0"])
def test_a_valid_host_is_accepted(host: str) -> None:
    assert checked_host(host) == host


@posix
def test_locks_lie_in_a_private_directory(here: Path, monkeypatch: Patch) -> None:
    assert runtime_dir().stat().st_mode & 0o777 == 0o700
    (here / "shared").mkdir()
    (here / "shared").chmod(0o777)
    (here / "link").symlink_to(here / "locks")
    for name, says in (("shared", "written by others"), ("link", "is a link")):
        monkeypatch.setenv("NEURORIG_RUNTIME_DIR", str(here / name))
        raised(SetupError, runtime_dir, says=says)


def test_a_lock_follows_no_link(here: Path) -> None:
    (here / "precious").write_text("mine")
    for name in ("a.lock", "b.lock.holder"):
        (here / name).symlink_to(here / "precious")
    for name in ("a.lock", "b.lock"):
        with pytest.raises(Exception, match="cannot lock"), locked(here / name, "it", wait=False):
            pass
    assert (here / "precious").read_text() == "mine"


@pytest.mark.parametrize("address", ["tcp://lab1:8786", "10.0.0.2:86", "lab1:8786", "tcp://127.0.0.1.evil:1", "ws://x"])
def test_a_scheduler_on_another_host_needs_tls(address: str) -> None:
    raised(UsageError, check_address, address, says="not reached by TLS", trust=False)
    check_address(address, trust=True)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:8786", "localhost:8786", "tcp://[::1]:8786", "tls://lab1:8786"])
def test_a_local_or_tls_scheduler_is_accepted(address: str) -> None:
    check_address(address, trust=False)
