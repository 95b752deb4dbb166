"""The zones that two kinds of machines show under ``/sys/class/powercap``."""

from fixtures.instruments.powercap_tree import TreeZone

DESKTOP = {
    "intel-rapl:0": TreeZone("package-0", {"core": 1.0}),
    "intel-rapl:0:0": TreeZone("core", {"core": 0.7}),
    "intel-rapl:0:1": TreeZone("uncore", {"core": 0.1}),
    "intel-rapl:1": TreeZone("psys", {"core": 1.5}),
    "intel-rapl-mmio:0": TreeZone("package-0", {"core": 1.0}),
}
SERVER = {
    "intel-rapl:0": TreeZone("package-0", {"core": 0.5}),
    "intel-rapl:0:0": TreeZone("dram", {"core": 0.1}, range_uj=65_712_999_613),
    "intel-rapl:1": TreeZone("package-1", {"core": 0.5}),
    "intel-rapl:1:0": TreeZone("dram", {"core": 0.1}, range_uj=65_712_999_613),
}
