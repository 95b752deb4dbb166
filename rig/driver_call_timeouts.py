"""How long the rig waits for an answer of a device, and for any other call of a driver to return."""

DEFAULT_TIMEOUT_S = 60.0
"""The default of ``timeout_s`` in ``DeviceInfo``."""
PATIENCE_S = {"open": 60.0, "info": 30.0, "stage": 600.0, "stop": 30.0, "close": 30.0}
"""A call named here may take this long (s), or the device's ``timeout_s`` if that is longer and above the default.

Other calls may take ``timeout_s`` for each repetition of a sample, plus ``MORE_S``.
"""
MORE_S = 30.0
AFTER_S = 5.0
"""A call may take this long after another call of the run has hung, since both usually wait for the same thing."""
TELL_S = 20.0
"""A call that lasts longer than this is named on the terminal."""
SIMULATED_S = 3600.0
"""Where time is simulated, any call may take this long (s of the host), since it only computes."""
GRACE_S = 5.0
"""A call that lasts too long is interrupted. If it has not returned after this further time, the process ends."""


def patience_of(call: str, timeout_s: float) -> float:
    """Return how long (s) a call in ``PATIENCE_S`` may take on a device that declares ``timeout_s``."""
    return max(PATIENCE_S[call], timeout_s if timeout_s > DEFAULT_TIMEOUT_S else 0.0)
