"""Rows of dictionaries as a table for polars, pandas, Arrow and notebooks. None of these is needed to import the package."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any, Dict, Generic, Iterator, List, Mapping, Sequence, TypeVar, Union, overload

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

Row = TypeVar("Row", bound=Mapping[str, Any])


class Table(Sequence[Row], Generic[Row]):
    """Rows, as the program printed them, and the same as columns."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._rows = rows

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> Table[Row]: ...
    def __getitem__(self, index: Union[int, slice]) -> Union[Row, Table[Row]]:
        return Table(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and list(self._rows) == list(other._rows)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(self.columns())})"

    def columns(self) -> Dict[str, List[Any]]:
        """Each column's values.

        A column has one type. Where values have several (a number here, a word there), each is its JSON text; words stay
        as they are. Lists and objects are JSON text, too.
        """
        names = dict.fromkeys(name for row in self._rows for name in row)
        return {name: _one_type([row.get(name) for row in self._rows]) for name in names}

    def to_arrow(self) -> pyarrow.Table:
        import pyarrow

        return pyarrow.table(self.columns())

    def to_polars(self) -> polars.DataFrame:
        import polars

        return polars.DataFrame(self.columns(), strict=False)

    def to_pandas(self) -> pandas.DataFrame:
        import pandas

        return pandas.DataFrame(self.columns())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        columns = self.columns()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        shown = [column[:60] for column in columns.values()]
        cells = ("".join(f"<td>{html.escape(str(value))}</td>" for value in row) for row in zip(*shown))
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        more = f"<p>{len(self) - 60} more rows</p>" if len(self) > 60 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _one_type(values: List[Any]) -> List[Any]:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int, float}:
        return [None if value is None else float(value) for value in values]
    if len(kinds) <= 1 and not kinds & {list, dict}:
        return values
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
