"""The operators, each written once against whole batches. See ``penstock.topologies.operator_api.operator``."""
