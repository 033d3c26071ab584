"""What the program's exit codes mean, as exceptions (the manual's page on exit codes has the table)."""

from __future__ import annotations

from typing import Any, Dict, List, Type


class Error(Exception):
    """The program ended with an exit code that is not a result.

    `message` is its last message, `notes` what else it said, `data` what it printed as JSON before, if anything.
    """

    exit_code: int

    def __init__(self, exit_code: int, message: str, notes: List[str], data: Any = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.notes = notes
        self.data = data


class Failed(Error):
    """Exit code 1: it failed; nothing was changed, or every change was undone."""


class NotAccepted(Error):
    """Exit code 2: a setting, file or machine cannot be used; nothing was done."""


class LeftChanged(Error):
    """Exit code 3: a write failed, and undoing the others failed too. `Machine.restore` tries again."""


class NotHere(Error):
    """Exit code 4: this machine does not have what was asked for."""


class Held(Error):
    """Exit code 6: another flyball holds the machine."""


class Clamped(Error):
    """Exit code 7: the kernel made another value of an accepted one. `data` has what was made."""


class ClampedWarning(UserWarning):
    """As Clamped, where it is not an error: without `strict`."""


BY_CODE: Dict[int, Type[Error]] = {1: Failed, 2: NotAccepted, 3: LeftChanged, 4: NotHere, 6: Held, 7: Clamped}


def error(exit_code: int, stderr: str, data: Any = None) -> Error:
    """The exception of an exit code.

    The last line that begins with the program's name starts the message; indented lines and what was restored follow it.
    """
    lines = [line for line in stderr.splitlines() if line.strip()]
    starts = [at for at, line in enumerate(lines) if line.startswith("flyball: ") and ": simulated: " not in line]
    at = starts[-1] if starts else 0
    message = "\n".join(lines[at:]).replace("flyball: ", "", 1) or f"flyball ended with exit code {exit_code}"
    return BY_CODE.get(exit_code, Error)(exit_code, message, lines[:at], data)
