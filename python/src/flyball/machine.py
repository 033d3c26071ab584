"""A machine: what it has, and what can be set on it."""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union, cast

from .errors import Clamped, ClampedWarning, error
from .process import Progress, Result, run
from .runs import Run
from .tables import Table

if TYPE_CHECKING:
    from . import types

#: A profile (a name, or the path of a TOML file), or knobs with their values. True and False are on and off.
Settings = Union[str, "os.PathLike[str]", Mapping[str, Union[str, int, float, bool]]]


class Show(NamedTuple):
    machine: types.Facts
    rows: Table[Any]


class Plan(NamedTuple):
    """The writes in order. Nothing is to be done if `changes` is empty."""

    changes: Table[Any]
    notes: List[str]


class Applied(NamedTuple):
    """What was changed; a row is a change with its outcome."""

    made: Table[Any]
    notes: List[str]


class Verification(NamedTuple):
    holds: bool
    drifted: Table[Any]
    owners: Table[Any]
    notes: List[str]


class Examination(NamedTuple):
    """The doctor's findings, and the worst verdict among them."""

    worst: types.DoctorVerdict
    findings: Table[Any]


# In the order of severity.
VERDICTS: Sequence[types.DoctorVerdict] = ("ok", "unknown", "note", "warning", "fault")


