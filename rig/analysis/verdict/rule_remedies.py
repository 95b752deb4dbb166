"""The remedies of failed rules, by rule."""

import re

_BUSY = "The host was busy or asleep: end other programs, see `rig doctor`, and measure again"
_DRIVER = "Check rate_hz, tick_hz and latency_s of the meter with `rig doctor`, and measure again"
_DELAY = "End other programs if the host was busy, else check unit and latency_s (`rig doctor`)"
_CLOCK = "Check the declared tick_hz and tolerance of the clock with `rig doctor`"
_SPANS = "Check how the driver stamps begin and end of a span (`rig check`), and measure again"
_NETWORK = "Correct the declared network, or the activity that the driver counts (`rig check`)"
_QUERIES = "Play more samples: `rig list SCENARIO` shows the option for their number"
_SET = "Leave the options of rules and workload as they are (`rig list`), and measure again"
_SAME = "Measure all runs of a session with one command, one device and one meter"
_SLOW = "Lower the load (scenario.arrival_hz, a longer stride_s), or answer sooner"

REMEDIES: tuple[tuple[str, str], ...] = (
    ("the run$", "Its process was killed or its disk was full: go on with `rig measure --resume`"),
    ("samples without an answer|samples that the device answered", "Let the device answer each sample (`rig check`)"),
    ("samples of the set answered", "Play the whole set: leave out options that shorten it (`rig list WORKLOAD`)"),
    ("device and meters", "Measure on hardware: leave out --simulate, or take --rules quick"),
    ("mode$", "Leave out --mode together"),
    ("samples at a time", "Issue one sample at a time: set the driver's max_batch and max_pending to 1"),
    ("warm-up samples", "Set scenario.warmup to no more than is allowed"),
    ("duration$", "Play longer: raise the duration or the number of samples (`rig list SCENARIO`)"),
    ("queries", _QUERIES),
    ("shortest idle window", "Leave scenario.idle_s as the rules have it"),
    (r"p\S+ of latency|frames answered within", _SLOW),
    ("deadline of a frame", "Set the deadline to no more than the stride that the rules allow"),
    (r"p99 of the host's slip|Kolmogorov distance|gaps in the host's heartbeat", _BUSY),
    ("benchmark of", "Measure a workload of the benchmark (`rig list`), or declare the `benchmark` of your own"),
    ("the rules are those of|scenario of the benchmark|benchmark: ", _SET),
    ("samples with another length|samples in the recording|samples without a label", _SET),
    ("data on which the network was trained", "Measure on samples that the network was not trained on"),
    ("answers that are no label|(predictions|forecasts) of", "Let the device answer as `rig check` asks"),
    ("phases that ran|answers without a span", "Return a span of every declared phase with each answer (`rig check`)"),
    ("pre-processing", "Declare it in the driver (phase, rail, or none), and measure with --per-phase"),
    ("the declared network|counted activity|executions of a sample|answers of spikes", _NETWORK),
    ("values that cannot be used|files that were written|readings of rail .* on disk",
     "The recording is damaged: check disk and driver, and measure again"),
    ("spans of one tick or less", "The clock is too coarse for the spans: give --repeat N or a finer clock"),
    ("spans (that|of rail .* against)|stretches of spans", _SPANS),
    ("readings of rail .* that are numbers", "Check the wiring and the range of the meter with `rig doctor`"),
    ("readings of rail .* far beyond all others",
     "Delete it if the meter or its link made it; if the device did, measure until it recurs"),
    ("readings of rail .* (that repeat|that a filter|in order|in every)",
     "Set the meter, or mend its driver, as the check says"),
    ("solves whose claims", "Stamp claims and spans by one clock, and answer with the best claim"),
    ("readings of rail .* as measured",
     "Check unit, sign, range and filter of the meter, its driver and export, and that the device rests when idle"),
    ("sign of power", "Swap the leads of the meter, null it, or state its zero's limit in a calibration file"),
    ("Idle power above", "Measure idle with a finer range or meter: many read 0 below a starting current"),
    ("Dynamic power above", "Check that the meter watches the rail of the device, and measure longer"),
    ("readings of rail .* after", _DRIVER),
    ("change of the delay", _DELAY),
    ("rate of the clock|readings of the clock", _CLOCK),
    ("samples answered otherwise", "Answer alike in every run: one network, one seed, the same settings of the device"),
    ("time of sample", "Switch off the cache of answers in the device or its driver"),
    ("samples that not every run|runs that share a recording", _SAME),
    ("data sets of the runs", "Leave the data as they are until the last run has ended, and measure again"),
    ("meters of the power runs|configurations of|devices, as they were", _SAME),
    ("runs (for|of the session)", "Measure the whole session, with --trials as the rules ask; --resume goes on"),
    ("outline of the", "State it in the driver: description, algorithm.outline, algorithm.tuned"),
    (".* reported$", "Measure what the figure needs; where it is refused, the refusal says what helps"),
    (".* from the mean$", "Let the device settle, end other programs (`rig doctor`), and measure again"),
    ("execution time of the .* runs", "Measure time, power and accuracy with the same settings of the device"),
    ("solves with a seed", "Give each solve a seed of its own"),
    ("tunings of the solver", "Keep one tuning of the solver for all problems of a run"),
    ("solutions that could|solves whose costs",
     "Answer with a solution and its cost, as a device of rig.solver does (`rig check`)"),
    ("phases of the solver", "Declare one phase, from the loaded problem until the solution is read"),
    ("solves past their budget", "Let the solver stop at its budget, `budget_s`"),
)  # fmt: skip
"""The beginning of a rule's name as a regular expression, and what to do; the first match is used."""
_OF_RUN = re.compile(r"[\w.-]+: ")


def remedy_of(rule: str) -> str:
    """Return what to do if a rule failed, in a run or in a run of a session; "" for an unknown rule."""
    names = rule, _OF_RUN.sub("", rule, count=1)
    return next((remedy for name in names for pattern, remedy in REMEDIES if re.match(pattern, name)), "")
