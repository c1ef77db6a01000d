"""Tables that are built in parts read as those that are built at once."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ptt.diagnostics.store.diagnosis import Tables, with_tables, write_table

SMALL = pl.DataFrame({"a": [1]})
PARTS = [pl.DataFrame({"a": [2, 3]}), pl.DataFrame({"a": [4]})]
WHOLE = pl.concat(PARTS)


def tables() -> Tables:
    return Tables({"small": SMALL}, {"large": lambda: iter(PARTS)})


def test_a_table_in_parts_is_read_whole_as_often_as_it_is_asked_for() -> None:
    found = tables()
    assert sorted(found) == ["large", "small"]
    assert all(found["large"].equals(WHOLE) for _ in range(2))


def test_a_table_takes_the_place_of_the_one_of_its_name_however_that_is_built() -> None:
    other = pl.DataFrame({"a": [9]})
    for name in ("small", "large", "new"):
        found = with_tables(tables(), {name: other})
        assert found[name].equals(other)
        assert sorted(found) == sorted({"small", "large", name})
        assert len(found) == len(list(found))


def test_parts_are_written_as_one_table(tmp_path: Path) -> None:
    for name, wanted in (("small", SMALL), ("large", WHOLE)):
        write_table(tables(), name, tmp_path / name)
        assert pl.read_parquet(tmp_path / name).equals(wanted)
