"""The process that ``penstock dev`` starts again and again: make the missing topics, show the outputs, run a worker."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.streams.cli.main import WholeWordsParser, main, run_parsed

if TYPE_CHECKING:
    from penstock.streams.kafka.follow import FoundRecord
    from penstock.streams.worker.settings import WorkerSettings
    from penstock.topologies.graph.topology import Topology

_FOLLOWS_S = 30.0


def run(args: argparse.Namespace) -> int:
    """Run until SIGTERM, or until the worker ends."""
    from penstock.streams.cli.client_options import settings_of
    from penstock.streams.topology_loading import load_topology

    topology = load_topology(args.topology)
    given = {name: getattr(args, name) for name in ("application_id", "bootstrap_servers", "state_dir")}
    settings = settings_of(args.config, **given)
    outputs = prepared(topology, settings, args.partitions)
    if outputs:
        _follow(topology, settings, outputs)
    worker = ["worker", args.topology, "--application-id", args.application_id, "--log-level", args.log_level]
    worker += ["--bootstrap-server", args.bootstrap_servers, "--state-dir", args.state_dir]
    return main([*worker, *([] if args.config is None else ["--config", args.config])])


def prepared(topology: Topology, settings: WorkerSettings, partitions: int) -> list[str]:
    """Make the topics that are missing, say which there are, and return the outputs."""
    from penstock.streams.kafka.topics import Topics
    from penstock.streams.runtime.own_topics import input_topics, output_topics

    topics = Topics(settings.bootstrap_servers, settings.common)
    inputs, outputs = input_topics(topology), output_topics(topology)
    dead = settings.policies.dead_letter_topic
    there = {topic.name: topic.partitions for topic in topics.list()}
    wanted = sorted({*inputs, *outputs, *([dead] if dead else [])} - there.keys())
    # Inputs that are joined need one number, which those that exist have set.
    count = max((there[t] for t in inputs if t in there), default=partitions)
    for topic in wanted:
        topics.create(topic, partitions=count, replication_factor=1, configs={})
    made = f" (made {', '.join(wanted)})" if wanted else ""
    said = f"reads {', '.join(inputs)}; writes {', '.join(outputs) or 'nothing'}{made}"
    print(f"penstock dev: application {settings.application_id} {said}", file=sys.stderr, flush=True)
    return outputs


def _follow(topology: Topology, settings: WorkerSettings, outputs: Sequence[str]) -> None:
    """Print from now on what arrives in the outputs; return when that has begun."""
    from penstock.state.errors import PenstockError
    from penstock.streams.cli.record_lines import RecordLines, coloured
    from penstock.streams.cli.topic_types import TopicTypes, topology_types
    from penstock.streams.kafka.follow import follow

    types = topology_types(topology, settings.application_id)
    template = "{time} {topic} {key} {value}"
    lines = RecordLines(lambda topic: types.get(topic, TopicTypes()), template, colour=coloured())

    def write(records: list[FoundRecord]) -> None:
        sys.stdout.write("".join(lines.line(record) + "\n" for record in records))
        sys.stdout.flush()

    follows = threading.Event()

    def work() -> None:
        try:
            follow(settings.bootstrap_servers, settings.common, outputs, write, on_end=follows.set)
        except PenstockError as exc:
            print(f"penstock dev: outputs are no longer shown: {exc}", file=sys.stderr, flush=True)
            follows.set()

    threading.Thread(target=work, name="penstock-dev-outputs", daemon=True).start()
    follows.wait(_FOLLOWS_S)


def build_parser() -> argparse.ArgumentParser:
    """The parser of the arguments that ``penstock dev`` gives; nothing else calls it."""
    parser = WholeWordsParser(prog="penstock dev")
    parser.add_argument("topology")
    parser.add_argument("--config")
    parser.add_argument("--application-id", required=True)
    parser.add_argument("--bootstrap-server", dest="bootstrap_servers", required=True)
    parser.add_argument("--state-dir", required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--log-level", required=True)
    parser.set_defaults(run=run)
    return parser


if __name__ == "__main__":
    sys.exit(run_parsed(build_parser(), sys.argv[1:]))
