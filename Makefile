# One job, one command. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
STAMP := .venv/.installed
NATIVE := .venv/.native
NATIVE_SOURCES := $(shell find native -name target -prune -o -type f -print)
LOCK := requirements/dev.lock
# The whole suite is spread over processes (tests/spread.py); what ARGS asks for runs in one, which starts sooner.
SPREAD = $(if $(ARGS),,-n auto --dist loadfile --durations 15)
RESOLVE_FLAGS = --constraints requirements/constraints.txt --universal \
  --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
  --custom-compile-command 'make lock' --quiet
RESOLVE = $(BIN)/uv pip compile pyproject.toml $(RESOLVE_FLAGS)
RESOLVE_GROUP = $(BIN)/uv pip compile $(RESOLVE_FLAGS) --group pyproject.toml

.PHONY: help venv native java demo test test-native pythons differential mutants failpoints chaos lint deny wheel bench roofline bench-gate bench-report docs lock clean

help: ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

venv: $(STAMP) $(NATIVE) ## make .venv from the lock, with penstock installed in place

$(STAMP): $(LOCK) pyproject.toml .package/penstock/__init__.py .ci/venv
	@.ci/venv $(LOCK) $(STAMP)

$(NATIVE): $(STAMP) $(NATIVE_SOURCES) .ci/native
	@.ci/native $(NATIVE)

native: $(STAMP) ## build the native part (make venv does, where it finds cargo), or say why it cannot be built
	@.ci/native $(NATIVE) --require

java:
	@.ci/java

demo: java venv ## run the main job on real Kafka and Spark, check every answer, write the report
	@$(BIN)/python -m demo $(ARGS)

test: java venv ## unit, property and integration tests (ARGS='-k name' narrows)
	@$(if $(ARGS),,.ci/cargo test)
	@$(BIN)/python -m pytest $(SPREAD) $(ARGS)

test-native: venv ## the units of native/ alone
	@.ci/cargo test

pythons: venv ## the unit tests on each Python from 3.11 to 3.14 that is found here (PYTHONS="3.12 3.13", ARGS=…)
	@PYTHONS="$(PYTHONS)" .ci/pythons $(ARGS)

differential: java venv ## random programs on Kafka Streams, Flink, Beam and Penstock: the same answers? (SEEDS=100 KINDS='table*')
	@$(BIN)/python -m tests.differential $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FROM),--from $(FROM)) \
	  $(if $(KINDS),--kinds $(foreach kind,$(KINDS),'$(kind)')) $(ARGS)

mutants: venv ## faults planted in the protocol, and the first seed of the swarm that finds each (ARGS='--only lease')
	@$(BIN)/python -m tests.simulation.mutants $(ARGS)

chaos: java venv ## workers on three real brokers, killed, frozen and cut off at random; a row in the ledger (SEEDS=4 MINUTES=30; CASES=1: the long cases too)
	@$(if $(CASES),$(BIN)/python -m pytest tests/chaos -m "long or not long")
	@$(if $(CASES),$(BIN)/python -m pytest tests/integration -m long)
	@$(BIN)/python -m tests.chaos $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

failpoints: java venv ## workers killed and frozen at every failpoint, on a real broker: ten minutes (ARGS='--only commit')
	@$(BIN)/python -m tests.integration.faults $(ARGS)

lint: venv ## ruff, mypy, the import contracts, native/, the Docker files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@.ci/cargo lint
	$(BIN)/hadolint --config docker/hadolint.yaml docker/Dockerfile
	$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker/compose.yaml

deny: ## licenses and sources of what native/ is made of (needs cargo-deny)
	@.ci/cargo deny

wheel: venv ## dist/: the wheel for every platform and those with the compiled part, tried without cargo
	@.ci/wheel

bench: java venv ## the benchmark table, Penstock beside its peers
	@$(BIN)/python -m benchmarks $(ARGS)

roofline: java venv ## what this machine can do at most: disk, RocksDB, decoding, the log (ARGS=--quick: a minute)
	@$(BIN)/python -m benchmarks.roofline $(ARGS)

bench-gate: java venv ## has a cost of Penstock's grown against the stored one? About ten minutes
	@$(BIN)/python -m benchmarks.gate $(ARGS)

bench-report: venv ## benchmarks/REPORT.md and its plots from benchmarks/results
	@$(BIN)/python -m benchmarks.publish $(ARGS)

docs: venv ## the documents site into var/site, without a network
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict -f docs/mkdocs.yml
	@echo "open var/site/index.html"

lock: venv ## resolve the locks anew: development, and what the two images install
	$(RESOLVE) --all-extras --group dev --upgrade --output-file $(LOCK)
	$(RESOLVE_GROUP):wheel --upgrade --output-file requirements/wheel.lock
	$(RESOLVE) --constraints $(LOCK) --output-file requirements/worker.lock
	$(RESOLVE) --constraints $(LOCK) --extra spark --output-file requirements/spark.lock

clean: ## remove .venv, caches and built files
	rm -rf .venv build dist var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache \
	  spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
