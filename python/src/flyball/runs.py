"""Run directories of comparisons as tables: rounds, summaries, verdicts, samples."""

from __future__ import annotations

import glob
import json
import os
import stat
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Sequence, TextIO, Tuple, Union

from .tables import Table

if TYPE_CHECKING:
    from . import types

Path = Union[str, "os.PathLike[str]"]

# No run has a manifest or report of this size; a directory of somebody else may.
MAX_CHARACTERS = 64 << 20


class NotARun(ValueError):
    """A directory that is not a finished run, or of a newer format."""


class Run:
    """A run directory. Only its files are read; the numbers of tables are those of report.json and rounds.jsonl."""

    def __init__(self, directory: Path) -> None:
        self.directory = os.fspath(directory)
        self.manifest: types.ManifestFile = self._json("manifest.json")
        form, version = self.manifest.get("format"), self.manifest.get("version")
        if (form, version) != ("flyball-comparison", 1):
            raise NotARun(f"{self.directory}: format {form!r} version {version!r}; this package reads version 1 of comparisons")
        self.report: types.ReportOutput = self._json("report.json")
        if self.report.get("schema") != "report/1":
            raise NotARun(f"{self.directory}: report.json has schema {self.report.get('schema')!r}, not report/1")

    def __repr__(self) -> str:
        return f"Run({self.directory!r})"

    def _json(self, name: str) -> Any:
        try:
            with _opened(os.path.join(self.directory, name)) as file:
                found = json.loads(file.read(MAX_CHARACTERS))
        except FileNotFoundError:
            raise NotARun(f"{self.directory}: {name} is missing; `flyball report DIR` makes the report of a stopped run") from None
        except (ValueError, RecursionError) as why:
            raise NotARun(f"{self.directory}: {name} is damaged: {why}") from None
        if not isinstance(found, dict):
            raise NotARun(f"{self.directory}: {name} is damaged: it is no object")
        return found

    @property
    def _lines(self) -> Iterator[types.RoundFile]:
        # Not kept: the readings of a thousand runs would fill the memory.
        with _opened(os.path.join(self.directory, "rounds.jsonl")) as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)
                except ValueError as why:
                    # A line that was being written when the machine went down: the report does not have it either.
                    if line.endswith("\n"):
                        raise NotARun(f"{self.directory}: rounds.jsonl line {number} is damaged: {why}") from None

    def rounds(self, *, uncounted: bool = False) -> Table[Any]:
        """A row for each round that counts and each quantity.

        With `uncounted` also warm-ups and rounds that were left out, with their performance and the reason.
        """
        arms = self.report["arms"]
        machine = self.report["machine"]["name"]
        rows = [
            _row(machine, arm["name"], point["boot"], point["block"], summary["quantity"], summary["metric"], point["value"])
            for arm in arms
            for summary in arm["summaries"]
            for point in summary["points"]
        ]
        return Table(rows + self._uncounted(machine) if uncounted else rows)

    def _uncounted(self, machine: str) -> List[Dict[str, Any]]:
        arms = self.report["arms"]
        metric = self.report["workload"]["metric"]
        left_out = {(at, out["boot"], out["block"]): out["why"] for at, arm in enumerate(arms) for out in arm["left_out"]}
        rows = []
        for line in self._lines:
            why = left_out.get((line["arm"], line["boot"], line["block"]))
            if line["warm_up"] or why is not None:
                value = line["outcome"]["value"]
                row = _row(machine, arms[line["arm"]]["name"], line["boot"], line["block"], "performance", metric, value)
                rows.append({**row, "warm_up": line["warm_up"], "left_out": None if line["warm_up"] else why})
        return rows

    def summaries(self) -> Table[Any]:
        """A row for each arm and quantity: median, mean, deviation, the median's interval."""
        rows = []
        for arm in self.report["arms"]:
            for summary in arm["summaries"]:
                interval = summary["interval"] or {"low": None, "high": None}
                rows.append(
                    {
                        "arm": arm["name"],
                        "quantity": summary["quantity"],
                        "metric": summary["metric"]["name"],
                        "unit": summary["metric"]["unit"],
                        **{key: summary[key] for key in ("median", "mean", "deviation")},
                        "low": interval["low"],
                        "high": interval["high"],
                    }
                )
        return Table(rows)

    def verdicts(self) -> Table[Any]:
        """A row for each arm but the first and each compared quantity: the change as a fraction, and what it shows."""
        names = [arm["name"] for arm in self.report["arms"]]
        rows = []
        for found in self.report["comparisons"]:
            interval = found["interval"] or {"low": None, "high": None}
            row: Dict[str, Any] = {**found, "base": names[found["base"]], "arm": names[found["arm"]]}
            row.update(low=interval["low"], high=interval["high"])
            del row["interval"]
            steadiness = dict(row.pop("steadiness", ()))
            if steadiness:
                first, second = steadiness.pop("spreads")
                row.update({f"steadiness_{key}": value for key, value in steadiness.items()})
                row.update(base_spread=first, arm_spread=second)
            rows.append(row)
        return Table(rows)

    def samples(self, meter: str) -> Table[Any]:
        """The readings during rounds, one row each: energy (J since the round's start; W of a power meter), frequency
        (kHz) or temperature (degrees Celsius)."""
        arms = [arm["name"] for arm in self.manifest["arms"]]
        rows = []
        for line in self._lines:
            meters = self.manifest["boots"][line["boot"]]["meters"]
            for source, readings in zip(_sources(meters, meter), line["readings"][meter]):  # type: ignore[literal-required]
                name, unit, scale, wraps, relative = source
                start = readings[0][1] if relative and readings else 0
                for seconds, count in readings:
                    difference = count - start
                    value = (difference % wraps if wraps and relative else difference) * scale
                    rows.append(
                        {
                            "arm": arms[line["arm"]],
                            "boot": line["boot"],
                            "block": line["block"],
                            "warm_up": line["warm_up"],
                            "source": name,
                            "seconds": seconds,
                            "value": value,
                            "unit": unit,
                        }
                    )
        return Table(rows)

    def _repr_html_(self) -> str:
        return self.verdicts()._repr_html_()


