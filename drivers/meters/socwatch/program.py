"""Intel SoC Watch while it runs: started, its output followed, ended, and the tables that it wrote."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from drivers.importers.socwatch import tables_of
from rig.errors import MeterError

REFUSED = re.compile(r"(?i)permission|root|sudo|privilege|driver|module")
SAID_MOST = 4000


class ProgramRun:
    """The program while it runs, on a terminal of its own so that it does not buffer its output."""

    def __init__(self, command: list[str], started: re.Pattern[str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="socwatch-"))
        self.output = self.folder / "trace"
        self._started, self._word = started, threading.Event()
        self._said = ""
        master, slave = os.openpty()
        try:
            self._process = subprocess.Popen(
                [a.replace("{output}", str(self.output)) for a in command],
                stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            os.close(master)
            shutil.rmtree(self.folder, ignore_errors=True)
            what = f"{command[0]} does not run: {error.strerror}"
            remedy = "Check that it is a program of this machine and may be executed"
            raise MeterError(what, field="path", value=command[0], remedy=remedy) from error
        finally:
            os.close(slave)
        self._listener = threading.Thread(target=self._listen, args=(master,), daemon=True)
        self._listener.start()

    def await_start(self, within_s: float) -> None:
        """Wait until it says that it collects. Raises ``MeterError`` when it ends before, or does not say so."""
        until_s = time.monotonic() + within_s
        while not self._word.wait(0.002):
            if self.ended():
                self._listener.join(1.0)
                if not self._word.is_set():
                    raise self.failed("ended before it had begun to collect")
                return
            if time.monotonic() > until_s:
                raise self.failed(f"did not say within {within_s:g} s that it collects")

    def ended(self) -> bool:
        """Whether the program has ended."""
        return self._process.poll() is not None

    def finish(self, within_s: float, *, raised: bool) -> None:
        """Have it end and write. Raises ``MeterError`` when it does not, or ended early and ``raised`` is false."""
        early = self.ended()
        if not early:
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired as error:
            raise self.failed(f"did not end within {within_s:g} s") from error
        self._listener.join(1.0)
        if early and not raised:
            raise self.failed("ended in the middle of the recording")

    def tables(self) -> list[Any]:
        """The tables of every CSV file that it wrote."""
        files = sorted(self.folder.rglob("*.csv"))
        if not files:
            raise self.failed("wrote no CSV file")
        return [each for file in files for each in tables_of(file)]

    def failed(self, what: str) -> MeterError:
        """The error to raise, with the last output of the program."""
        said = " ".join(self._said.split())[-200:]
        remedy = "Run its command by hand; the field details.command of the recording holds it"
        if REFUSED.search(said):
            remedy = "Run as root, with its kernel driver loaded (insmod, see its release notes)"
        code = self._process.poll()
        what = f"SoC Watch {what} (exit {code}): {said or 'it printed nothing'}"
        return MeterError(what, field="path", value=str(self._process.args), remedy=remedy)

    def close(self) -> None:
        """Kill it where it still runs, and remove what it wrote."""
        if not self.ended():
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # it leads a session of its own
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        self._listener.join(1.0)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _listen(self, master: int) -> None:
        with suppress(OSError):  # a terminal whose other end has closed
            while data := os.read(master, 4096):
                self._said = (self._said + data.decode("utf-8", "replace"))[-SAID_MOST:]
                if any(self._started.search(line) for line in self._said.splitlines()):
                    self._word.set()
        os.close(master)
