"""A script that stands for Intel SoC Watch: it collects in time and writes its CSV when it is ended."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPT = """#!{python} -S
import signal, sys, time
argv = sys.argv[1:]
out = argv[argv.index("-o") + 1]
step = int(argv[argv.index("-n") + 1]) * 1e-3
fault = {fault!r}
if fault == "refuse":
    print("ERROR: the socwatch driver is not loaded"); sys.exit(3)
if fault == "mute":
    time.sleep(30)
ended = []
signal.signal(signal.SIGINT, lambda *a: ended.append(1))
if fault == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
print("Data collection started"); begun = time.monotonic()
while not ended and not (fault == "die" and time.monotonic() - begun > 0.1):
    time.sleep(0.002)
n = int((time.monotonic() - begun) / step)
rows = ["%.3f,%.3f,%.3f" % (1e3 * step * (k + 1), 5000 + k, 3000 + k) for k in range(n)]
head = ["\\ufeffIntel(R) SoC Watch for Linux", "", "Summary", "Component,Average Rate (mW),Total (mJ)", "a,1,2", ""]
if fault != "die":
    with open(out + "_trace.csv", "w", encoding="utf-8") as f:
        title = "Sample Time (ms),Package Power (mW),Core Power (mW)"
        f.write("\\n".join(head + ["Power over time", title] + rows + ["", "Legend, x"]))
sys.exit(1 if fault == "die" else 0)
"""


def program(folder: Path, fault: str = "") -> str:
    path = folder / "socwatch"
    path.write_text(SCRIPT.format(python=sys.executable, fault=fault), encoding="utf-8")
    path.chmod(0o755)
    return str(path)
