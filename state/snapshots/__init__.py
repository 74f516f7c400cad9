"""Snapshots of store partitions: manifests, the repository, and where repositories are stored."""
