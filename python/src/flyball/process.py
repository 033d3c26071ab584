"""Runs the program: where it is, its output, its messages line by line, and Ctrl-C."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sysconfig
from typing import Any, Callable, NamedTuple, Optional, Sequence

from .errors import error

Progress = Callable[[str], None]


class Result(NamedTuple):
    """An exit code that is a result, and the data and messages that came with it."""

    exit_code: int
    data: Any
    messages: str


def program() -> str:
    """The full path of the program: FLYBALL, the wheel's, or that of PATH.

    A full path because sudo does not know a virtual environment's PATH.
    """
    named = os.environ.get("FLYBALL")
    if named:
        return os.path.abspath(named)
    own = os.path.join(sysconfig.get_path("scripts"), "flyball")
    found = own if os.access(own, os.X_OK) else shutil.which("flyball")
    if found is None:
        raise FileNotFoundError("the program flyball is neither in this environment nor in PATH; set FLYBALL to its path")
    return found


def run(
    arguments: Sequence[str],
    *,
    prefix: Sequence[str] = (),
    results: Sequence[int] = (0,),
    progress: Optional[Progress] = None,
) -> Result:
    """Runs the program with --json to its end. Exit codes other than `results` are raised as errors."""
    # Not a pipe: nothing would read it while the messages are read, and the program would wait.
    with os.fdopen(os.memfd_create("flyball"), "w+b") as output:
        child = subprocess.Popen(
            [*prefix, program(), "--json", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        lines = []
        try:
            assert child.stderr is not None
            for line in child.stderr:
                lines.append(line)
                if progress:
                    progress(line.rstrip("\n"))
            exit_code = child.wait()
        except BaseException:
            # Ctrl-C, or the callback raised: the program restores what it changed, and only then this ends. Under sudo
            # the signal is not ours to send; a terminal sends it to both.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                child.send_signal(signal.SIGINT)
            child.communicate()
            raise
        output.seek(0)
        text = output.read()
    messages = "".join(lines)
    try:
        data = json.loads(text) if text else None
    except ValueError:
        data = None
    if exit_code not in results:
        raise error(exit_code, messages, data)
    return Result(exit_code, data, messages)
