# glasscache: every task of the house, one sentence each (make help).
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
GLASSCACHE := target/release/glasscache
MEMCACHED ?= $(shell command -v memcached 2>/dev/null)
TRACES ?= ../shared/traces

.PHONY: help
help: ## Print each target with its sentence.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

# ---- the two commands -------------------------------------------------------------------------

.PHONY: run
run: release ## Build, start an embedded server, store and read back a real folder, print what it cost.
	$(GLASSCACHE) tour $(if $(MEMCACHED),--vs "$(MEMCACHED)")

.PHONY: test
test: test-rust test-python ## Run every everyday test (Rust and Python, real sockets), under 15 minutes on 2 cores.

# ---- building and checking --------------------------------------------------------------------

.PHONY: release
release: ## Build the optimised binary target/release/glasscache.
	@scripts/need-toolchain
	$(CARGO) build --release -p glasscache-cli

.PHONY: test-rust
test-rust: ## Run the tests of all Rust crates.
	@scripts/need-toolchain
	$(CARGO) test --workspace --exclude glasscache-native

.PHONY: test-python
test-python: ## Build the Python module into .venv and run the tests of the Python package.
	@scripts/python-tests

.PHONY: lint
lint: ## Formatting, clippy and the Python linters; a warning is an error.
	@scripts/need-toolchain
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings

.PHONY: check
check: lint test ## What continuous integration runs: lint, then the tests.
	@if [ -d "$(TRACES)" ]; then $(MAKE) --no-print-directory check-traces TRACES="$(TRACES)"; \
	else echo "no folder $(TRACES): the checks against recorded traces are left out"; fi

.PHONY: check-traces
check-traces: ## What is checked against a folder of recorded traces (TRACES=dir).
	@true

.PHONY: test-long
test-long: ## The tests that take longer than the everyday ones.
	@true

# ---- the server: proofs -----------------------------------------------------------------------

.PHONY: memcached-tests
memcached-tests: release ## Run memcached's own test files against us (TREE=a memcached 1.6.45 source tree, ARGS="metaget --verbose").
	@test -n "$(TREE)" || { echo "say where the source tree is: make memcached-tests TREE=dir"; exit 2; }
	python3 tests/live/memcached_tests.py "$(TREE)" --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: oracle
oracle: ## Send the conformance cases to a real memcached (MEMCACHED=path).
	@test -n "$(MEMCACHED)" || { echo "no memcached found: make oracle MEMCACHED=path"; exit 2; }
	GLASSCACHE_TEST_ORACLE="$(MEMCACHED)" $(CARGO) test -p glasscache-cli --test it -- --nocapture conformance

.PHONY: hostile
hostile: release ## Send hostile inputs to a server and measure its memory (ARGS='--server memcached' for another).
	python3 tests/live/hostile.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: consistency
consistency: release ## Check concurrent operations for 60 s with evictions and killed connections, after proving the check.
	python3 tests/live/consistency.py --faulty all --seconds 15
	python3 tests/live/consistency.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: soak
soak: release ## Checked churn for an hour with memory slope and descriptors (SOAK_SECONDS=600 for ten minutes).
	python3 tests/live/consistency.py --soak --server "$(GLASSCACHE) serve" --seconds $(or $(SOAK_SECONDS),3600) $(ARGS)

.PHONY: clients
clients: release ## Run unchanged clients of other projects against us (pip, apt, go, mvn; ARGS="pymemcache dalli").
	python3 tests/clients/run.py --server "$(GLASSCACHE) serve" $(ARGS)

# ---- the client: proofs -----------------------------------------------------------------------

.PHONY: placement
placement: ## Compare placement key by key with the real clients (libmemcached-dev, php, ruby, go, Maven).
	$(CARGO) build --release -p glasscache-client --example place
	"$$(scripts/peers-python)" tests/placement/compare.py --memcached "$(MEMCACHED)"

.PHONY: dialects
dialects: ## Write values with the real clients and read them with ours, and the other way round.
	$(CARGO) build --release -p glasscache-client --example speak
	"$$(scripts/peers-python)" tests/dialects/compare.py --memcached "$(MEMCACHED)"

# ---- the lab: proofs --------------------------------------------------------------------------

# ---- measurements -----------------------------------------------------------------------------

.PHONY: bench
bench: release ## Measure CPU per request and latency beside memcached (MEMCACHED=path, ARGS="--scenario get-50 --rounds 5 --json").
	$(GLASSCACHE) bench --keep bench/results $(if $(MEMCACHED),--memcached "$(MEMCACHED)") $(ARGS)
