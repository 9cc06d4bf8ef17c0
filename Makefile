# glasscache: the everyday tasks, one sentence each (make help). Proofs and measurements are entries of proofs.txt.
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
GLASSCACHE := target/release/glasscache
MEMCACHED ?= $(shell command -v memcached 2>/dev/null)
TRACES ?= ../shared/traces
BESIDE_MEMCACHED = $(if $(MEMCACHED),--memcached "$(MEMCACHED)")

# How the tests are built: one resolution of features for all crates, TLS by ring (what ships has aws-lc).
export TEST_BUILD := --no-default-features --features glasscache-client/tokio

help: ## Print each everyday target with its sentence.
	@sed -nE 's/^([a-z0-9-]+):.*## /\1\t/p' Makefile | expand -t 20
	@echo; echo "make proofs lists $(words $(PROOFS)) proofs and measurements; any of them is run as make NAME."

proofs: ## List the proofs and measurements by group, each with its sentence.
	@sed -nE 's/^# -+ (.*[^-]) -+$$/\n\1/p; s/^([a-z0-9-]+)( \[.*\])?: /  \1\t/p' proofs.txt | expand -t 24

# ---- trying and testing -----------------------------------------------------------------------

run: ## Build quickly, start an embedded server, store and read back a real folder, print what it cost.
	@scripts/exclusive scripts/tour $(BESIDE_MEMCACHED)

test: ## Run every everyday test (Rust and Python, real sockets), about ten minutes on 2 cores the first time.
	@scripts/exclusive scripts/test

test-rust: ## Run the tests of all Rust crates.
	@scripts/need-toolchain 8
	@scripts/exclusive scripts/rust-tests

test-python: ## Build the Python module and run the tests of the Python package.
	@scripts/exclusive scripts/python-tests

lint: ## Formatting, clippy, the Python linters, and that each missed figure is listed; a warning is an error.
	@scripts/exclusive scripts/lint

check: ## What continuous integration runs: lint, the Rust tests, the wheel in a fresh environment with the Python tests.
	@scripts/exclusive scripts/check
	@if [ -d "$(TRACES)" ]; then $(MAKE) --no-print-directory check-traces TRACES="$(TRACES)"; \
	else echo "no folder $(TRACES): the checks against recorded traces are left out"; fi

check-traces: reference ## What is checked against a folder of recorded traces (TRACES=dir).

test-long: test-long-python simulate-full loom stress flushes collisions sanitize consistency faults-long http-peers ## The tests that take longer than the everyday ones (over an hour; cargo-fuzz; MEMCACHED=path adds its slab classes).
	$(MAKE) --no-print-directory world SEEDS=100000
	$(MAKE) --no-print-directory soak SOAK_SECONDS=600
	$(MAKE) --no-print-directory fuzz SECONDS_EACH=30
	@if [ -n "$(MEMCACHED)" ]; then $(MAKE) --no-print-directory oracle-slabs; fi

test-long-python: ## The Python tests that `make test` leaves out: Dask, the move of a Django site, type checkers, guides that simulate for long, and the like.
	@scripts/exclusive scripts/python-tests -n 2 -m long

nightly: advisories test-long ## What a scheduler runs each night: advisories, the long tests, fuzzing (10 minutes a target), simulated worlds, an hour of soak.
	$(MAKE) --no-print-directory fuzz SECONDS_EACH=600
	$(MAKE) --no-print-directory world FIRST=$$(date +%s) SEEDS=100000
	$(MAKE) --no-print-directory soak

advisories: ## Known vulnerabilities of the packages in use, by cargo-deny or cargo-audit; says so if it cannot check (nightly).
	scripts/advisories

times: ## Measure what each step costs, cold and warm, in a fresh clone: the table of CONTRIBUTING.md (ARGS="run test").
	@scripts/times $(ARGS)

# ---- building ---------------------------------------------------------------------------------

