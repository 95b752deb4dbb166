"""Simulated watts follow the processor time that a process really uses."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from fixtures.busy_cores import BusyCores, cpu_clock

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="clocks of other processes are Linux's")


def test_the_clock_of_a_process_is_the_processor_time_that_it_says_itself() -> None:
    before_s = time.process_time()
    outside_s = time.clock_gettime(cpu_clock(os.getpid()))
    assert before_s <= outside_s <= time.process_time()


def test_energy_is_idle_plus_what_each_busy_core_takes() -> None:
    cores = BusyCores(idle_w=2.0, core_w=10.0)
    t0_ns = time.monotonic_ns()
    assert cores.energy_j(t0_ns, t0_ns + 10**9) == 2.0
    cores.pid = os.getpid()
    busy_s = time.process_time()
    assert cores.energy_j(t0_ns, t0_ns + 2 * 10**9) == pytest.approx(4.0 + 10.0 * busy_s, abs=0.5)


def test_mean_power_is_over_the_windows_alone() -> None:
    cores = BusyCores(idle_w=2.0, core_w=10.0)
    cores._ns, cores._busy_s = [0, 10**9, 2 * 10**9, 3 * 10**9], [0.0, 0.0, 1.0, 1.0]
    assert cores.mean_w(np.array([[0, 10**9], [2 * 10**9, 3 * 10**9]])) == 2.0
    assert cores.mean_w(np.array([[10**9, 2 * 10**9]])) == 12.0
    assert cores.mean_w(np.array([[0, 3 * 10**9]])) == pytest.approx(2.0 + 10.0 / 3.0)


def test_a_process_that_has_ended_uses_no_more() -> None:
    cores = BusyCores(idle_w=2.0, core_w=10.0)
    cores.pid = 2**22 - 1  # beyond the largest that Linux gives
    assert cores.energy_j(0, 10**9) == 2.0
    assert cores.pid == 0
