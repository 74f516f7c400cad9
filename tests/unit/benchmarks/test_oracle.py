"""The oracle counts from the numbers; here the same answers are found in the bytes, record by record."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from benchmarks import data, oracle
from benchmarks.workloads import WORKLOADS, Run, Variant

BASE_MS = 1_795_219_200_000
RECORDS = 60_000


def test_views_per_window_are_those_of_the_events() -> None:
    ads = next(data.ads(data.ADS, BASE_MS))
    campaign_of = {
        key.decode(): json.loads(value)["campaign_id"] for key, value in zip(ads.keys or [], ads.values, strict=True)
    }
    found: Counter[str] = Counter()
    for block in data.events(RECORDS, BASE_MS + 7_000):
        for value in block.values:
            event = json.loads(value)
            if event["event_type"] == "view":
                start_ms = event["event_time"] // 10_000 * 10_000
                found[f"{campaign_of[event['ad_id']]}@{start_ms}"] += 1
    assert oracle.views_per_window(RECORDS, BASE_MS + 7_000) == found
    assert len({name.split("@")[1] for name in found}) == 2


def test_uses_per_word_are_those_of_the_lines() -> None:
    found = Counter(word for block in data.lines(RECORDS, BASE_MS) for line in block.values for word in line.split())
    assert oracle.uses_per_word(RECORDS) == {word.decode(): count for word, count in found.items()}


def test_clicks_per_user_are_those_of_the_clicks() -> None:
    found = Counter(key.decode() for block in data.clicks(RECORDS, BASE_MS) for key in block.keys or [])
    assert oracle.clicks_per_user(RECORDS) == found


def enriched(records: int, users: int = data.USERS) -> list[tuple[bytes | None, bytes | None]]:
    """What a right ``enrich`` writes, from the bytes of both topics; each system has its own order of fields and blanks."""
    profiles = {
        key: json.loads(value)
        for block in data.users(users, BASE_MS)
        for key, value in zip(block.keys or [], block.values, strict=True)
    }
    return [
        (key, json.dumps({**json.loads(value), "profile": profiles[key]}).encode())
        for block in data.clicks(records, BASE_MS, users)
        for key, value in zip(block.keys or [], block.values, strict=True)
    ]


USERS = 60_000


def verdict_of_enriched(answer: oracle.Answer, records: int) -> oracle.Verdict:
    """As the workload holds it."""
    variant, remember = Variant(keys=USERS), lambda _name, count: count()
    run = Run(records, BASE_MS, variant, lambda: answer, dict, remember)
    return WORKLOADS["enrich"].check(run)


def test_enriched_clicks_are_accepted_in_any_order_and_spelling() -> None:
    answer = enriched(RECORDS, USERS)
    assert verdict_of_enriched(answer, RECORDS).right
    compact = [(key, oracle.as_json(value or b"")) for key, value in reversed(answer)]
    assert verdict_of_enriched(compact, RECORDS).right
    assert sorted(compact) == sorted(oracle.enriched(RECORDS, BASE_MS, USERS))


@pytest.mark.parametrize(
    "fault",
    ["lost", "doubled", "profile", "user", "url", "ts", "one field of the profile", "one more field", "another's key"],
)
def test_wrong_enrichment_is_refused(fault: str) -> None:
    answer = enriched(500, USERS)
    (key, value), (other_key, other_value) = answer[3], answer[4]
    click, other = json.loads(value or b""), json.loads(other_value or b"")
    if fault == "lost":
        del answer[3]
    elif fault == "doubled":
        answer.append(answer[3])
    elif fault == "another's key":
        answer[3], answer[4] = (other_key, value), (key, other_value)
    else:
        if fault in click:
            click[fault] = other[fault]
            # The time of two clicks within a millisecond is one.
            click["ts"] += fault == "ts"
        elif fault == "one more field":
            click["more"] = 1
        else:
            click["profile"]["age"] += 1
        answer[3] = key, json.dumps(click).encode()
    assert not verdict_of_enriched(answer, 500).right


def decoded(name: str, records: int) -> list[tuple[bytes | None, bytes | None]]:
    """What a right program writes, from the bytes of the events."""
    found: list[tuple[bytes | None, bytes | None]] = []
    for block in data.events(records, BASE_MS):
        for key, value in zip(block.keys or [], block.values, strict=True):
            event = json.loads(value)
            if name == "projected":
                value = json.dumps({"event_time": event["event_time"], "ad_id": event["ad_id"]}).encode()
            if name != "viewed" or event["event_type"] == "view":
                found.append((key, value))
    return found


STATELESS = {"passed": oracle.passed, "viewed": oracle.viewed, "projected": oracle.projected}


@pytest.mark.parametrize("name", STATELESS)
def test_records_that_go_through_are_those_of_the_events(name: str) -> None:
    right = oracle.tally(STATELESS[name](RECORDS, BASE_MS))
    answer = decoded(name, RECORDS)
    assert oracle.compare_tallies(right, oracle.tally(reversed(answer))).right
    assert right.records == (RECORDS if name != "viewed" else len(answer))


@pytest.mark.parametrize("fault", ["lost", "doubled", "another's key", "a field differs", "one for another"])
def test_wrong_records_are_refused(fault: str) -> None:
    answer = decoded("passed", 500)
    right = oracle.tally(oracle.passed(500, BASE_MS), oracle.as_it_is)
    assert oracle.compare_tallies(right, oracle.tally(answer, oracle.as_it_is)).right
    (key, value), (other, _) = answer[3], answer[4]
    assert value is not None
    if fault == "lost":
        del answer[3]
    elif fault == "doubled":
        answer.append(answer[3])
    elif fault == "another's key":
        answer[3], answer[4] = (other, value), (key, answer[4][1])
    elif fault == "a field differs":
        answer[3] = key, value.replace(b"1.2.3.4", b"1.2.3.5")
    else:
        answer[3] = answer[4]
    assert not oracle.compare_tallies(right, oracle.tally(answer, oracle.as_it_is)).right


def test_spelling_of_json_is_no_difference() -> None:
    assert oracle.as_json(b'{"b": 1, "a": [2]}') == oracle.as_json(b'{"a":[2],"b":1}')
    assert oracle.as_json(b'{"a":1}') != oracle.as_json(b'{"a":"1"}')


def test_fewer_users_and_other_windows_are_counted_as_told() -> None:
    found = Counter(key.decode() for block in data.clicks(RECORDS, BASE_MS, 500) for key in block.keys or [])
    assert oracle.clicks_per_user(RECORDS, 500) == found
    assert len(found) == 500
    minutes = oracle.views_per_window(RECORDS, BASE_MS, 60_000)
    assert sum(minutes.values()) == sum(oracle.views_per_window(RECORDS, BASE_MS).values())
    assert {int(name.split("@")[1]) for name in minutes} == {BASE_MS}


def test_last_value_counts_and_a_tombstone_removes() -> None:
    answer = [(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b'"c"', b'{"n":3}'), (b"b", None)]
    assert oracle.last_counts(answer) == {"a": 2, "c": 3}


def test_values_of_each_system_are_read() -> None:
    assert oracle.big_endian((5).to_bytes(8, "big")) == 5
    assert oracle.big_endian(b"timestmp" + (258).to_bytes(8, "big")) == 258
    assert oracle.piped_key(b'"u0000001"|n') == oracle.text_key(b"u0000001") == "u0000001"


@pytest.mark.parametrize("found", [{}, {"a": 1}, {"a": 1, "b": 3}, {"a": 1, "b": 2, "c": 1}])
def test_counts_that_differ_are_told_by_the_first(found: dict[str, int]) -> None:
    expected = {"a": 1, "b": 2}
    assert oracle.compare_counts(expected, dict(expected)).right
    verdict = oracle.compare_counts(expected, found)
    assert not verdict.right
    assert "expected" in verdict.reason