class Machine:
    """A machine by its name, as the option -M takes it: live, sim:NAME, a recording, a directory.

    A simulated machine keeps what is set on it until the object is deleted, or longer in the directory `state`. `sudo` runs the program under sudo, which must
    not ask for a password; or give the command to use in its place.
    """

    def __init__(
        self,
        name: str = "live",
        *,
        sudo: Union[bool, Sequence[str]] = False,
        state: Optional[Union[str, os.PathLike[str]]] = None,
        options: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._prefix = (["sudo", "-n", "--"] if sudo else []) if isinstance(sudo, bool) else list(sudo)
        self._options = ["-M", name, *options]
        self._state: List[str] = []
        if name.startswith("sim:"):
            if state is None:
                import tempfile

                self._folder = tempfile.TemporaryDirectory(prefix="flyball-")
                state = self._folder.name
            self._options += ["--state-dir", os.path.join(state, "state")]
            self._state = ["--sim-state", os.path.join(state, "machine")]

    def __repr__(self) -> str:
        return f"Machine({self.name!r})"

    def run(self, *arguments: str, results: Sequence[int] = (0,)) -> Result:
        """Runs any command of the program on this machine; `data` of the result is its JSON."""
        return run([*self._options, *self._state, *arguments], prefix=self._prefix, results=results)

    def show(self) -> Show:
        data: types.ShowOutput = self.run("show").data
        return Show(data["machine"], Table(data["rows"]))

    def get(self, *knobs: str, cpus: Optional[str] = None) -> Table[Any]:
        """The values of knobs: a row for each place."""
        return Table(self.run("get", *_cpus(cpus), *_words(knobs)).data)

    def explain(self, *knobs: str) -> Table[Any]:
        return Table(run(["explain", *_words(knobs)]).data)

    def profiles(self) -> Table[Any]:
        return Table(self.run("profiles").data)

    def plan(self, settings: Settings, *, cpus: Optional[str] = None) -> Plan:
        """What `apply` would write."""
        data: types.PlanOutput = self.run("plan", *_cpus(cpus), *_settings(settings)).data
        return Plan(Table(data["changes"]), data["notes"])

    def apply(self, settings: Settings, *, cpus: Optional[str] = None, strict: bool = False) -> Applied:
        """Sets until reboot or `restore`.

        Where the kernel made another value of one, this is a ClampedWarning, or with `strict` the error Clamped. The values
        are set in both cases.
        """
        result = self.run("apply", *_cpus(cpus), *_settings(settings), results=(0, 7))
        data: types.SetOutput = result.data
        if result.exit_code == 7:
            clamped = cast(Clamped, error(7, result.messages, data))
            if strict:
                raise clamped
            warnings.warn(clamped.message, ClampedWarning, stacklevel=2)
        return Applied(Table([{**made["change"], "outcome": made["outcome"]} for made in data["made"]]), data["notes"])

    def verify(self, settings: Settings, *, cpus: Optional[str] = None) -> Verification:
        result = self.run("verify", *_cpus(cpus), *_settings(settings), results=(0, 5))
        data: types.VerifyOutput = result.data
        return Verification(result.exit_code == 0, Table(data["drifted"]), Table(data["owners"]), data["notes"])

    def doctor(self) -> Examination:
        data: types.DoctorOutput = self.run("doctor", results=(0, 8, 9)).data
        found = {finding["verdict"] for finding in data["findings"]}
        worst = [verdict for verdict in VERDICTS if verdict in found or verdict == "ok"][-1]
        return Examination(worst, Table(data["findings"]))

    def restore(self) -> types.RestoreOutput:
        """Restores everything that flyball changed."""
        data: types.RestoreOutput = self.run("restore").data
        return data

    @contextlib.contextmanager
    def held(self, settings: Settings, *, cpus: Optional[str] = None, priority: int = 100) -> Iterator[types.HoldAddOutput]:
        """Settings for the time of a with block, as a hold: other settings of this machine can be changed meanwhile.

        They are released at the end of the block, and also if this process is killed.
        """
        from .held import Hold

        hold = Hold(self._prefix, [*self._options, *self._state], [*_cpus(cpus), *_settings(settings)], priority)
        try:
            yield hold.data
        finally:
            hold.release()

    def compare(
        self,
        workload: Union[str, Sequence[str]],
        arms: Mapping[str, Mapping[str, Union[str, int, float, bool]]],
        *,
        output: Union[str, os.PathLike[str]],
        rounds: Optional[int] = None,
        options: Sequence[str] = (),
        progress: Optional[Progress] = None,
    ) -> Run:
        """Runs a workload under several settings in turn; the first arm is the baseline.

        A workload is a command, or as one word a built-in one. `output` is the run directory. `options` are further options
        of `flyball compare`. `progress` is called with each line that the program says meanwhile. Ctrl-C ends it, with
        settings restored and rounds kept.
        """
        named = [f"--arm={_arm(name, settings)}" for name, settings in arms.items()]
        count = [] if rounds is None else [f"--rounds={rounds}"]
        work = ["--workload", workload] if isinstance(workload, str) else ["--", *workload]
        # A comparison boots a simulated machine for each round, and accepts no kept state.
        arguments = [*self._options, "compare", *named, *count, "-o", os.fspath(output), *options, *work]
        run(arguments, prefix=self._prefix, progress=progress)
        return Run(output)


def _cpus(cpus: Optional[str]) -> List[str]:
    return [] if cpus is None else ["-c", cpus]


def _value(value: Union[str, int, float, bool]) -> str:
    return ("on" if value else "off") if isinstance(value, bool) else str(value)


def _settings(settings: Settings) -> List[str]:
    if isinstance(settings, (str, os.PathLike)):
        return _words([os.fspath(settings)])
    if not settings:
        raise ValueError("no settings are given")
    return _words([f"{knob}={_value(value)}" for knob, value in settings.items()])


def _words(words: Sequence[str]) -> List[str]:
    """Words that may come from anywhere: the program must not read one of them as an option."""
    for word in words:
        if word.startswith("-"):
            raise ValueError(f"{word!r}: a knob or a profile does not begin with '-'")
    return list(words)


def _arm(name: str, settings: Mapping[str, Union[str, int, float, bool]]) -> str:
    words = [f"{knob}={_value(value)}" for knob, value in settings.items()]
    # The program splits an arm at the first colon and at blanks.
    if ":" in name or any(len(word.split()) != 1 for word in words):
        raise ValueError(f"arm {name!r}: a name has no colon, and a setting no blank")
    return f"{name}: {' '.join(words)}"
