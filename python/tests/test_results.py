"""The queries of docs/results.md, on a dataset of three hosts, against what `results export` prints."""

from __future__ import annotations

import csv
import io
import json
import os
import pathlib
import re
import statistics
import subprocess
from typing import Any

import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "results.md"


def flyball_of(folder: pathlib.Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([os.environ["FLYBALL"], *words], cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the dataset `results`."""
    folder = tmp_path_factory.mktemp("dataset")
    if flyball_of(folder, "results", "list", "nowhere").returncode == 4:
        pytest.skip("the program is built without Parquet")
    for number, machine in enumerate(["ryzen-5750g", "gold-6138", "hybrid-laptop"]):
        host = folder / "collected" / f"node{number}"
        host.mkdir(parents=True)
        run = ["compare", "--arm", "now", "--arm", "slow:max-freq=min", "--rounds", "2", "--workload", "sched-pipe"]
        ran = flyball_of(folder, "-M", f"sim:{machine}", *run, "-o", str(host / "run"))
        assert ran.returncode == 0, ran.stderr
        manifest = json.loads((host / "run" / "manifest.json").read_text())
        manifest["machine"]["system"]["hostname"] = f"node{number}"
        (host / "run" / "manifest.json").write_text(json.dumps(manifest))
        (host / "doctor.json").write_text(flyball_of(folder, "-M", f"sim:{machine}", "--json", "doctor").stdout)
        (host / "show.json").write_text(flyball_of(folder, "-M", f"sim:{machine}", "--json", "show").stdout)
    added = flyball_of(folder, "results", "add", "results", "collected")
    assert added.returncode == 0, added.stderr
    return folder


def exported(dataset: pathlib.Path, kind: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(flyball_of(dataset, "results", "export", "results", kind).stdout)))


def medians(dataset: pathlib.Path) -> list[tuple[str, str, str, str, int, float]]:
    """What the queries are to give, of the CSV."""
    values: dict[tuple[str, str, str, str], list[float]] = {}
    for row in exported(dataset, "rounds"):
        if row["warm_up"] == "false" and not row["failure"]:
            key = (row["host"], row["benchmark"], row["arm"], row["metric"])
            values.setdefault(key, []).append(float(row["value"]))
    assert len(values) == 6
    return [(*key, len(of), statistics.median(of)) for key, of in sorted(values.items())]


def same(rows: list[Any], dataset: pathlib.Path) -> None:
    expected = medians(dataset)
    assert [tuple(row)[:5] for row in rows] == [row[:5] for row in expected]
    assert [row[5] for row in rows] == pytest.approx([row[5] for row in expected])


def documented(engine: str) -> list[str]:
    found = re.findall(rf"```(?:sql|python)\n(?:--|#) {engine}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found, engine
    return [str(code) for code in found]


def test_duckdb(dataset: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(dataset)
    answers = [duckdb.sql(query).fetchall() for query in documented("duckdb")]
    assert len(answers) == 3
    same(answers[0], dataset)
    assert sum(row[2] or 0 for row in answers[1]) > 0
    hosts: dict[str, set[str]] = {}
    for row in exported(dataset, "findings"):
        hosts.setdefault(row["verdict"], set()).add(row["host"])
    assert answers[2] == sorted((verdict, len(of)) for verdict, of in hosts.items())
    kinds = duckdb.sql("DESCRIBE SELECT * FROM 'results/version=1/kind=rounds/*/*.parquet'").fetchall()
    assert dict((row[0], row[1]) for row in kinds)["time"].startswith("TIMESTAMP")


def test_polars(dataset: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pl = pytest.importorskip("polars")
    monkeypatch.chdir(dataset)
    path = "results/version=1/kind=rounds/**/*.parquet"
    assert f'pl.scan_parquet("{path}", hive_partitioning=True)' in PAGE.read_text()
    medians = (
        pl.scan_parquet(path, hive_partitioning=True)
        .filter(~pl.col("warm_up") & pl.col("failure").is_null())
        .group_by("host", "benchmark", "arm", "metric")
        .agg(pl.len().alias("rounds"), pl.col("value").median().alias("median"))
        .sort("host", "benchmark", "arm", "metric")
        .collect()
    )
    same(medians.rows(), dataset)


def test_spark(dataset: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql")
    f = pytest.importorskip("pyspark.sql.functions")
    monkeypatch.chdir(dataset)
    path = "results/version=1/kind=rounds"
    assert f'spark.read.option("mergeSchema", "true").parquet("{path}")' in PAGE.read_text()
    spark = sql.SparkSession.builder.master("local[1]").getOrCreate()
    medians = (
        spark.read.option("mergeSchema", "true")
        .parquet(path)
        .where("not warm_up and failure is null")
        .groupBy("host", "benchmark", "arm", "metric")
        .agg(f.count("*").alias("rounds"), f.percentile("value", f.lit(0.5)).alias("median"))
        .orderBy("host", "benchmark", "arm", "metric")
    )
    same(medians.collect(), dataset)
    spark.stop()
