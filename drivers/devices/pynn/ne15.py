"""The network of the NE15-MNIST case study: 784 relay neurons and N decision neurons for each digit.

Values that the chapter does not state come from the authors' scripts (qian-liu/benchmarking, code/case_study_1).
Synaptic time constants are 1 ms, and the weight from source to relay is 3 nA. STDP has an amplitude of 0.01, time
constants of 10 ms, and weights up to 1.3 nA. Each subclass is taught for 180 s, with a refractory time of 3 ms. After
learning, weights up to 0.1 nA are replaced by -1.5 nA.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans, vq

from drivers.devices.pynn.description import Description, NetworkFile, Population, Projection, Rule, checked
from rig.errors import unfit

PIXELS, DIGITS = 784, 10
NEURON = {
    "cm": 0.25, "tau_m": 20.0, "tau_refrac": 2.0, "tau_syn_E": 1.0, "tau_syn_I": 1.0, "v_reset": -70.0,
    "v_rest": -65.0, "v_thresh": -50.0, "i_offset": 0.0,
}  # fmt: skip
RELAY_NA, SURE_RELAY_NA = 3.0, 6.0
"""With ``SURE_RELAY_NA`` one spike fires a relay, for encodings in which a source spikes only once or a few times."""
TEACHING_S, TEACHER_HZ, TEACHING_HZ, TEACHING_REFRACTORY_MS = 180.0, 50.0, 2000.0, 3.0
STDP = Rule(tau_plus=10.0, tau_minus=10.0, A_plus=0.01, A_minus=0.01, w_min=0.0, w_max=1.3)
WEAK_NA, INHIBITION_NA = 0.1, -1.5

Images = NDArray[np.uint8]
Events = NDArray[np.int64]
Encode = Callable[[NDArray[np.uint8], float, float, np.random.Generator], Events]


def teaching(sources: int = PIXELS, relay_na: float = RELAY_NA) -> Description:
    """Return the network that learns one template: a teacher makes the decision neuron fire while images are shown."""
    return Description(
        name="ne15-teaching",
        populations=(
            Population("pixels", sources, True),
            Population("teacher", 1, True),
            Population("input", sources),
            Population("decision", 1),
        ),
        neuron=NEURON | {"tau_refrac": TEACHING_REFRACTORY_MS},
        projections=(
            Projection("pixels", "input", "one-to-one", relay_na),
            Projection("teacher", "decision", "one-to-one", RELAY_NA),
            Projection("input", "decision", "all-to-all", 0.0, plastic=True),
        ),
        output="decision",
        labels=("taught",),
        plasticity=STDP,
    )


def lesson(images: Images, encode: Encode, rng: np.random.Generator, lesson_s: float = TEACHING_S) -> Events:
    """Return the stimulus that teaches one template: the images in turn for ``lesson_s``, and the teacher's spikes."""
    each_s = lesson_s / len(images)
    shown = [encode(image, TEACHING_HZ, each_s, rng) for image in images]
    return _with_teacher(shown, PIXELS, each_s, lesson_s, encode, rng)


def replayed(
    streams: Sequence[Events], sources: int, each_s: float, lesson_s: float, encode: Encode, rng: np.random.Generator
) -> Events:
    """Return the stimulus that teaches one template: its streams in turn for ``lesson_s``, ``each_s`` for each."""
    count = max(math.floor(lesson_s / each_s), 1)
    return _with_teacher([streams[k % len(streams)] for k in range(count)], sources, each_s, lesson_s, encode, rng)


def _with_teacher(
    shown: Sequence[Events], sources: int, each_s: float, lesson_s: float, encode: Encode, rng: np.random.Generator
) -> Events:
    """Join streams, and add the teacher's spikes, whose address follows those of the sources."""
    later = [events + np.array([math.floor(1e6 * each_s * k), 0]) for k, events in enumerate(shown)]
    told = encode(np.ones(1, np.uint8), TEACHER_HZ, lesson_s, rng) + np.array([0, sources])
    events = np.concatenate([*later, told])
    return np.asarray(events[np.argsort(events[:, 0], kind="stable")], np.int64)


def subclasses(images: NDArray[Any], labels: NDArray[Any], count: int, seed: int) -> list[tuple[int, NDArray[Any]]]:
    """Return digit and image numbers of each subclass, the digits in order: K-means of the rows of ``images``.

    Raises ``UsageError`` for more subclasses than a digit has images.
    """
    found = []
    if count > (most := int(np.bincount(labels, minlength=DIGITS).min())):
        remedy = f"Use 1 to {most}" if most else "Give images of each digit"
        raise unfit("subclasses", count, f"is more than the {most} images of some digit", remedy)
    for digit in range(DIGITS):
        numbers = np.flatnonzero(labels == digit)
        data = images[numbers].astype(np.float64)
        centres, _ = kmeans(data, count, iter=3, rng=np.random.default_rng([seed, digit]))
        nearest, _ = vq(data, centres)
        found += [(digit, numbers[nearest == k]) for k in range(len(centres)) if (nearest == k).any()]
    return found


def deployed(
    weights: NDArray[np.float64],
    digits: Sequence[int],
    scale: float,
    origin: dict[str, Any],
    trained_on: frozenset[str] = frozenset(),
    relay_na: float = RELAY_NA,
) -> NetworkFile:
    """Return the network for recognition, from learnt weights (sources, templates) in nA.

    All weak weights are replaced by one inhibiting weight. ``scale`` multiplies learnt and inhibiting weights.
    """
    weak = weights <= WEAK_NA
    arrays = {"learnt": scale * np.where(weak, 0.0, weights), "inhibition": scale * np.where(weak, INHIBITION_NA, 0.0)}
    description = Description(
        name="ne15",
        populations=(
            Population("pixels", len(weights), True),
            Population("input", len(weights)),
            Population("decision", len(digits)),
        ),
        neuron=NEURON,
        projections=(
            Projection("pixels", "input", "one-to-one", relay_na),
            Projection("input", "decision", "all-to-all", "learnt"),
            Projection("input", "decision", "all-to-all", "inhibition", "inhibitory"),
        ),
        output="decision",
        labels=tuple(str(digit) for digit in digits),
        origin=origin,
    )
    return checked(description, arrays, trained_on)
