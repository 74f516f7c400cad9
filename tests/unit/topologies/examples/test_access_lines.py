"""Access log lines in both of Apache's formats."""

from __future__ import annotations

import pytest

from penstock.state.errors import SerdeError
from penstock.state.log import Record
from penstock.topologies.examples.access_lines import AccessLine, access_log, access_time

COMMON = b'127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326'
COMBINED = COMMON + b' "http://example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"'
AT_MS = 971_211_336_000


def test_a_common_line() -> None:
    line = access_log("common").deserialize(COMMON)
    assert line == AccessLine(
        "127.0.0.1", None, "frank", AT_MS, -420, "GET /apache_pb.gif HTTP/1.0", 200, 2326, None, None
    )
    assert (line.method, line.path, line.protocol) == ("GET", "/apache_pb.gif", "HTTP/1.0")
    assert access_time(Record(None, line)) == AT_MS


def test_a_combined_line() -> None:
    line = access_log().deserialize(COMBINED + b"\n")
    assert (line.referer, line.agent) == ("http://example.com/start.html", "Mozilla/4.08 [en] (Win98; I ;Nav)")


ODD = [
    rb'::1 - - [29/Feb/2024:00:00:00 +0530] "-" 408 - "-" "-"',
    rb'h - - [01/Jan/1970:00:00:00 +0000] "GET /\"q\\ HTTP/1.1" 404 0 "-" "a \"b\""',
    rb'h - - [31/Dec/1969:23:59:59 -0030] "\x16\x03\x01" 400 226',
    rb'h id John Smith [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 5',
]


@pytest.mark.parametrize("data", [COMMON, COMBINED, *ODD])
def test_lines_are_written_as_they_were_read(data: bytes) -> None:
    serde = access_log()
    line = serde.deserialize(data)
    again = serde.serialize(line)
    assert serde.deserialize(again) == line
    # of a combined line with neither referer nor agent the two dashes are left out
    assert data in (again, again + b' "-" "-"')
    assert access_log("combined").serialize(line).startswith(again)


def test_a_request_that_is_none_has_no_path() -> None:
    line = access_log().deserialize(ODD[2])
    assert (line.request, line.method, line.path, line.protocol) == (r"\x16\x03\x01", None, None, None)
    assert access_log().deserialize(ODD[0]).request is None


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"hello",
        COMMON + b" more",
        COMMON.replace(b"Oct", b"Okt"),
        COMMON.replace(b"10/Oct", b"31/Nov"),
        COMMON.replace(b"-0700", b"-9900"),
        COMMON.replace(b" 200 ", b" OK "),
        COMMON.replace(b"GET", b'GE"T'),
        b"\xff" + COMMON,
    ],
)
def test_other_lines_are_refused(bad: bytes) -> None:
    with pytest.raises(SerdeError):
        access_log().deserialize(bad)


def test_formats_are_told_apart() -> None:
    for form, data in (("common", COMBINED), ("combined", COMMON)):
        with pytest.raises(SerdeError, match=form):
            access_log(form).deserialize(data)  # type: ignore[arg-type]  # plain str in the loop
    with pytest.raises(SerdeError, match="unknown"):
        access_log("nginx")  # type: ignore[arg-type]  # the refusal is what is tested


def test_what_would_come_back_otherwise_is_not_written() -> None:
    line = access_log().deserialize(COMMON)
    for changed in ({"request": 'GET "'}, {"user": "-"}, {"time_ms": AT_MS + 1}, {"host": "a b"}):
        fields = {name: getattr(line, name) for name in line.__struct_fields__} | changed
        with pytest.raises(SerdeError):
            access_log().serialize(AccessLine(**fields))
    with pytest.raises(SerdeError, match="AccessLine"):
        access_log().serialize("text")  # type: ignore[arg-type]  # the refusal is what is tested


@pytest.mark.parametrize(
    "part", [" [", ' [10/Oct/2000:13:55:36 -0700] "', ' [10/Oct/2000:13:55:36 -0700] "\\"', ' "', "\\"]
)
def test_a_long_line_of_no_format_is_refused_at_once(part: str) -> None:
    """A client chooses what stands in the request and the agent. Where each place was tried, this took hours."""
    line = COMMON + f' "-" "{part * 100_000}" more'.encode()
    with pytest.raises(SerdeError, match="is not an access log line"):
        access_log().deserialize(line)


def test_digits_are_those_of_ascii_and_sizes_have_an_end() -> None:
    for bad in (COMMON.replace(b"200", "٢٠٠".encode()), COMMON.replace(b"2326", b"9" * 5_000)):
        with pytest.raises(SerdeError, match="is not an access log line"):
            access_log().deserialize(bad)
