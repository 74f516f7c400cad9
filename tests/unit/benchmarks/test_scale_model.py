"""The model of many workers on many brokers: against the runs that were seen, and against what must hold of any cluster."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarks.scale_model import SEEN, Cluster, Costs, Seen, flow, loss, main, rebalance, small

COSTS = Costs()
SOME = Cluster(brokers=3, broker_cores=4, workers=6, tasks=24)


@pytest.mark.parametrize("seen", SEEN)
def test_small_runs_come_out_as_they_were_seen(seen: Seen) -> None:
    found = flow(small(seen), COSTS, seconds=40 * seen.commit_interval_s)
    assert found.records_per_s == pytest.approx(seen.records_per_s, rel=0.2)
    assert found.commits_per_s == pytest.approx(seen.commits_per_s, abs=0.5)


def test_what_comes_in_goes_through_while_there_is_room() -> None:
    found = flow(dataclasses.replace(SOME, rate_per_s=300_000.0), COSTS)
    assert found.records_per_s == pytest.approx(300_000, rel=0.05)
    assert found.computing < 0.5
    full = flow(SOME, COSTS)
    assert full.computing > 0.8
    assert flow(dataclasses.replace(SOME, rate_per_s=1e9), COSTS).records_per_s == pytest.approx(
        full.records_per_s, rel=0.1
    )


def test_workers_add_up_until_the_brokers_are_busy() -> None:
    rates = [flow(dataclasses.replace(SOME, tasks=240, workers=n), COSTS) for n in (2, 4, 60, 120)]
    assert rates[1].records_per_s == pytest.approx(2 * rates[0].records_per_s, rel=0.1)
    assert rates[3].records_per_s < 1.3 * rates[2].records_per_s
    assert rates[3].busy[0] > 0.95
    assert rates[3].commit_s[0] > 2 * rates[0].commit_s[0]
    assert rates[3].computing < rates[0].computing


def test_transactions_and_short_intervals_cost() -> None:
    exact = flow(SOME, COSTS)
    loose = flow(dataclasses.replace(SOME, transactional=False), COSTS)
    seldom = flow(dataclasses.replace(SOME, commit_interval_s=1.0), COSTS, seconds=20.0)
    assert exact.records_per_s < loose.records_per_s
    assert exact.records_per_s < seldom.records_per_s
    assert exact.broker_commits_per_s >= exact.commits_per_s / SOME.brokers
    assert loose.broker_commits_per_s == 0
    assert seldom.commits_per_s < exact.commits_per_s / 3


def test_same_seed_same_run() -> None:
    assert flow(SOME, COSTS, seed=3) == flow(SOME, COSTS, seed=3)
    assert rebalance(SOME, COSTS, 0.01, seed=3) == rebalance(SOME, COSTS, 0.01, seed=3)


def test_tasks_are_spread_evenly_and_no_worker_does_anything_without() -> None:
    crowd = flow(dataclasses.replace(SOME, workers=1_000), COSTS)
    assert crowd.records_per_s == pytest.approx(
        flow(dataclasses.replace(SOME, workers=24), COSTS).records_per_s, rel=0.1
    )
    assert dataclasses.replace(SOME, workers=5).tasks_per_worker == [5, 5, 5, 5, 4]


def test_group_stands_still_for_about_a_heartbeat() -> None:
    pause = rebalance(SOME, COSTS, 0.01)
    assert 0.3 < pause.mean_s < pause.worst_s < SOME.heartbeat_s + 0.5
    slow = rebalance(dataclasses.replace(SOME, heartbeat_s=15.0), COSTS, 0.01)
    assert slow.worst_s > 3 * pause.worst_s


def test_lost_worker_is_missed_after_its_session_and_restored_as_fast_as_can_be() -> None:
    lost = loss(SOME, COSTS, 0.01)
    assert lost.missed_s == SOME.session_s
    assert lost.restart_s < lost.regrouped_s < lost.whole_s
    assert lost.whole_s - lost.regrouped_s == pytest.approx(SOME.state_records_per_task / COSTS.restore_per_s)
    alone = loss(dataclasses.replace(SOME, workers=2, tasks=20), COSTS, 0.01)
    assert alone.whole_s - alone.regrouped_s == pytest.approx(10 * SOME.state_records_per_task / COSTS.restore_per_s)


def test_tables_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["scale_model", "--costs", '{"worker_s": 0.00001}'])
    main()
    said = capsys.readouterr().out
    assert said.count("exactly once") >= 4
    assert len(said.splitlines()) > 12
