"""The message about a wrong invocation names the fault, its value and the remedy."""

import json
import shlex
from pathlib import Path

import pytest

from rig.commands.shell.main import main

ARGPARSE, USAGE, SETUP, DATA, STORE, RULES = 2, 3, 4, 6, 7, 33
WORKLOAD = "import rig\n\ndef open_workload():\n    return {}\n"
BOARD = "import rig\n\ndef open_board({}):\n    return rig.blocking({})\n"
METER = """import rig

class Meter:
    def info(self):
        rail = rig.Rail("core", conversion=rig.Conversion("A"), rate_hz=10.0)
        return rig.MeterInfo("ammeter", "simulator", rig.ClockInfo("host", 1e9), (rail,))

    def start(self): ...
    read = stop = close = start

def open_meter():
    return Meter()
"""
ENTRY = '[devices.board]\ndriver = "mock"\n'
SEES = f'{ENTRY}[meters.dmm]\ndriver = "mock"\nsees = "board"\n'
FILES = {
    "board.py": BOARD.format("*, gain: float = 1.0", "lambda sample: 'x'"),
    "slash.py": BOARD.format("port, /", "lambda sample: 'x'"),
    "left.py": BOARD.format("", 'lambda s: "left", rig.DeviceInfo("b", "hardware", details={"classes": ["left"]})'),
    "bare.py": "def run(sample):\n    return sample.label\n\ndef open_board(): ...\n",
    "torn.py": "def open_board(:\n",
    "meter.py": METER,
    "listed.py": WORKLOAD.format('[rig.Sample("a", [1.0])]'),
    "absent.py": WORKLOAD.format('rig.workload([rig.Sample("a", open("clips.npy").read())], name="w")'),
    "faulty.py": WORKLOAD.format('rig.workload([rig.Sample("a", [1.0])[0]], name="w")'),
    "good.py": WORKLOAD.format('rig.workload([rig.Sample("a", [1.0], label="x")], name="w")'),
    "none.toml": 'lab = "a lab"\n',
    "rail.toml": f'{SEES}rail = "nucleus"\n',
    "headless/labels.csv": "park-1.wav,park\n",
    "about.toml": 'availability = "soon"\n',
    "ok.txt": "0 0 -1\n0 1 2\n",
    "head.csv": "i,j,value\n0,0,-1\n0,1,2\n",
    "comma.txt": "0,0,-1\n0,1,2\n",
    "newer/session.json": '{"schema": "neurorig-session/9"}',
    "list/events.jsonl": "[]\n",
}
MOCK = "measure --device mock"
SERVER, OFFLINE, LIVE = (f"{MOCK} --scenario {name} --option" for name in ("server", "offline", "real-time"))
TABLE: list[tuple[str, int, tuple[str, ...]]] = [
    # ---- commands and arguments
    ("mesure --device mock", ARGPARSE, ("'mesure'", "Did you mean measure?")),
    ("workload exprt qubo-mis 10 0.1 1 --out f.npz", ARGPARSE, ("'exprt'", "Did you mean export?")),
    ("measure", ARGPARSE, ("--device", "is required", "`rig measure --help`")),
    (f"{MOCK} --trails 3", ARGPARSE, ("--trails", "Did you mean --trials")),
    (f"{MOCK} --trials three", ARGPARSE, ("--trials is 'three'", "Give a whole number")),
    (f"{MOCK} --amortise 5s", ARGPARSE, ("--amortise is '5s'", "Give a number without its unit")),
    (f"{MOCK} --idle_s 5", ARGPARSE, ("--idle_s is no argument of rig measure", "--option KEY=VALUE")),
    (f"{MOCK} --resume gone", ARGPARSE, ("--resume or --device", "not both")),
    ("--json report runs/good", ARGPARSE, ("--json must follow the command",)),
    (f"{MOCK} --device xylo", ARGPARSE, ("--device is given twice",)),
    ("frobnicate", ARGPARSE, ("unknown COMMAND 'frobnicate'. `rig --help` shows",)),
    ("report run --out ''", ARGPARSE, ("--out is empty",)),
    ("list mock xylo", ARGPARSE, ("xylo is no argument of rig list", "it takes NAME")),
    # ---- names
    ("measure --device xilo", USAGE, ("device 'xilo'", "Did you mean xylo?", "no bench file here", "`rig init`")),
    ("check --device board --bench none.toml", USAGE, ("'board'", "none.toml has no device yet", "[devices.NAME]")),
    ("check --device bord --bench rail.toml", USAGE, ("'bord'", "Did you mean board?", "rail.toml has board")),
    (f"{MOCK} --meter mok", USAGE, ("meter 'mok'", "Did you mean mock?")),
    (f"{MOCK} --scenario sever", USAGE, ("scenario 'sever'", "Did you mean server?")),
    (f"{MOCK} --rules mlperf", USAGE, ("'mlperf'", "Did you mean mlperf-6?")),
    (f"{MOCK} --mode powr", USAGE, ("mode 'powr'", "power")),
    ("list asd", USAGE, ("'asd'", "Did you mean asc?", "`rig list`")),
    ("doctor bord", USAGE, ("'bord'", "`rig list`")),
    # ---- files of one's own
    ("measure --device board.py", USAGE, ("'board.py'", "no function", "Write board.py:open_board")),
    ("measure --device bare.py", USAGE, ("'bare.py'", "bare.py:FUNCTION", "run, open_board")),
    ("measure --device gone.py", USAGE, ("gone.py is not a file", "path/to/file.py:function")),
    ("measure --device ok.txt", USAGE, ("is no Python file. Write path/to/file.py:function",)),
    ("measure --device headless:open_board", USAGE, ("is no Python file. Write path/to/file.py:function",)),
    (
        "measure --device gone.py:open_board",
        USAGE,
        ("gone.py is not a file", "path/to/file.py:function", "current directory"),
    ),
    ("measure --device board.py:open_bord", USAGE, ("'open_bord'", "Did you mean open_board?")),
    ("measure --device torn.py:open_board", SETUP, ("torn.py", "SyntaxError", "line 1")),
    ("measure --device slash.py:open_board --meter none", SETUP, ("positional-only", "port", "Remove the /")),
    ("measure --device bare.py:run --meter none", SETUP, ("parameter sample", "rig.blocking")),
    ("measure --device bare.py:open_board --meter none", SETUP, ("NoneType", "an object with info()")),
    ("measure --device board.py:open_board", SETUP, ("no meter on board", "--meter none")),
    ("measure --device board.py:open_board --meter none --rules slash.py:open_board", USAGE, ("Name a set of rules",)),
    ("measure --device board.py:open_board --meter none --simulate", USAGE, ("no simulator", "Leave --simulate out")),
    (f"{MOCK} --meter board.py:open_board", SETUP, ("not a meter", "DeviceInfo", "MeterInfo")),
    (f"{MOCK} --meter meter.py:open_meter", RULES, ("rail.unit", "A, None V", "a supply_v above zero")),
    # ---- options
    (f"{MOCK} --option samples", USAGE, ("'samples'", "key=value")),
    (f"{MOCK} --option samples=1.5", USAGE, ("samples is '1.5'", "Give a whole number", "the workload")),
    (f"{MOCK} --option idle_w=1.5mW", USAGE, ("idle_w is '1.5mW'", "Give a number without its unit")),
    (f"{MOCK} --option loudness=3", USAGE, ("`rig list NAME` shows the options of a device, meter, scenario or",)),
    (f"{MOCK} --meter xylo-monitor", SETUP, ("choose another meter",)),
    (f"{MOCK} --option sampels=3", USAGE, ("'sampels'", "Did you mean samples")),
    (f"{MOCK} --option meter.samples=3", USAGE, ("'meter.samples'", "workload.samples")),
    (f"{MOCK} --trials 1000000000", USAGE, ("trials", "1000000000")),
    (f"{MOCK} --trials 0", USAGE, ("0 trials", "Give 1 or more")),
    (f"{MOCK} --mode power --trials 2", USAGE, ("trials", "mode power", "Leave --mode out")),
    (f"{MOCK} --find-peak", USAGE, ("no rate", "--scenario server")),
    (f"{MOCK} --rules mlperf-6 --scenario real-time", USAGE, ("mlperf-6", "real-time", "--rules quick")),
    (f"{MOCK} --scenario server --option arrival_hz=0", USAGE, ("arrival_hz is 0.0", "above zero")),
    (f"{MOCK} --meter scpi-dmm", USAGE, ("Add --option supply_v=VOLTS",)),
    ("measure --device numpy-esn", SETUP, ("Name one with --meter (`rig list` shows them), or --meter none",)),
    ("measure --device mlperf-tiny --meter none", USAGE, ("port", "--option port=")),
    # ---- values of options
    (f"{MOCK} --option marks=perhaps", USAGE, ("option marks is 'perhaps'. Give true or false",)),
    (f"{MOCK} --option noise=nan", USAGE, ("option noise is 'nan'. Give a finite number",)),
    (f"{MOCK} --option fail=explode", USAGE, ("option fail is 'explode'. Give one of hang, raise",)),
    (f"{MOCK} --option idle_s=1e16", USAGE, ("option idle_s is 1e+16. Give 0 to 86400",)),
    (f"{MOCK} --option warmup=-1", USAGE, ("option warmup is -1. Give 0 to 1000000",)),
    (f"{MOCK} --option rate_hz=0", USAGE, ("option rate_hz is 0.0. Give 0.001 to",)),
    (f"{MOCK} --option inference_s=1e300", USAGE, ("option inference_s is 1e+300. Give 1e-09 to 1000000 s",)),
    (f"{MOCK} --option inference_w=-0.003", USAGE, ("option inference_w is -0.003. Give 0 W or more",)),
    (f"{MOCK} --option hit_rate=95", USAGE, ("option hit_rate is 95.0. Give 0 to 1",)),
    (f"{MOCK} --option seed=-1", USAGE, ("option seed is '-1'. Give a whole number of 0 or more",)),
    (f"{MOCK} --amortise 0", USAGE, ("seconds 0.0 is not a positive whole number",)),
    (f"{MOCK} --repeat 99999999999", USAGE, ("option repeat is 99999999999. Give 1 to 1e+09",)),
    (f"{MOCK} --mode together --compliance", USAGE, ("compliance is for a session, not for mode together",)),
    (f"{MOCK} --speed -1", USAGE, ("option speed is -1.0. Give 0 to 1000000",)),
    (f"{SERVER} duration_s=1e16", USAGE, ("option duration_s is 1e+16. Give 0 to 2592000",)),
    (f"{OFFLINE} idle_s=1e16", USAGE, ("option idle_s is 1e+16. Give 0 to 86400",)),
    (f"{LIVE} stream_s=0.9", USAGE, ("option stream_s is 0.9. Give 1 to 2592000 s",)),
    (f"{LIVE} queue=0", USAGE, ("option queue is 0. Give 1 or more",)),
    (f"{LIVE} workload.samples=1", USAGE, ("workload 1 label(s): too few for scenes to change",)),
    ("complexity --device mock", SETUP, ("device mock declares no network", "Complexity: rig measure --device mock")),
    ("complexity --device numpy-reaching", SETUP, ("needs a workload, but there is none", "Add --workload NAME")),
    ("measure --device cpu-sa --scenario optimization --meter none --option idle_s=1e16", USAGE, ("Give 0 to 86400",)),
    # ---- workloads
    (f"{MOCK} --workload listed.py:open_workload", SETUP, ("is a list", "rig.workload(samples, name=...)")),
    (f"{MOCK} --workload absent.py:open_workload", SETUP, ("FileNotFoundError", "Check that clips.npy is there")),
    (f"{MOCK} --workload faulty.py:open_workload", SETUP, ("TypeError", "faulty.py, line 4")),
    ("measure --device left.py:open_board --meter none --workload good.py:open_workload", RULES, ("found x", "left")),
    (f"{MOCK} --data gone", DATA, ("'gone'", "Give a folder")),
    (f"{MOCK} --data headless", DATA, ("labels.csv", "'park-1.wav,park'", "write filename,label")),
    ("measure --device numpy-esn --workload mackey-glass --data f", USAGE, ("takes no --data. Leave it out",)),
    (f"{MOCK} --workload qubo --data head.csv", DATA, ("head.csv:1: 'i j value' has no number. Leave a header out",)),
    (f"{MOCK} --workload qubo --data comma.txt", DATA, ("comma.txt:1: '0,0,-1' has no number", "with blanks")),
    ("measure --device xylo --simulate --option network=newer", DATA, ("it is a folder; name a file in it",)),
    ("import --format plain-csv --out i gone.csv", USAGE, ("gone.csv", "does not exist")),
    ("import --format plain-csv --out i --option colour=blue ok.txt", USAGE, ("'colour'", "`rig list plain-csv`")),
    ("import --format nothing --out i ok.txt", USAGE, ("'nothing'",)),
    ("import --format plain-csv --out i --option windows=newer ok.txt", DATA, ("a folder; name a file in it",)),
    ("workload export asc 10 0.1 1 --out f.npz", USAGE, ("asc", "such as qubo-mis")),
    ("workload export qubo-mis ten 0.1 1 --out f.npz", USAGE, ("'ten'", "NODES DENSITY SEED")),
    # ---- bench files
    (f"{MOCK} --bench gone.toml", USAGE, ("gone.toml", "`rig init --out gone.toml`")),
    (f"{MOCK} --bench headless", USAGE, ("headless, which is not a file. Name a file",)),
    ("check --device board --bench rail.toml", SETUP, ("rail.toml:3", "no rail nucleus", "core")),
    # ---- recordings
    (f"{MOCK} --out ok.txt/run", STORE, ("a part of its path is a file; name one in a folder",)),
    ("measure --resume newer", STORE, ("install the newest one",)),
    ("init --out about.toml", STORE, ("about.toml is there already", "--out")),
    ("measure --resume headless --trials 3", USAGE, ("--trials", "Leave it out")),
    ("report gone", STORE, ("gone does not exist", "Name the directory")),
    (f"{MOCK} --out headless", STORE, ("headless is no empty directory. Name a new directory with --out",)),
    ("report ok.txt", STORE, ("rig: ok.txt ",)),
    ("report list", 8, ("rig: list ",)),
    ("report headless", STORE, ("headless is not a run directory", "Name the directory")),
    ("compare gone gone", STORE, ("gone does not exist", "Name the directory")),
    ("audit gone", STORE, ("gone does not exist", "Name a run, a session")),
    ("audit newer --signers gone", USAGE, ("--signers names gone", "format of ssh-keygen")),
    ("audit headless", STORE, ("headless is not a run directory", "with its session.json")),
    ("compare gone", USAGE, ("nothing to compare",)),
    ("tail headless", STORE, ("nothing is recorded",)),
    ("measure --resume headless", STORE, ("not a session",)),
    ("submit gone --init", STORE, ("gone does not exist", "Name the directory")),
    ("reduce trace.f32 --windows spans.csv --rate 1e6", USAGE, ("`rig reduce` is gone", "rig import", "rig report")),
    ("sweep --device mock", USAGE, ("needs a directory", "a new one with --out", "`rig sweep DIR`")),
    ("sweep --vary inference_s=1 --out new", USAGE, ("needs a device",)),
    ("sweep gone.toml --out new", USAGE, ("gone.toml is not a directory",)),
    ("sweep headless --vary rate_hz=1", USAGE, ("--vary beside", "by commas only")),
    ("sweep headless --table", STORE, ("headless is not a sweep",)),
    ("sweep --device mock --out headless", STORE, ("headless is not a sweep",)),
]
ASTRAY = ("Traceback", "ulimit", "cable", "ask for the original", "examples/", "what was recorded")
"""Words that these messages must not contain."""


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files, most of them with one mistake."""
    folder = tmp_path_factory.mktemp("mistakes")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, "latin-1")
    return folder


@pytest.mark.parametrize(("line", "code", "says"), TABLE, ids=[line for line, _, _ in TABLE])
def test_a_wrong_invocation_names_fault_and_remedy(
    line: str, code: int, says: tuple[str, ...],
    mistakes: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(mistakes)
    try:
        ended = main([*shlex.split(line), "--json"])
    except SystemExit as left:
        ended = int(str(left.code))
    out, err = capsys.readouterr()

    assert ended == code, err
    assert not [text for text in says if text not in err], err
    assert not [text for text in ASTRAY if text in err], err
    assert not Path("runs").exists()
    said = json.loads(out)
    assert said["exit_code"] == code
    if code != ARGPARSE:
        assert said["field"], said
        named = said["remedy"].startswith(("Add --", "Name ")) or "--option" in said["remedy"]
        assert said["value"] is not None or named, said  # what is missing has no value
        assert said["remedy"] or "required is" in said["message"], said
