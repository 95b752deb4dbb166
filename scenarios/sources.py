"""The source sentences of the rules, by rule, or by scenario and rule; ``*`` is for rules without an entry."""

from __future__ import annotations

from collections.abc import Mapping

NEUROBENCH = (
    "NeuroBench 1.0, system track. N: Nature Communications 16 (2025), Methods; P: its preprint, System Track "
    "Benchmark Framework; R: the rules' repository (NeuroBench/system_benchmarks, November 2024)"
)
MLPERF = "MLPerf Inference rules and LoadGen 6: scenarios, early stopping"
QUICK = "none: for the bench, never for submission"
CHOICE = "this project's choice"

NEUROBENCH_RULES: Mapping[str, str] = {
    "*": CHOICE,
    "hardware_only": "N, ASC, Metrics: 'measured from the system and not in any software simulation'",
    "session": "P, Efficiency: 'in all runs, both metrics must be reported'; R, rules: 'in all configurations, all "
    "metrics must be reported'",
    "benchmark": "N: 'Detailed information on each v1.0 system track benchmark is provided here'",
    "outline": "N, System track metrics: 'an outline of the system architecture'; N, System track metrics: 'an outline "
    "of the algorithm used (model architecture, tuning)'",
    "fresh_seeds": "N, baselines, QUBO: 'five different initial variable assignments and seeds'",
    "one_tuning": "R, QUBO: 'must provide the same algorithmic parameters for all problem seeds'",
    "whole_set": "N, ASC, Metrics: 'The final result should be averaged over all samples in the test set'",
    "optimization.whole_set": "N, QUBO, Task and metrics: 'Given each workload, the benchmark should report'",
    "offline.whole_set": f"{CHOICE}: every sample of the set at least once",
    "preprocessing": "N, ASC, Task: 'Execution time and energy of pre-processing must be included in benchmark "
    "measurement, and will be reported separately from inference'",
    "at_a_time": "N, ASC, Task: 'one sample is processed at a time and the next sample is not processed until the "
    "previous one is finished'",
    "trials": "R, rules: 'An average over 5 trials'; P, Efficiency: 'power and energy consumption must be first-order "
    "metrics'",
    "trial_tolerance": f"{CHOICE}, of each trial; R, rules: 'An average over 5 trials must be within 5% of the "
    "reported results', which the mean of the trials always is",
    "percentile": "P, Task Scenarios: Server is 'latency-constrained', by the scenarios of MLPerf, whose percentile is "
    "the 99th",
    "early_stopping": f"{CHOICE}, after MLPerf: fewer queries do not support the percentile",
    "in_time_share": "P, Performance: 'for a large portion of execution (e.g., 90%, defined per-benchmark) must not "
    "exceed a real-time threshold'",
    "deadline_strides": f"{CHOICE}: P leaves the threshold to the benchmark, and none names it; with a later "
    "deadline, answers need not keep up with the stream",
    "accuracy": "P, Correctness: 'correctness must be measured to verify the validity of the solution'",
    "execution_time_s": "N, ASC, Metrics: 'Execution time is the average time per sample'",
    "execution_time_se_s": "R, ASC: 'averaged over all samples in the test set, and include standard error'",
    "latency_mean_s": "P, Performance: 'the Single-stream scenario reports latency. The Real-time scenario similarly "
    "reports latency'",
    "idle_power_w": "N, ASC, Metrics: 'Idle power and active power should be reported'",
    "active_power_w": "N, ASC, Metrics: 'Idle power and active power should be reported'",
    "runtime_power_w": "N, QUBO, Task and metrics: 'average power over the duration of the runtime'",
    "dynamic_power_w": "N, ASC, Metrics: 'reported as dynamic power'",
    "energy_per_inference_j": "N, ASC, Metrics: 'multiplying power by the averaged execution time'; P, Efficiency: "
    "'energy per-sample'",
    "throughput_samples_hz": "P, Performance: 'The Offline and Server scenarios report throughput'",
    "average_power_w": "P, Efficiency: 'The Server, Offline, and Real-time scenarios report average power'",
    "onset_latency_mean_s": "P, ASC: 'the prediction time relative to the onset of each new acoustic scene'",
    "stream_accuracy": "P, ASC: 'Classification probability will be sampled to determine the correctness'",
    "gap_{target}_mean": "N, QUBO, Task and metrics: 'the benchmark should report the BKS-Gap'",
}
MLPERF_RULES: Mapping[str, str] = {
    "*": CHOICE,
    "hardware_only": "MLPerf Inference rules: results are of systems",
    "warmup": "LoadGen: no warm-up",
    "min_duration_s": "LoadGen: minimum duration 600 s",
    "min_queries": "LoadGen: minimum query count",
    "percentile": "LoadGen: 90th percentile for single-stream, 99th for server",
    "early_stopping": "MLPerf Inference rules: early stopping",
}
