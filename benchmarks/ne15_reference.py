"""The network of NE15-MNIST, simulated a second time from its equations, and compared with NEST's answers.

    python -m benchmarks.ne15_reference --data mnist --subclasses 10 --run runs/nest

The network learns from the test images outside one of five folds, and is then tested on this fold. ``--out``
writes the network to a file that devices accept. ``--run`` compares with a recording of the device ``nest`` on the same
fold, with streams of seed 0. Prints one JSON line last. Needs numba (extra qubo).
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.command_line import parser_of
from drivers.devices.pynn.description import NetworkFile, write_network
from drivers.devices.pynn.ne15 import NEURON, PIXELS, RELAY_NA, STDP, TEACHING_REFRACTORY_MS
from drivers.devices.pynn.ne15_command import Course, taught
from rig.analysis.result.proportion import proportion
from rig.recording.reader import open_run
from rig.types import Sample
from scenarios.workloads.ne15.digit_stream import Events
from scenarios.workloads.ne15.workload import open_workload

FOLDS = 5
THRESHOLD_MV, RESET_MV = NEURON["v_thresh"] - NEURON["v_rest"], NEURON["v_reset"] - NEURON["v_rest"]
DECAY, CURRENT_DECAY = math.exp(-1.0 / NEURON["tau_m"]), math.exp(-1.0 / NEURON["tau_syn_E"])
LIFT_MV = (DECAY - CURRENT_DECAY) / (NEURON["cm"] * (1.0 / NEURON["tau_syn_E"] - 1.0 / NEURON["tau_m"]))
"""The potential that 1 nA of synaptic current adds in a step of 1 ms, by the exact solution of the two equations."""
NO_CURRENT_NA = 1e-12
"""If a relay's current is at most this, its steps up to the next event are computed at once."""


class Answer(NamedTuple):
    """The network's answer to a sample; the latency is -1 if no decision neuron fires."""

    right: bool
    label: str | None
    latency_ms: int
    relayed: int
    spikes: int
    events: int


def relays(steps: Any, pixels: Any, end: int, rest_steps: int) -> Any:
    """Return steps and pixels of the spikes of the relay neurons, in order of the steps."""
    order = np.lexsort((steps, pixels))
    at, relay = relayed(steps[order], np.searchsorted(pixels[order], np.arange(PIXELS + 1)), end, rest_steps)
    order = np.lexsort((relay, at))
    return at[order], relay[order]


@njit(cache=True)
def relayed(steps: Any, starts: Any, end: int, rest_steps: int) -> Any:
    """Do the same as ``relays`` for events sorted by pixel; the events of pixel p begin at ``steps[starts[p]]``."""
    fired_at, fired = [0][:0], [0][:0]
    for p in range(PIXELS):
        v, i, rest, t, k = 0.0, 0.0, 0, 0, starts[p]
        while t < end and (k < starts[p + 1] or i > NO_CURRENT_NA):
            if i <= NO_CURRENT_NA and rest == 0 and steps[k] > t:
                v, i, t = v * DECAY ** (steps[k] - t), 0.0, steps[k]
            t += 1
            if rest > 0:
                rest -= 1
            else:
                v = v * DECAY + i * LIFT_MV
            i *= CURRENT_DECAY
            while k < starts[p + 1] and steps[k] < t:
                i += RELAY_NA
                k += 1
            if v >= THRESHOLD_MV:
                v, rest = RESET_MV, rest_steps
                fired_at.append(t)
                fired.append(p)
    return np.array(fired_at), np.array(fired)


@njit(cache=True)
def decided(at: Any, relay: Any, weights: Any, end: int, rest_steps: int) -> Any:
    """Return each decision neuron's spike count, and the first spike's step or 0, for relay spikes sorted by step."""
    n = weights.shape[1]
    v, i, rest, counts = np.zeros(n), np.zeros(n), np.zeros(n, np.int64), np.zeros(n, np.int64)
    first, k = 0, 0
    for t in range(1, end + 1):
        for j in range(n):
            if rest[j] > 0:
                rest[j] -= 1
            else:
                v[j] = v[j] * DECAY + i[j] * LIFT_MV
            i[j] *= CURRENT_DECAY
        while k < len(at) and at[k] < t:
            i += weights[relay[k]]
            k += 1
        for j in range(n):
            if v[j] >= THRESHOLD_MV:
                v[j], rest[j] = RESET_MV, rest_steps
                counts[j] += 1
                first = first or t
    return counts, first


@njit(cache=True)
def learnt(at: Any, relay: Any, teacher: Any, end: int, rest_steps: int, rule: Any) -> Any:
    """Return weights in nA after a lesson, from all pairs of spikes. STDP acts when a pre-synaptic spike arrives."""
    tau, rate, most = rule
    w, trace, last, seen = np.zeros(PIXELS), np.zeros(PIXELS), np.zeros(PIXELS), np.zeros(PIXELS, np.int64)
    posts = [0][:0]
    v, i, rest, k, q, read, post_trace, post_last = 0.0, 0.0, 0, 0, 0, 0, 0.0, 0
    for t in range(1, end + 1):
        if rest > 0:
            rest -= 1
        else:
            v = v * DECAY + i * LIFT_MV
        i *= CURRENT_DECAY
        while q < len(teacher) and teacher[q] < t:
            i += RELAY_NA
            q += 1
        while k < len(at) and at[k] < t:
            p, now = relay[k], at[k]
            while read < len(posts) and posts[read] < now - 1:  # a spike of 1 ms ago has not reached the synapse yet
                post_trace = post_trace * math.exp((post_last - posts[read]) / tau) + 1.0
                post_last = posts[read]
                read += 1
            while seen[p] < len(posts) and posts[seen[p]] <= now - 1:
                pre = trace[p] * math.exp((last[p] - posts[seen[p]] - 1) / tau)
                w[p] = min(w[p] + rate * (most - w[p]) * pre, most)
                seen[p] += 1
            w[p] = max(w[p] - rate * w[p] * post_trace * math.exp((post_last - now + 1) / tau), 0.0)
            i += w[p]
            trace[p] = trace[p] * math.exp((last[p] - now) / tau) + 1.0
            last[p] = now
            k += 1
        if v >= THRESHOLD_MV:
            v, rest = RESET_MV, rest_steps
            posts.append(t)
    return w