release: ## Build what ships, the optimised binary target/release/glasscache, several minutes.
	@scripts/need-toolchain 3
	@GLASSCACHE_COMMIT="$$(scripts/commit)" scripts/exclusive scripts/cargo-build --release -p glasscache-cli

py: ## Build the Python module into .venv and say how to use it.
	@scripts/python-venv
	@echo 'PYTHONPATH=python .venv/bin/python -c "import glasscache"'

wheel: ## Build the wheel (module and command), install it into a fresh environment and run the Python tests there.
	@scripts/exclusive scripts/wheel-check

dist: ## Build all that is published into build/dist: static command, wheel, Debian package, container, chart, checksums (half an hour the first time).
	@scripts/exclusive scripts/dist

dist-check: ## Install each artefact of `make dist` in an empty root and use it (root and debootstrap for package and container).
	@scripts/dist-check

# ---- documents and figures --------------------------------------------------------------------

docs: ## Build the documentation as a site in build/site, with the Python and Rust API; a warning is an error.
	@scripts/docs

reference-pages: ## Write docs/reference/{settings,statistics,errors,findings,client-settings}.md and the chart's schema from the tables of the program.
	GLASSCACHE_WRITE_REFERENCE=1 $(CARGO) test -p glasscache-server -p glasscache-cli --lib --bins
	GLASSCACHE_WRITE_REFERENCE=1 scripts/python-tests -q python/tests/test_client_settings.py -k reference

figures: release ## Print each promised figure with its command, its target and what was found (ARGS="speed --kept").
	@scripts/figures $(ARGS)

figures-page: ## Write docs/reference/figures.md and the table of README.md from the kept results.
	@scripts/figures --write

# ---- proofs and measurements ------------------------------------------------------------------

# What several entries of proofs.txt have in common.
FIGURES := target/release/figures
SERVER := --server "$(GLASSCACHE) serve"
RELEASE_TEST := $(CARGO) test --release -p
RELEASE_RUN := $(CARGO) run --release -p
RELEASE_PYTHON := scripts/python-venv --release && GLASSCACHE=$(GLASSCACHE) .venv/bin/python

EVERYDAY := $(shell sed -nE 's/^([a-z0-9-]+):.*/\1/p' Makefile)
PROOFS := $(shell sed -nE 's/^([a-z0-9-]+)( \[.*\])?: .*/\1/p' proofs.txt)
NAMES := $(EVERYDAY) $(PROOFS)
# What an entry needs and no target makes is a variable.
NEEDED_VARIABLES := $(filter-out $(NAMES),$(sort $(shell sed -nE 's/^[a-z0-9-]+ \[(.*)\]: .*/\1/p' proofs.txt)))
.PHONY: $(NAMES) $(NEEDED_VARIABLES)

UNKNOWN := $(firstword $(filter-out $(NAMES),$(MAKECMDGOALS)))
NEAREST = $(shell python3 -c 'import difflib, sys; print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:], 1, 0))' '$(UNKNOWN)' $(NAMES))
$(if $(UNKNOWN),$(error no target '$(UNKNOWN)'; the nearest is '$(NEAREST)' ('make help' and 'make proofs' list all)))

$(NEEDED_VARIABLES):
	@test -e "$($@)" || command -v "$(firstword $($@))" >/dev/null || \
	    { echo "make $(MAKECMDGOALS) needs $@$(if $($@), (there is no '$($@)')); run make $(MAKECMDGOALS) $@=path" >&2; exit 2; }

# Each entry as a rule: `NAME [NEEDS]: sentence` becomes `NAME: NEEDS`, and the indented lines its commands.
define NEWLINE


endef
ENTRY_AS_RULE := s/^([a-z0-9-]+)( \[(.*)\])?: .*/\1: \3/; s/^    /\t/; s/$$/¶/
$(eval $(subst ¶ ,$(NEWLINE),$(shell sed -E '$(ENTRY_AS_RULE)' proofs.txt) ))
