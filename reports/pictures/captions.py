"""The captions of the pictures of a report, by the keys of ``draw.py``, and the main picture of each scenario."""

CAPTIONS = {
    "stream": "The probability of each class over time. A grey box is the time in which the scene was of this class. "
    "An answer is valid until the next one. A bar runs from a change of scene to the first answer that is right and "
    "stays right.",
    "power": "Power over time, shaded by what the device did for most of each column.",
    "latency": "Execution time per inference: how often each time occurred. Lines are the figures. If there are "
    "several trials, the times of all are drawn, and the lines are the means of the trials.",
    "service": "Time from the request of a sample to its completion at the host: over the run, and the share of the "
    "completed samples that took no longer.",
    "peak": "Each rate that the search tried: the latency that the rules bound, with its 95 % interval.",
    "solver": "How solves approached the target: the best gap that each solve had claimed so far, and the gap of its "
    "answer (circles; costs computed again from the solutions); then the share of solves within each threshold.",
    "clocks": "Each reading of a clock against the map fitted to all; its bar is as long as its round trip.",
    "trials": "Each trial against the mean of all.",
    "energy": "Where the energy of an inference goes.",
    "layers": "What the network did: operations by connection, and neurons without output by layer.",
    "budget": "The share of the variance of each key figure by its sources.",
}
"""The caption of each picture."""
MAIN = {"optimization": "solver", "real-time": "stream", "server": "service", "offline": "service"}
"""The main picture of a scenario; for other scenarios it is the picture of execution times."""
