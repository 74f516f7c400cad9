"""Files as sources: the contract, and what is the files' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet as parquet
import pytest

from penstock.connectors import CsvSource, JsonLinesSource, ParquetSource, Source
from penstock.state.errors import EnvironmentFault, IncompatibleError, SettingsError
from penstock.testing import SourceContract

ROWS = [{"city": "Rome", "n": number} for number in range(6)]


class TestCsv(SourceContract):
    def source(self) -> Source:
        (self.folder / "a.csv").write_text('city,n\n"Ro\nme",1\r\nOslo,\n\n"a ""b""",3\nx,4\ny,5\nz,6')
        (self.folder / "b.csv").write_text("\ufeffcity,n\nRome,7\n")
        return CsvSource(str(self.folder / "*.csv"), key="city")


class TestJsonLines(SourceContract):
    def source(self) -> Source:
        (self.folder / "a.jsonl").write_text('{"city":"Rome","n":1}\n\n[2]\n3\r\nnull\n"é"\n{"city":')
        (self.folder / "b.jsonl").write_text('{"n":7}\n')
        return JsonLinesSource(str(self.folder / "*.jsonl"))


class TestParquet(SourceContract):
    def source(self) -> Source:
        for name in ("a", "b"):
            table = pyarrow.Table.from_pylist(ROWS)
            parquet.write_table(table, self.folder / f"{name}.parquet", row_group_size=4)
        return ParquetSource(str(self.folder / "*.parquet"), key="city")


def values(source: Source, split: str = "f", position: str | None = None) -> tuple[list[Any], str]:
    reader = source.open(split, position)
    batch = reader.read(100)
    reader.close()
    assert batch.position is not None
    return [record.error or record.value for record in batch.records], batch.position


def test_csv_has_texts_and_nulls_by_the_names_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('a;b\n1;"x;\ny"\n;2\n')
    source = CsvSource(str(tmp_path / "f"), delimiter=";", key="a")
    assert values(source)[0] == [{"a": "1", "b": "x;\ny"}, {"a": None, "b": "2"}]


def test_lines_that_cannot_be_read_are_named_and_the_next_are_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b'a,b\n1\n"x"y,2\n3,\xff\n4,5\n')
    reader = CsvSource(str(tmp_path / "f")).open("f", None)
    found = reader.read(100).records
    reader.close()
    assert [record.place.rpartition("/")[2] for record in found] == [f"f, line {n}" for n in (2, 3, 4, 5)]
    assert [record.error for record in found] == [
        "it has 1 cells, and the first line names 2: a, b",
        "it is not CSV (',' expected after '\"')",
        "it is not utf-8 (invalid start byte at byte 2 of the line)",
        None,
    ]
    assert found[-1].value == {"a": "4", "b": "5"}


