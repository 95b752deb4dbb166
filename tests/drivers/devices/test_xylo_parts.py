"""The Xylo driver's parts: the network file, the encoder, the import of the vendor stack, and its front end."""

import importlib.metadata
import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivers.devices.xylo import rockpool_import
from drivers.devices.xylo.afe_model import AfeModel
from drivers.devices.xylo.device import open_device
from drivers.devices.xylo.networks.encoder import EncoderParams, encode
from drivers.devices.xylo.networks.network import FORMAT, SHIPPED, content_digest, load_network, write_network
from fixtures.bench.true_power import open_plant
from rig.errors import DataError, UsageError
from rig.types import Floats, Sample
from scenarios.workloads.asc.scenes import synthesize
from tests.support.paths import ROOT
from tests.support.processes import python
from tests.support.raised import raised
from tests.support.remote_workers import answer

RATE_HZ = 16000.0
needs_rockpool = pytest.mark.skipif(find_spec("rockpool") is None, reason="needs neurorig[xylo]")


# ---- the network file -----------------------------------------------------------------------


@pytest.mark.parametrize("alter", [
    lambda document: document["specification"]["threshold"].__setitem__(0, 1),
    lambda document: document.update(sha256="0" * 64),
    lambda document: document["training"].update(accuracy_test_xylosim=1.0),
])  # fmt: skip
def test_an_altered_network_is_refused(alter: Callable[[Any], object], tmp_path: Path) -> None:
    document = json.loads(SHIPPED.read_text())
    alter(document)
    (tmp_path / "altered.json").write_text(json.dumps(document))
    raised(DataError, load_network, tmp_path / "altered.json", says="altered")


@pytest.mark.parametrize("content", [
    None, "", "[1]", '{"format": "other"}', "[" * 5000, "9" * 5000, f'{{"format": "{FORMAT}", "layers": [NaN]}}',
])  # fmt: skip
def test_an_unreadable_network_is_refused(content: str | None, tmp_path: Path) -> None:
    path = tmp_path / "network.json"
    if content is not None:
        path.write_text(content)
    assert raised(DataError, load_network, path).field == "network"


def test_a_network_survives_writing_and_reading(tmp_path: Path) -> None:
    write_network(tmp_path / "copy.json", load_network())
    assert (tmp_path / "copy.json").read_bytes() == SHIPPED.read_bytes()


# ---- the encoder -----------------------------------------------------------------------------


@pytest.mark.parametrize("rate_hz", [8000.0, 11025.0, 16000.0, 22050.0, 48000.0])
def test_a_tone_lands_in_its_band(rate_hz: float) -> None:
    params = EncoderParams()
    edges = np.geomspace(params.low_hz, params.high_hz, params.channels + 1)
    tone_hz = float(np.sqrt(edges[9] * edges[10]))
    tone = np.sin(2 * np.pi * tone_hz * np.arange(round(rate_hz)) / rate_hz).astype(np.float32)
    events = encode(tone, rate_hz, params)
    assert (events.shape, events.dtype) == ((100, 16), np.int64)
    assert events[10:].sum(axis=0).argmax() == 9
    assert events[:, edges[:-1] >= 0.45 * rate_hz].sum() == 0


def test_events_are_bounded_causal_and_level_free() -> None:
    params, audio = EncoderParams(), synthesize("airport", 5000, 1.0, RATE_HZ)
    events = encode(audio, RATE_HZ, params)
    assert 0 <= events.min() <= events.max() <= 15
    assert np.array_equal(events, encode(audio, RATE_HZ, params))
    assert np.array_equal(events, encode(audio * 0.25, RATE_HZ, params))
    assert np.array_equal(events[:50], encode(audio[:8000], RATE_HZ, params))
    assert encode(np.zeros(16000, dtype=np.float32), RATE_HZ, params).sum() == 0
    assert encode(np.full(80, 0.1, dtype=np.float32), RATE_HZ, params).shape == (1, 16)
    shout = np.concatenate((audio * 1e4, audio * 1e-12))
    assert encode(shout, RATE_HZ, params).max() <= 15


# ---- what it imports -------------------------------------------------------------------------


def test_importing_the_driver_imports_no_vendor_stack() -> None:
    code = "import sys, drivers.devices.xylo.device, drivers.meters.xylo_monitor\n"
    code += "print([n for n in ('rockpool', 'samna', 'xylosim', 'scipy') if n in sys.modules])"
    assert python(code, cwd=ROOT).stdout.strip() == "[]"


