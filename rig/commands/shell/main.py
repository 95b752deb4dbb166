"""The entry of the command line: one module for each command, imported when the command is named."""

import argparse
import atexit
import gc
import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn

import rig
from rig.engine.interrupts import ENDING, interrupt, on_signals, unheard
from rig.errors import DISTRIBUTION, LIMITS, Ended, Interrupted, RigError, SetupError, UsageError, out_of_memory, plain
from rig.terminal import answer, drop_full_streams, own, say, usable_streams, width, wrapped

COMMANDS = {
    "measure": ("rig.commands.measure", "play a scenario to a device while a meter measures, then report"),
    "report": ("rig.commands.report", "compute and render the figures of a run directory or session"),
    "list": ("rig.commands.list", "list every device, meter, scenario, workload, rule set and importer"),
    "init": ("rig.commands.init", "find what is connected, and write a bench file to complete"),
    "check": ("rig.commands.check", "check whether a device, its meters and a workload keep the rules of a driver"),
    "doctor": ("rig.commands.doctor", "open every device and meter and report what is wrong"),
    "import": ("rig.commands.import_", "make a run directory from a trace that another program recorded"),
    "sweep": ("rig.commands.sweep", "measure a grid, which you can stop and continue at any time"),
    "tracks": ("rig.commands.tracks", "put the operations of networks beside the joules that devices need for them"),
    "submit": ("rig.commands.submit", "make one folder of sessions that others can check"),
    "compare": ("rig.commands.compare", "compare runs, sessions or submissions, with each difference's uncertainty"),
    "complexity": ("rig.commands.complexity", "state the memory and operations of a device's network, without a run"),
    "workload": ("rig.commands.workload", "write a problem of a workload to a file"),
    "completion": ("rig.commands.shell.completion", "print shell code that completes command lines of rig"),
}
"""The module and the purpose of each command. A module has ``add_arguments(parser)`` and ``run(args) -> exit code``.

Other packages add commands as such modules in the entry-point group ``rig.commands``; the docstring of a module begins
with the command's purpose.
"""
GROUPS = {
    "measure": ("init", "check", "doctor", "measure", "sweep", "import"),
    "read": ("report", "compare", "view", "tail", "complexity"),
    "share": ("submit", "audit", "leaderboard"),
}
"""The commands in the order of the help; all others follow under ``more``."""


ABOUT = "Measure latency, power and energy of neuromorphic systems, and state the uncertainty."
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
"""Variables that set the number of threads of the libraries below numpy."""


DEPTH = sys.getrecursionlimit()
GARBAGE = 1_000_000
"""A report collects garbage after this many new objects. With Python's default, a report takes a tenth longer."""


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""The numbers of these parameters in glibc's ``malloc.h``."""
FREED_BYTES = 1 << 25
"""The largest freed block that glibc may keep."""
DRIVEN = ("measure", "check", "doctor", "init", "complexity", "import", "sweep", "tracks", "workload")
"""Commands that run code of drivers, importers or workloads."""
COMPLETED = "_ARGCOMPLETE"
"""The variable that a shell sets when it asks how to complete a command line."""
BESIDE = ("measure", "check", "doctor", "init", "complexity")
"""Commands of ``DRIVEN`` that run in a child process; if a driver ends the child, the parent reports that."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code: 0, or a code of ``rig.errors``.

    Without ``argv``, the arguments are those of the process. Only then may a command run in a child process.
    """
    if COMPLETED in os.environ:
        from rig.commands.shell.completion import complete

        complete(parser)
    given = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    with on_signals(interrupt, *ENDING):
        return _safely(given, lambda: _main(given, argv is None))


def _main(given: list[str], alone: bool) -> int:
    usable_streams()
    os.umask(os.umask(0o022) | 0o022)  # others cannot write the files that this process makes
    # Arrow's own allocators reserve 4 MB, although a few kilobytes suffice here
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    if given[0] in ("report", "submit", "compare"):
        # before numpy is loaded, because more threads change the order of sums, and so the last digits
        os.environ |= dict.fromkeys(BLAS_THREADS, "1")
        keep_memory()
    if "open_run" not in dir(rig):  # another project's rig/__init__.py hides this one
        from rig.plugins import check_ours

        check_ours("rig")
    args = _parsed(given)
    if args.command not in DRIVEN:
        return _ran(args)
    from rig.child_process import supervised

    log = args.log(args) if "log" in args else None
    parent = alone and args.command in BESIDE
    try:
        return supervised(lambda: _safely(given, lambda: _ran(args)), log, parent=parent)
    except rig.errors.DriverLeftError as error:
        error.remedy += args.kept(args) if "kept" in args else ""
        raise


