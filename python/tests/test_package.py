"""The package itself: generated types, import time, the wheel, the notebook, traces."""

from __future__ import annotations

import doctest
import os
import pathlib
import statistics
import subprocess
import sys
import time
import zipfile

import flyball

HERE = pathlib.Path(__file__).parent.parent


def test_types_are_those_of_the_schemas() -> None:
    subprocess.run([sys.executable, HERE / "generate_types.py", "--check"], check=True)


def test_examples_of_the_documentation() -> None:
    assert doctest.testmod(flyball).failed == 0
    for page in (HERE / "README.md", HERE.parent / "docs/python.md"):
        result = doctest.testfile(str(page), module_relative=False)
        assert result.attempted and not result.failed


def test_import_takes_little_time_and_no_other_package() -> None:
    environment = {**os.environ, "PYTHONPATH": str(HERE / "src")}

    def seconds(code: str) -> float:
        times = []
        for _ in range(11):
            began = os.times().children_user + os.times().children_system
            subprocess.run([sys.executable, "-c", code], env=environment, check=True)
            times.append(os.times().children_user + os.times().children_system - began)
        return statistics.median(times)

    more = seconds("import flyball") - seconds("pass")
    print(f"import: {more * 1000:.0f} ms CPU")
    assert more < 0.2  # A loaded machine; alone it is below 0.04.
    code = "import flyball, sys; print([m for m in ('polars', 'pandas', 'pyarrow', 'flyball.types') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True).stdout
    assert printed == "[]\n"


def test_the_wheel_brings_the_program_and_the_sdist_does_not(tmp_path: pathlib.Path) -> None:
    environment = {**os.environ, "FLYBALL_BINARY": flyball.program()}
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(build, cwd=HERE, env=environment, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    # A program that a dynamic linker loads is for this system only.
    is_static = b"=>" not in subprocess.run(["ldd", flyball.program()], capture_output=True).stdout
    assert ("manylinux_2_17" in wheel.name and "musllinux" in wheel.name) == is_static, wheel.name
    entries = {entry.filename: entry for entry in zipfile.ZipFile(wheel).infolist()}
    program = entries["flyball_cpu-0.1.0.data/scripts/flyball"]
    assert program.external_attr >> 16 & 0o111 == 0o111
    assert {"flyball/py.typed", "flyball/types.py"} <= set(entries)
    (sdist,) = tmp_path.glob("*.tar.gz")
    assert sdist.stat().st_size < 200_000


def test_the_notebook_runs(tmp_path: pathlib.Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.reads((HERE / "notebooks/compare.ipynb").read_text(), as_version=4)  # type: ignore[no-untyped-call]
    began = time.monotonic()
    nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    print(f"notebook: {time.monotonic() - began:.1f} s")


def test_a_trace_is_a_table(tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "trace.txt"
    lines = (
        f"          <idle>-0     [{number % 8:03}] d.h. {100 + number / 1000:.6f}: amd_pstate_perf: amd_min_perf=85 "
        f"amd_des_perf={100 + number % 60} amd_max_perf=166 freq={2000000 + number} mperf={1000 + number} aperf={900 + number} "
        f"tsc={20000 + 2 * number} cpu_id={number % 8} fast_switch=true\n"
        for number in range(2000)
    )
    trace.write_text("# tracer: nop\n" + "".join(lines))
    table = flyball.read_trace(trace)
    assert table.num_rows > 1900
    assert {"min_perf", "des_perf", "freq", "load"} <= set(table.column_names)
