"""The script of a Faust worker that runs the word count. Arguments: application id, bootstrap servers, state folder."""

from __future__ import annotations

import sys

from penstock.streams.faust import faust_app
from penstock.streams.worker.settings import WorkerSettings
from penstock.topologies.examples import word_count

if __name__ == "__main__":
    application_id, bootstrap_servers, state_dir = sys.argv[1:4]
    settings = WorkerSettings(
        application_id=application_id,
        bootstrap_servers=bootstrap_servers,
        state_dir=state_dir,
        session_timeout_ms=6_000,
        commit_interval_ms=200,
    )
    topology = word_count.build(f"{application_id}-in", f"{application_id}-out")
    app = faust_app(topology, settings, datadir=f"{state_dir}-faust")
    sys.argv = ["faust", "worker", "-l", "warn", "--without-web"]
    app.main()