def template(stimulus: Events) -> NDArray[np.float64]:
    """Return the weights after one lesson, shape (784,)."""
    steps, addresses = on_grid(stimulus)
    told = addresses == PIXELS
    end, rest = int(steps[-1]) + 8, int(TEACHING_REFRACTORY_MS)
    at, relay = relays(steps[~told], addresses[~told], end, rest)
    rule = (STDP.tau_plus, STDP.A_plus, STDP.w_max)
    return np.asarray(learnt(at, relay, steps[told], end, rest, rule))


def shown(stream: Events, weights: NDArray[np.float64], seconds: float) -> tuple[NDArray[np.int64], int, int]:
    """Return each decision neuron's spike count, the latency in steps (-1: none), and all relays' spike count."""
    steps, addresses = on_grid(stream)
    end, rest = round(1000 * seconds), int(NEURON["tau_refrac"])
    at, relay = relays(steps, addresses, end, rest)
    counts, first = decided(at, relay, weights, end, rest)
    return counts, first - int(steps.min()) if first else -1, len(at)


def on_grid(events: Events) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return steps of 1 ms and addresses, in order of the steps."""
    steps = np.ceil(events[:, 0] / 1000).astype(np.int64)
    order = np.argsort(steps, kind="stable")
    return steps[order], events[order, 1]


def answered(network: NetworkFile, samples: Sequence[Sample]) -> dict[str, Answer]:
    """Return the answer to each sample, by id."""
    weights, told = network.arrays["learnt"] + network.arrays["inhibition"], network.description.labels
    found = {}
    for sample in samples:
        counts, latency, relayed = shown(sample.payload, weights, sample.duration_s)
        label = told[int(counts.argmax())] if counts.max() else None
        right = label == sample.label
        found[sample.id] = Answer(right, label, latency, relayed, int(counts.sum()), len(sample.payload))
    return found


def told(answers: Collection[Answer], neurons: int, seconds: float) -> dict[str, Any]:
    """Return the figures over all answers of a network with ``neurons`` decision neurons."""
    right = proportion(sum(each.right for each in answers), len(answers), "")
    latencies = np.array([each.latency_ms for each in answers if each.latency_ms >= 0])
    into = 2 * neurons
    return {
        "images": len(answers),
        "accuracy": right.value,
        "accuracy_interval": right.interval(),
        "latency_ms": latencies.mean(),
        "latency_half_width_ms": 1.96 * latencies.std() / math.sqrt(len(latencies)),
        "silent": len(answers) - len(latencies),
        "sopbs_ne15": np.mean([each.events * into + each.spikes for each in answers]) / seconds,
        "sopbs_counted": np.mean([each.events + each.relayed * into for each in answers]) / seconds,
    }


def main() -> None:
    parser = parser_of(__doc__, subclasses=1, scale=1.0, rate_hz=5000.0)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--fold", type=int, default=0, choices=range(FOLDS), help="the fold for the test; default: 0")
    parser.add_argument("--jobs", type=int, help="lessons at the same time; default: one for each core")
    parser.add_argument("--out", type=Path, help="write the network to a file that devices accept")
    parser.add_argument("--run", type=Path, help="a recording of the device nest")
    args = parser.parse_args()
    course = Course(args.data, args.subclasses, args.fold, FOLDS, scale=args.scale)
    with Pool(args.jobs) as pool:
        network = taught(course, partial(pool.imap, template), "benchmarks/ne15_reference.py")
    if args.out is not None:
        write_network(network, args.out)
    samples = open_workload(data=str(args.data), fold=args.fold, folds=FOLDS, rate_hz=args.rate_hz).samples
    found = answered(network, samples)
    said = told(found.values(), len(network.description.labels), samples[0].duration_s)
    print(json.dumps(said | ({} if args.run is None else compared(args.run, found))))


def compared(path: Path, found: Mapping[str, Answer]) -> dict[str, int]:
    """Return how many answers of a recording agree: in label and latency, in relay spikes, and in decision spikes."""
    rows = [row for row in open_run(path).replies.to_pylist() if row["output"] and not row["warmup"]]
    same = [0, 0, 0]
    for row in rows:
        theirs = json.loads(row["output"])
        ours = found[row["sample_id"]]
        silent = theirs["first_output_ms"] is None
        theirs_ms = -1 if silent else theirs["first_output_ms"] - theirs["first_input_ms"]
        same[0] += (theirs["label"], theirs_ms) == (ours.label, ours.latency_ms)
        same[1] += theirs["fired"]["input"] == ours.relayed
        same[2] += theirs["fired"]["decision"] == ours.spikes
    return dict(zip(("compared", "same_answer", "same_relays", "same_spikes"), (len(rows), *same), strict=True))


if __name__ == "__main__":
    main()
