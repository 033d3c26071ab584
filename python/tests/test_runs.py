"""Run directories as tables, many of them, and damaged ones."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import time
from typing import Any, Iterator

import pytest

import flyball


def numbers(value: Any) -> Iterator[float]:
    """Every number of a JSON document."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def test_every_number_of_the_report_is_in_the_tables(run_directory: pathlib.Path) -> None:
    run = flyball.read_run(run_directory)
    report = json.loads((run_directory / "report.json").read_text())
    for arm in report["arms"]:
        for summary in arm["summaries"]:
            of_arm = {"arm": arm["name"], "quantity": summary["quantity"]}
            rows = [row for row in run.rounds() if of_arm.items() <= row.items()]
            points = [(point["boot"], point["block"], point["value"]) for point in summary["points"]]
            assert [(row["boot"], row["block"], row["value"]) for row in rows] == points
            (row,) = [row for row in run.summaries() if of_arm.items() <= row.items()]
            for key in ("median", "mean", "deviation"):
                assert row[key] == summary[key]
            assert {"low": row["low"], "high": row["high"]} == summary["interval"]
    assert len(run.verdicts()) == len(report["comparisons"])
    for row, found in zip(run.verdicts(), report["comparisons"]):
        del found["base"], found["arm"]
        assert set(numbers(found)) <= set(numbers(row))


def test_warm_ups_are_there_on_request(run_directory: pathlib.Path) -> None:
    run = flyball.read_run(run_directory)
    more = run.rounds(uncounted=True)[len(run.rounds()) :]
    assert [(row["warm_up"], row["left_out"], row["quantity"]) for row in more] == [(True, None, "performance")] * 2
    assert {row["arm"] for row in more} == {"now", "off"}


def test_tables_are_equal_in_every_library(run_directory: pathlib.Path) -> None:
    run = flyball.read_run(run_directory)
    for table in (run.rounds(), run.summaries(), run.verdicts(), run.samples("energy"), run.samples("frequency")):
        columns = table.columns()
        assert table.to_arrow().to_pydict() == columns
        assert table.to_polars().to_dict(as_series=False) == columns
        assert list(table.to_pandas().columns) == list(columns)
    laptop = flyball.Machine("sim:hybrid-laptop")
    assert laptop.show().rows.to_polars().height == len(laptop.show().rows)


def test_samples_count_up_and_agree_with_the_report(run_directory: pathlib.Path) -> None:
    run = flyball.read_run(run_directory)
    energy = [row for row in run.rounds() if row["quantity"] == "energy" and row["arm"] == "off" and row["block"] == 0]
    samples = [
        row["value"]
        for row in run.samples("energy")
        if (row["arm"], row["block"], row["source"], row["warm_up"]) == ("off", 0, "package-0", False)
    ]
    assert samples == sorted(samples)
    assert samples[-1] == pytest.approx(energy[0]["value"], rel=0.05)
    with pytest.raises(ValueError):
        run.samples("nonsense")


def test_what_is_not_a_run_is_named_and_skipped(run_directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for name in ("good", "newer", "half", "torn", "fields"):
        shutil.copytree(run_directory, tmp_path / name)
    manifest = json.loads((run_directory / "manifest.json").read_text())
    (tmp_path / "newer/manifest.json").write_text(json.dumps({**manifest, "version": 2}))
    (tmp_path / "half/report.json").unlink()
    (tmp_path / "torn/manifest.json").write_text('{"format": ')
    (tmp_path / "fields/report.json").write_text('{"schema": "report/1"}')
    (tmp_path / "empty").mkdir()
    # Of somebody who wants to end the reading of all others.
    hostile = {"null": "null", "list": "[]", "deep": "[" * 200_000, "text": '"flyball-comparison"'}
    for name, text in hostile.items():
        for file in ("manifest.json", "report.json"):
            shutil.copytree(run_directory, tmp_path / f"{name}-{file}")
            (tmp_path / f"{name}-{file}" / file).write_text(text)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe/manifest.json")
    hostile_names = {f"{name}-{file}" for name in hostile for file in ("manifest.json", "report.json")} | {"pipe"}
    runs = flyball.read_runs(tmp_path / "*", tmp_path / "absent")
    assert [run.directory for run in runs] == [str(tmp_path / "good")]
    reasons = {pathlib.Path(name).name: why for name, why in runs.skipped}
    assert set(reasons) == {"newer", "half", "torn", "empty", "absent", "fields"} | hostile_names
    assert "version 2" in reasons["newer"] and "report.json is missing" in reasons["half"]
    with pytest.raises(flyball.NotARun, match="version 2"):
        flyball.read_run(tmp_path / "newer")


def test_a_thousand_runs_in_ten_seconds(run_directory: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for number in range(1000):
        (tmp_path / str(number)).symlink_to(run_directory)
    began = time.process_time()
    runs = flyball.read_runs(tmp_path / "*")
    rows = runs.rounds()
    spent = time.process_time() - began
    print(f"{len(runs)} runs, {len(rows)} rows: {spent:.2f} s")
    assert len(runs) == 1000 and spent < 10


def test_progress_is_reported_and_ends_a_comparison(tmp_path: pathlib.Path) -> None:
    lines: list[str] = []
    machine = flyball.Machine("sim:hybrid-laptop")
    machine.compare("sched-pipe", {"now": {}, "off": {"turbo": False}}, output=tmp_path / "a", rounds=2, progress=lines.append)
    assert any(" left" in line for line in lines)

    def interrupt(line: str) -> None:
        if " left" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        machine.compare("sched-pipe", {"now": {}, "off": {"turbo": False}}, output=tmp_path / "b", rounds=1000, progress=interrupt)
    # The program ended by itself, and the rounds until then are there.
    assert (tmp_path / "b/rounds.jsonl").read_text().endswith("\n")


def test_arms_that_the_program_would_split_are_refused(tmp_path: pathlib.Path) -> None:
    for arms in ({"a:b": {"turbo": True}}, {"a": {"max-freq": "2 GHz"}}):
        with pytest.raises(ValueError):
            flyball.Machine("sim:hybrid-laptop").compare("sched-pipe", arms, output=tmp_path / "c")
