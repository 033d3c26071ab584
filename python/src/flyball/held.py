"""A hold that ends with this process, however it ends."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from typing import Any, Sequence

from .errors import error
from .process import program


class Hold:
    """A hold, and the shell that releases it when the pipe from this process is closed.

    The kernel closes the pipe when the process ends, also by SIGKILL. So nothing polls, and the service is not needed; if it
    runs, --while-pid has it release the hold when the shell is killed as well.
    """

    _count = 0

    def __init__(self, prefix: Sequence[str], machine: Sequence[str], settings: Sequence[str], priority: int) -> None:
        Hold._count += 1
        self.name = f"python-{os.getpid()}-{Hold._count}"
        flyball = [*prefix, program(), "--json", *machine, "hold"]
        add = [*flyball, "add", self.name, f"--priority={priority}", *settings]
        release = [*flyball, "release", self.name]
        # One process after the other, so that a release cannot come before the hold is added. The answer of `add` ends when
        # stdout is closed.
        script = (
            f"{shlex.join(add)} --while-pid $$ </dev/null || exit; exec >/dev/null; while read -r line; do :; done; "
            # Another flyball may hold the machine for a moment.
            f"for pause in 0.05 0.1 0.2 0.4 1 2 4 8; do {shlex.join(release)}; code=$?; "
            "[ $code = 6 ] || exit $code; sleep $pause; done; exit 6"
        )
        self._stderr = os.fdopen(os.memfd_create("flyball"), "w+b")
        # A session of its own: Ctrl-C in a terminal must not end the shell before it has released.
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            start_new_session=True,
        )
        assert self._shell.stdout is not None
        try:
            text = self._shell.stdout.read()
        except BaseException:
            self._close()
            raise
        self._shell.stdout.close()
        if not text:
            raise error(*self._close())
        self.data: Any = json.loads(text)

    def release(self) -> None:
        code, messages = self._close()
        if code != 0:
            raise error(code, messages)

    def _close(self) -> tuple[int, str]:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        code = self._shell.wait()
        with self._stderr as file:
            file.seek(0)
            return code, file.read().decode("utf-8", "replace")