def test_json_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"a":1}\n{"a"\n{"a":2}\n')
    found, _ = values(JsonLinesSource(str(tmp_path / "f")))
    assert found[0] == {"a": 1}
    assert found[1].startswith("it is not JSON (Input data was truncated)")
    assert found[2] == {"a": 2}


@pytest.mark.parametrize("kind", [CsvSource, JsonLinesSource])
def test_a_file_that_has_grown_is_read_on(tmp_path: Path, kind: type[CsvSource | JsonLinesSource]) -> None:
    path = tmp_path / "f"
    head, rows = ("n\n", ["1", "2", "3"]) if kind is CsvSource else ("", ['{"n":"1"}', '{"n":"2"}', '{"n":"3"}'])
    path.write_text(head + rows[0])  # a last line without its end
    found, position = values(kind(str(path)))
    assert found == [{"n": "1"}]
    path.write_text(head + "\n".join(rows) + "\n")
    found, position = values(kind(str(path)), position=position)
    assert found == [{"n": "2"}, {"n": "3"}]
    assert values(kind(str(path)), position=position)[0] == []


def test_the_rest_of_a_line_that_was_taken_for_whole_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("1\n2")
    _, position = values(JsonLinesSource(str(path)))
    path.write_text("1\n23\n")
    with pytest.raises(IncompatibleError, match=r"goes on within its line 2, .*set complete=False"):
        JsonLinesSource(str(path)).open("f", position)


def test_an_incomplete_line_waits_for_its_end(tmp_path: Path) -> None:
    path = tmp_path / "f"
    source = CsvSource(str(path), complete=False)
    found: list[Any] = []
    position = None
    for content in ("n", "n\n", "n\n1\n2", 'n\n1\n22\n"x\n', 'n\n1\n22\n"x\ny"\n'):
        path.write_text(content)
        got, position = values(source, position=position)
        found.append([row["n"] for row in got])
    assert found == [[], [], ["1"], ["22"], ["x\ny"]]


@pytest.mark.parametrize("changed", ["x\n2\n", "1\n", "1\r\n2\n3\n"])
def test_a_file_that_was_replaced_is_refused(tmp_path: Path, changed: str) -> None:
    path = tmp_path / "f"
    path.write_text("1\n2\n")
    _, position = values(JsonLinesSource(str(path)))
    path.write_bytes(changed.encode())
    with pytest.raises(IncompatibleError, match="is not the one that was read up to byte 4"):
        JsonLinesSource(str(path)).open("f", position)


def test_a_parquet_file_that_was_replaced_or_is_incomplete_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    found, position = values(ParquetSource(str(path)))
    assert found == ROWS
    parquet.write_table(pyarrow.Table.from_pylist(ROWS[1:]), path)
    with pytest.raises(IncompatibleError, match="is not the one of which 6 rows were read"):
        ParquetSource(str(path)).open("f", position)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(EnvironmentFault, match="is not a complete Parquet file"):
        ParquetSource(str(path)).open("f", None)


def test_splits_are_named_from_the_first_folder_of_the_pattern_on(tmp_path: Path) -> None:
    for name in ("x/2.csv", "x/1.csv", "y/z/3.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a\n1\n")
    source = CsvSource(str(tmp_path / "**" / "*.csv"))
    assert source.splits() == ["x/1.csv", "x/2.csv", "y/z/3.csv"]
    assert values(source, "y/z/3.csv")[0] == [{"a": "1"}]
    assert CsvSource(str(tmp_path / "x" / "1.csv")).splits() == ["1.csv"]
    with pytest.raises(SettingsError, match="there is no file"):
        CsvSource(str(tmp_path / "x" / "9.csv")).splits()


def test_keys_and_times_come_from_columns(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a,b,at\n1,2,1970-01-01T00:00:01Z\n1,2,1970-01-02\n1,2,77\n1,2,soon\n")
    reader = CsvSource(str(tmp_path / "f"), key=["a", "b"], timestamp="at").open("f", None)
    found = reader.read(10).records
    reader.close()
    assert [record.timestamp_ms for record in found] == [1_000, 86_400_000, 77, None]
    assert found[0].key == {"a": "1", "b": "2"}
    assert "soon" in (found[3].error or "")
    (tmp_path / "g").write_text("a\n1\n")
    reader = CsvSource(str(tmp_path / "g"), key="b").open("g", None)
    assert reader.read(1).records[0].error == "there is no column 'b', which key= or timestamp= names; there are: a"
    reader.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"path": ""}, "path is empty"),
        ({"path": "x", "delimiter": ";;"}, "give one character"),
        ({"path": "x", "encoding": "utf-16"}, "lines do not end with one byte"),
        ({"path": "x", "encoding": "nope"}, "unknown encoding"),
    ],
)
def test_wrong_settings_are_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        CsvSource(**given)


def test_a_first_line_that_names_no_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a,a\n1,2\n")
    with pytest.raises(SettingsError, match="must name the columns"):
        values(CsvSource(str(tmp_path / "f")))
