"""Snapshots on an object store: what every repository promises, on a server that speaks S3."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from penstock.testing import RepositoryWorld, SnapshotRepositoryContract
from tests.s3_server import S3Server, s3_server
from tests.unit.state.snapshots.test_repository import OurWorld


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with s3_server() as running:
        yield running


@pytest.mark.long
class TestSnapshotsOnS3(SnapshotRepositoryContract):
    @pytest.fixture
    def world(self, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> RepositoryWorld:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        return OurWorld(f"s3://{server.bucket}/{uuid.uuid4().hex}")