def _ran(args: argparse.Namespace) -> int:
    """Run a command. Raises ``SetupError`` if one of another package fails by anything but a ``RigError``."""
    try:
        return int(args.run(args) or 0)
    except (RigError, OSError, ImportError):
        raise
    except Exception as error:
        from rig.errors import place, said
        from rig.plugins import names

        entry = names("commands").get(args.command)
        if entry is None or entry.package == DISTRIBUTION:
            raise
        what = f"command {args.command!r} of the package {entry.package} failed: {said(error)}"
        where = f"Correct the package: {place(error)}".removesuffix(": ")
        raise SetupError(what, field="command", value=args.command, remedy=where) from error


def keep_memory() -> None:
    """Collect garbage seldom. Let glibc use freed arrays again, instead of fetching zeroed pages for each new one."""
    gc.set_threshold(GARBAGE)
    atexit.register(gc.freeze)  # collecting it at exit took a twelfth of the time of a report
    import ctypes  # `rig --help` does without it

    with suppress(AttributeError, OSError, TypeError):  # another C library
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(TRIM_THRESHOLD, 8 * FREED_BYTES)
        mallopt(MMAP_THRESHOLD, FREED_BYTES)


def _safely(given: Sequence[str], run: Callable[[], int]) -> int:
    """Run a command, print its error, and return its exit code."""
    try:
        return _flushed(run())
    except RigError as error:
        return _failed(plain(error), "--json" in given)
    except KeyboardInterrupt as error:
        with unheard():
            return _failed(error if isinstance(error, Interrupted) else Interrupted("interrupted"), "--json" in given)
    except _Misused as error:
        if "--json" in given:
            answer(error.said.to_json())
        raise
    except RecursionError as error:
        sys.setrecursionlimit(DEPTH)  # a driver may have lowered it, even from a thread with a shallow stack
        what = f"the calls are nested too deeply: {error}"
        remedy = "Correct the driver, which may have set a lower limit. What was recorded until then is kept"
        return _failed(SetupError(what, field="driver", value=str(error), remedy=remedy), "--json" in given)
    except (MemoryError, OSError, ImportError) as error:
        if sys.flags.dev_mode:  # `python -X dev` shows the traceback
            raise
        return _failed(_no_means(error), "--json" in given)


def _flushed(code: int) -> int:
    """Return the exit code after standard output took all text. Not every command flushes what it prints."""
    own().flush()
    return code


def parser(command: str = "") -> argparse.ArgumentParser:
    """Import ``command`` and return its parser. Without one, return a parser of all commands, without arguments."""
    known = {command: COMMANDS[command]} if command in COMMANDS else COMMANDS | _registered()
    about, form = "\n".join(wrapped(ABOUT, width(), "")), partial(argparse.RawDescriptionHelpFormatter, width=width())
    listed = "\n".join([*_grouped(known), "", "`rig COMMAND --help` shows what a command takes."])
    top = _Parser(prog="rig", usage="rig COMMAND ...", description=about, epilog=listed, formatter_class=form)
    top.add_argument("--version", action="version", version=_version() if command == "--version" else "")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND", prog="rig", help=argparse.SUPPRESS)
    for name in [command] if command in known else () if command.startswith("-") else known:
        module, text = known[name]
        own = commands.add_parser(name, description=f"{text[:1].upper()}{text[1:]}.")
        own.add_argument("--json", action="store_true", help="print one JSON document on standard output")
        if name == command:
            body = importlib.import_module(module) if name in COMMANDS else _loaded(name)
            body.add_arguments(own)
            own.set_defaults(run=body.run, parser=own, **({"log": body.log_of} if hasattr(body, "log_of") else {}))
    return top


