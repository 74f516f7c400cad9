"""An S3 server on loopback, and what clients need to find it."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
from moto.server import ThreadedMotoServer

SECRET = "AWS_SECRET_ACCESS_KEY"


class S3Server:
    """``env``: the variables by which clients of AWS find it, and are let in. ``bucket``: an empty one."""

    def __init__(self, endpoint: str, secret: str) -> None:
        self.env = {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "tests",
            SECRET: secret,
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        self.bucket = f"b-{uuid.uuid4().hex[:12]}"
        self._client = boto3.client(
            "s3",
            endpoint_url=endpoint,
            aws_access_key_id="tests",
            aws_secret_access_key=secret,
            region_name="us-east-1",
        )
        self._client.create_bucket(Bucket=self.bucket)

    def objects(self) -> dict[str, bytes]:
        """Everything in the bucket."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        names = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {n: self._client.get_object(Bucket=self.bucket, Key=n)["Body"].read() for n in names}


@contextmanager
def s3_server(secret: str = "secret") -> Iterator[S3Server]:
    """A server that runs meanwhile, in threads of this process."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield S3Server(f"http://{host}:{port}", secret)
    finally:
        server.stop()
