"""The tests of this repository, with the rig's fixtures."""

import numpy as np
from drivers.my_chip import BUSY_W, IDLE_W, open_device
from fixtures.sounds import open_workload


def test_the_driver_and_the_samples_keep_every_rule(assert_conforms):
    workload = open_workload()
    assert_conforms(workload)
    assert_conforms(open_device(), workload.samples, labels=("loud", "quiet"))


def test_the_chip_is_right_and_its_power_is_what_it_draws(rig_measure):
    result = rig_measure(
        "drivers/my_chip.py:open_device", meter="mock", workload="fixtures/sounds.py:open_workload",
        options={"idle_s": 0.5},
    )  # fmt: skip

    assert result.quantities["accuracy"].value == 1.0
    for figure, true_w in (("idle_power_w", IDLE_W), ("active_power_w", BUSY_W)):
        low, high = result.quantities[figure].interval(0.95)
        assert low <= true_w <= high


def test_the_energy_of_the_simulated_bench_is_known(rig_bench, assert_conforms):
    rig_bench.install({"core": 1e-3}, {"inference": {"core": 3e-3}})
    begin_ns = rig_bench.clock.now_ns()
    rig_bench.occupy("inference", begin_ns, begin_ns + 500_000_000)

    assert np.isclose(rig_bench.energy_j(begin_ns, begin_ns + 1_000_000_000), 0.5 * 3e-3 + 0.5 * 1e-3)
    assert_conforms(rig_bench.meter("mine", 1000.0), clock=rig_bench.clock)