@needs_rockpool
def test_the_stub_samna_never_runs(tmp_path: Path) -> None:
    """A samna like PyPI's, first on the path, leaves a trace if it is imported."""
    trace = tmp_path / "trace"
    for name, text in {
        "samna/__init__.py": f"open({str(trace)!r}, 'w').close()\n",
        "samna-0.0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: samna\nVersion: 0.0.1\n",
        "samna-0.0.1.dist-info/RECORD": "samna/__init__.py,,\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    code = f"import os, sys; sys.path.insert(0, {str(tmp_path)!r})\n"
    code += "os.environ.pop('PIP_NO_INDEX', None); finders = list(sys.meta_path)\n"
    code += "from drivers.devices.xylo import rockpool_import as r\n"
    code += "assert not r.has_real_samna(); r.load_xylo_audio2(); r.load_xylo_audio2()\n"
    code += "print('PIP_NO_INDEX' in os.environ, type(sys.modules['samna']).__name__, finders == sys.meta_path)"
    assert python(code, cwd=ROOT).stdout.strip() == "False _StandIn True"
    assert not trace.exists()


@needs_rockpool
def test_rockpool_imports_its_filters_and_plots_on_use() -> None:
    code = "import sys; from drivers.devices.xylo.rockpool_import import load_xylo_audio2; xylo = load_xylo_audio2()\n"
    code += "print([n for n in ('matplotlib', 'scipy.signal', 'scipy.interpolate') if n in sys.modules])\n"
    code += "import numpy, matplotlib, scipy.signal; matplotlib.use('agg'); from matplotlib import pyplot\n"
    code += "from rockpool import TSContinuous, TSEvent\n"
    code += "line = TSContinuous([0.0, 1.0], [0.0, 2.0], interp_kind='linear')\n"
    code += "TSEvent([0.1], [0], t_stop=1.0).plot(target=pyplot.gca())\n"
    code += "print(float(line(0.5)[0, 0]), len(pyplot.gca().collections))\n"
    code += "print(scipy.signal.butter(1, 0.5)[0].shape, xylo.front_end._butter_bandpass(0, 100, 200, 16000)[0].shape)"
    assert python(code, cwd=ROOT).stdout.splitlines() == ["[]", "1.0 1", "(2,) (5,)"]


def test_a_compiled_samna_is_the_real_one(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"samna": [Path("samna/__init__.py"), Path("samna/samna.cpython-311-x86_64-linux-gnu.so")]}
    monkeypatch.setattr(importlib.metadata, "files", files.__getitem__)
    assert rockpool_import.has_real_samna()


@pytest.mark.parametrize(("change", "what"), [
    (lambda d: d["specification"]["weights_in"]["blocks"][0]["values"].pop(), "weights_in do not hold each weight"),
    (lambda d: d["specification"]["weights_rec"]["blocks"].pop(), "blocks of weights_rec do not hold each weight"),
    (lambda d: d["specification"].pop("weights_out"), "'weights_out' is missing"),
    (lambda d: d["specification"]["weights_in"]["blocks"][0]["values"][0].__setitem__(0, math.nan),
     "it holds NaN or infinity"),
    (lambda d: d["specification"].update(aliases=[[1, 2], *([] for _ in range(188))]), "at most one alias"),
    (lambda d: d["specification"].update(aliases=[[189], *([] for _ in range(188))]), "is a hidden neuron too"),
    (lambda d: d["specification"].update(aliases=[]), "alias"),
    (lambda d: d["specification"]["weights_in"]["blocks"][0]["values"][0].__setitem__(0, 128), "not fit in 8 bits"),
    (lambda d: [weights.pop() for weights in d["float_weights"]], "float_weights of the connection"),
])  # fmt: skip
def test_missing_or_unfit_numbers_are_refused(change: Callable[[Any], object], what: str, tmp_path: Path) -> None:
    document = json.loads(SHIPPED.read_text())
    del document["sha256"]
    change(document)
    with suppress(ValueError):  # there is no digest of NaN
        document["sha256"] = content_digest(document)
    (tmp_path / "own.json").write_text(json.dumps(document))
    assert "rig network train" in raised(DataError, load_network, tmp_path / "own.json", says=what).remedy


# ---- the front end ---------------------------------------------------------------------------


def tone(hz: float, seconds: float = 0.1) -> Floats:
    return np.asarray(0.5 * np.sin(2.0 * np.pi * hz * np.arange(round(seconds * RATE_HZ)) / RATE_HZ))


@pytest.fixture(scope="module", name="afe")
def _afe() -> AfeModel:
    return AfeModel(EncoderParams(), 1)


@needs_rockpool
def test_events_depend_only_on_the_clip(afe: AfeModel) -> None:
    np.random.seed(5)
    expected = np.random.random(3)
    np.random.seed(5)
    first = afe.encode(tone(500.0), RATE_HZ)
    fresh = AfeModel(EncoderParams(), 1)
    fresh.encode(tone(900.0), RATE_HZ)

    assert np.array_equal(np.random.random(3), expected)
    assert np.array_equal(fresh.encode(tone(500.0), RATE_HZ), first)
    assert (first.shape, first.dtype) == ((10, 16), np.int64) and 0 < first.max() <= 15
    assert not np.array_equal(AfeModel(EncoderParams(), 2).encode(tone(500.0), RATE_HZ), first)
    low, high = (int(np.argmax(afe.encode(tone(hz), RATE_HZ).sum(axis=0))) for hz in (300.0, 2000.0))
    assert low < high, "a higher tone reaches a higher channel"


@needs_rockpool
def test_the_front_end_model_is_an_option() -> None:
    plant = open_plant()
    device = open_device(plant, simulate=True, afe_model="rockpool")
    reply = answer(device, Sample("tone", tone(500.0), "bus", rate_hz=RATE_HZ, duration_s=0.1))

    assert reply.spans[0].phase == "preprocess"
    assert device.info().details["afe_model"]["name"] == "Rockpool AFESim"
    raised(UsageError, open_device, plant, says="filter-bank, rockpool", simulate=True, afe_model="none")
    raised(DataError, AfeModel, replace(EncoderParams(), channels=12), 1, says="16 channels, and the network has 12")