class Runs(Sequence[Run]):
    """Many run directories. `skipped` has those that could not be read, each with the reason."""

    def __init__(self, runs: List[Run], skipped: List[Tuple[str, str]]) -> None:
        self._runs = runs
        self.skipped = skipped

    def __getitem__(self, index: Any) -> Any:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    def __repr__(self) -> str:
        return f"Runs({len(self)} runs, {len(self.skipped)} skipped)"

    def rounds(self) -> Table[Any]:
        return self._all("rounds")

    def summaries(self) -> Table[Any]:
        return self._all("summaries")

    def verdicts(self) -> Table[Any]:
        return self._all("verdicts")

    def _all(self, table: str) -> Table[Any]:
        return Table([{"run": run.directory, **row} for run in self for row in getattr(run, table)()])


def read_run(directory: Path) -> Run:
    return Run(directory)


def read_runs(*patterns: Path) -> Runs:
    """All run directories of these names, which may have `*`. A directory that is not a finished run is in `skipped`."""
    runs, skipped = [], []
    for directory in dict.fromkeys(found for pattern in patterns for found in _matching(os.fspath(pattern))):
        try:
            run = Run(directory)
            run.rounds()
            runs.append(run)
        # Whatever is wrong with one directory, the others are read.
        except Exception as why:
            known = isinstance(why, (NotARun, OSError))
            skipped.append((directory, str(why) if known else f"{directory}: a field is missing or of another type: {why!r}"))
    return Runs(runs, skipped)


def _opened(path: str) -> TextIO:
    """A regular file. A pipe of that name would be waited for, for ever."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)

    file = open(path, encoding="utf-8", opener=opener)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("it is no regular file")
    return file


def _matching(pattern: str) -> List[str]:
    return sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]


def _row(machine: str, arm: str, boot: int, block: int, quantity: str, metric: types.Metric, value: Any) -> Dict[str, Any]:
    return {
        "machine": machine,
        "arm": arm,
        "boot": boot,
        "block": block,
        "quantity": quantity,
        "metric": metric["name"],
        "value": value,
        "unit": metric["unit"],
        "warm_up": False,
        "left_out": None,
    }


def _sources(meters: types.MeterList, meter: str) -> List[Tuple[str, str, float, int, bool]]:
    """Of each source of a meter: name, unit, scale, where its counter wraps around, whether it counts up."""
    if meter == "energy":
        return [
            (found["name"], "W" if found["is_power"] else "J", found["unit"], found["wraps_after"], not found["is_power"])
            for found in meters["energy"]
        ]
    if meter == "frequency":
        return [(f"cpu{cpu}", "kHz", 1, 0, False) for cpu, _ in meters["frequency"]]
    if meter == "temperature":
        return [(str(name), "C", 0.001, 0, False) for name, _ in meters["temperature"]]
    raise ValueError(f"no meter {meter!r}: energy, frequency or temperature")
