"""Traces of the P-state drivers as Arrow tables."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Union

from .process import run

if TYPE_CHECKING:
    import pyarrow


def read_trace(file: Union[str, os.PathLike[str]]) -> pyarrow.Table:
    """The driver's decisions in a trace: a row for each record, with the columns of the kernel's tracers. Needs pyarrow.

    The program decodes the trace; `polars.from_arrow` and `to_pandas` take the table without copying most of it.
    """
    import tempfile

    import pyarrow.csv

    with tempfile.TemporaryDirectory(prefix="flyball-") as folder:
        run(["trace", "report", "--csv", folder, "--no-per-cpu", os.fspath(file)])
        table = pyarrow.csv.read_csv(os.path.join(folder, "cpu.csv"))
    # The kernel's tracers write a blank after each comma of the header.
    return table.rename_columns([name.strip() for name in table.column_names])
