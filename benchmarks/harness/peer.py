"""One run of MLCommons LoadGen in a separate process, for ``benchmarks.harness``, with its own scenario and logs.

    python -m benchmarks.harness.peer single --out DIR --queries 1000000

The system under test answers inside LoadGen's callback: at once, or a fixed time after it was asked.
``--sut plain`` is the system under test that MLPerf's reference implementations construct. ``lean`` is as quick as
Python allows (ConstructFastSUT, one response used again). Needs ``pip install mlcommons-loadgen`` (Apache-2.0).
"""

import argparse
import time
from importlib import import_module
from typing import Any

from benchmarks.harness.load import SAMPLES, arrays, costed, parser_of, said, waiting


def system(lg: Any, a: argparse.Namespace) -> int:
    """Return the system under test, as a handle of LoadGen."""
    complete, response, now_ns = lg.QuerySamplesComplete, lg.QuerySampleResponse, time.monotonic_ns
    answer_ns, wait = round(a.answer_s * 1e9), waiting(a.wait)
    kept = [response(0, 0, 0)]

    def plain(queries: Any) -> None:
        complete([response(q.id, 0, 0) for q in queries])

    def late(queries: Any) -> None:
        wait(now_ns() + answer_ns)
        complete([response(q.id, 0, 0) for q in queries])

    def lean(ids: list[int], indices: list[int]) -> None:
        kept[0].id = ids[0]
        complete(kept)

    if a.sut == "lean" and not answer_ns:
        return int(lg.ConstructFastSUT(lean, _nothing))
    return int(lg.ConstructSUT(late if answer_ns else plain, _nothing))


def settings(lg: Any, a: argparse.Namespace) -> Any:
    """Return LoadGen's settings for one scenario. All other settings keep LoadGen's defaults."""
    s = lg.TestSettings()
    s.mode = lg.TestMode.PerformanceOnly
    s.qsl_rng_seed = s.sample_index_rng_seed = s.schedule_rng_seed = a.seed
    if a.scenario == "single":
        s.scenario = lg.TestScenario.SingleStream
        s.single_stream_target_latency_percentile = a.percentile
        s.min_query_count = s.max_query_count = a.queries
        s.min_duration_ms = 0
    else:
        s.scenario = lg.TestScenario.Server
        s.server_target_qps = a.rate
        s.server_target_latency_ns = 1_000_000_000  # not judged here
        s.min_query_count = 1
        s.min_duration_ms = round(a.seconds * 1e3)
    return s


def logs(lg: Any, a: argparse.Namespace) -> Any:
    """Return LoadGen's log settings: where it writes, and whether it keeps a trace of every query."""
    output = lg.LogOutputSettings()
    output.outdir = str(a.out)
    output.copy_summary_to_stdout = False
    log = lg.LogSettings()
    log.log_output = output
    log.enable_trace = a.trace
    return log


def _nothing(*_: Any) -> None:
    pass


def main() -> None:
    parser = parser_of(__doc__ or "", "LoadGen's logs")
    parser.add_argument("--percentile", type=float, default=0.9, help="single: percentile for early stopping")
    parser.add_argument("--sut", choices=("plain", "lean"), default="plain")
    parser.add_argument("--trace", action="store_true", help="every query on disk")
    a = parser.parse_args()
    a.out.mkdir(parents=True)
    held = arrays()
    lg = import_module("mlperf_loadgen")
    sut, library = system(lg, a), lg.ConstructQSL(len(held), SAMPLES, _nothing, _nothing)
    test, log = settings(lg, a), logs(lg, a)
    said(costed(lambda: lg.StartTestWithLogSettings(sut, library, test, log)))


if __name__ == "__main__":
    main()