def _grouped(known: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of the commands by group, each with its purpose."""
    shown = [name for names in GROUPS.values() for name in names]
    for group, names in {**GROUPS, "more": tuple(name for name in known if name not in shown)}.items():
        yield f"{group}:"
        for name in (name for name in names if name in known):
            yield from wrapped(f"    {name:13}{known[name][1]}", width(), " " * 17)


class _Misused(SystemExit):
    """A wrong command line, reported on standard error."""

    def __init__(self, said: UsageError) -> None:
        super().__init__(2)
        self.said, said.exit_code = said, 2


class _Once(argparse._StoreAction):
    """Stores the value of an option that may be given only once."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *given: Any) -> None:
        """Refuse a second value, which would silently replace the first."""
        if self.option_strings and getattr(namespace, self.dest, self.default) is not self.default:
            parser.error(f"{self.option_strings[0]} is given twice. Leave one out")
        super().__call__(parser, namespace, *given)


class _Parser(argparse.ArgumentParser):
    """Prints a mistake in one line, without the full usage."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"formatter_class": partial(argparse.HelpFormatter, width=width())} | given)
        self.register("action", None, _Once)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print help or a version; argparse itself ignores errors of the stream."""
        stream = file or sys.stderr
        stream.write(message)
        stream.flush()

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        from rig.errors import closest, number_wanted

        said = message
        if found := re.fullmatch(r"argument (\S+): invalid (int|float) value: (.*)", message, re.DOTALL):
            said = f"{found[1]} is {found[3]}. Give {number_wanted(found[3].strip(chr(39)), found[2] == 'int')}"
        elif found := re.fullmatch(r"argument (\S+): not allowed with argument (\S+)", message):
            said = f"give {found[1]} or {found[2]}, not both"
        elif found := re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL):
            known = [name.strip("' ") for name in found[3].split(",")]
            said = f"unknown {found[1]} {found[2]!r}. {closest(found[2], known, ' ')}".strip()
        end = "" if said.endswith(("?", ".")) else "."
        remedy = f"`{self.prog} --help` shows what it takes"
        say(f"{self.prog}: {said}{end} {remedy}", error=True)
        raise _Misused(UsageError(said, field="argument", remedy=remedy))


def _parsed(given: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command; the error for an unknown argument names similar ones.

    Raises ``UsageError`` for an argument that is not UTF-8: pyarrow cannot open a file with such a name.
    """
    from rig.errors import closest, refused

    if odd := next((text for text in given if not text.isascii() and re.search("[\ud800-\udfff]", text)), None):
        raise refused("argument", odd, "Rename the file or folder that it names", f"the argument {odd!r} is not UTF-8")
    if given and given[0] == "reduce":  # a command of earlier releases
        remedy = "Import the trace (`rig import --format raw-numbers`, or another format), then `rig report RUN`"
        raise UsageError("`rig reduce` is gone", field="command", value="reduce", remedy=remedy)
    if given and given[0].startswith("-") and given[0] not in ("-h", "--help", "--version"):
        parser().error(f"{given[0]} must follow the command: rig COMMAND {given[0]}")
    args, unknown = parser(given[0] if given else "").parse_known_args(given)
    if "--out=" in given or ("--out", "") in pairwise(given):  # an empty Path would be the current directory
        args.parser.error("--out is empty. Name a directory or file")
    if unknown:
        own: _Parser = args.parser
        near = closest(unknown[0].partition("=")[0], own._option_string_actions, " ")
        if "--option" in own._option_string_actions and unknown[0].startswith("--"):
            near += " An option that `rig list NAME` shows is written --option KEY=VALUE."
        if not unknown[0].startswith("-"):
            takes = [str(action.metavar or action.dest).upper() for action in own._get_positional_actions()]
            near = f"Beside options, it takes {' '.join(takes) or 'nothing'}."
        own.error(f"{unknown[0]} is no argument of {own.prog}. {near}".strip())
    return args


def _registered() -> dict[str, tuple[str, str]]:
    """Return commands of other packages, as in ``COMMANDS``. Their sources are read, but not run."""
    from rig.plugin_list import commands_of_others, source_facts

    found = {}
    for name, module in commands_of_others().items():
        line = source_facts(module)[1].rstrip(".")
        found[name] = (module, line[:1].lower() + line[1:])
    return found


def _version() -> str:
    from importlib.metadata import version

    return f"rig {version(DISTRIBUTION)}"


def _loaded(name: str) -> Any:
    from rig.plugins import load

    return load("commands", name)


def _no_means(error: MemoryError | OSError | ImportError) -> SetupError:
    """Return the error for a command to which the system refused memory, a file or a descriptor."""
    if isinstance(error, ImportError):
        while isinstance(error.__cause__, ImportError):
            error = error.__cause__
        said = str(error).strip().partition("\n")[0]
        remedy = "Free some memory, or raise its limit (`ulimit -v`)"
        if not out_of_memory(error):
            remedy = f"Install {DISTRIBUTION} again, in an environment of its own"
        return SetupError(f"a package cannot be loaded: {said}", field="system", value=said, remedy=remedy)
    if isinstance(error, MemoryError):
        return SetupError("there is not enough free memory", remedy="Free some, or measure less")
    return SetupError(f"the operating system refused: {error}", field="system", value=error.errno, remedy=LIMITS)


def _failed(error: Ended, as_json: bool) -> int:
    with suppress(OSError):
        line = f"rig: {error}"
        say(*(wrapped(line, width()) if sys.stderr.isatty() else [line]), error=True)
        if as_json:
            answer(error.to_json())
    drop_full_streams()
    return error.exit_code
