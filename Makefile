# glasscache: every task of the house, one sentence each (make help).
SHELL := /bin/bash
.DEFAULT_GOAL := help
CARGO ?= cargo
GLASSCACHE := target/release/glasscache
FIGURES := target/release/figures
MEMCACHED ?= $(shell command -v memcached 2>/dev/null)
TRACES ?= ../shared/traces

.PHONY: help
help: ## Print each target with its sentence.
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

# How the tests are built: one resolution of features for all crates, TLS by ring (what ships has aws-lc).
export TEST_BUILD := --no-default-features --features glasscache-client/tokio

# ---- the two commands -------------------------------------------------------------------------

.PHONY: run
run: ## Build quickly, start an embedded server, store and read back a real folder, print what it cost.
	@scripts/exclusive scripts/tour $(if $(MEMCACHED),--memcached "$(MEMCACHED)")

.PHONY: test
test: ## Run every everyday test (Rust and Python, real sockets), a quarter of an hour on 2 cores the first time.
	@scripts/exclusive scripts/test

# ---- building and checking --------------------------------------------------------------------

.PHONY: release
release: ## Build what ships, the optimised binary target/release/glasscache, several minutes.
	@scripts/need-toolchain 3
	@GLASSCACHE_COMMIT="$$(scripts/commit)" scripts/exclusive scripts/cargo-build --release -p glasscache-cli

.PHONY: dist
dist: ## Build all that is published into build/dist: static command, wheel, Debian package, container, chart, checksums (half an hour the first time).
	@scripts/exclusive scripts/dist

.PHONY: dist-check
dist-check: ## Install each artefact of `make dist` in an empty root and use it (root and debootstrap for package and container).
	@scripts/dist-check

.PHONY: test-rust
test-rust: ## Run the tests of all Rust crates.
	@scripts/need-toolchain 8
	@scripts/exclusive scripts/rust-tests

.PHONY: test-python
test-python: ## Build the Python module and run the tests of the Python package.
	@scripts/exclusive scripts/python-tests

.PHONY: lint
lint: ## Formatting, clippy, the Python linters, and that each missed figure is listed; a warning is an error.
	@scripts/exclusive scripts/lint

.PHONY: check
check: ## What continuous integration runs: lint, the Rust tests, the wheel in a fresh environment with the Python tests.
	@scripts/exclusive scripts/check
	@if [ -d "$(TRACES)" ]; then $(MAKE) --no-print-directory check-traces TRACES="$(TRACES)"; \
	else echo "no folder $(TRACES): the checks against recorded traces are left out"; fi

.PHONY: times
times: ## Measure what each step costs, cold and warm, in a fresh clone: the table of CONTRIBUTING.md (ARGS="run test").
	@scripts/times $(ARGS)

.PHONY: nightly
nightly: advisories test-long ## What a scheduler runs each night: advisories, the long tests, fuzzing (10 minutes a target), simulated worlds, an hour of soak.
	$(MAKE) --no-print-directory fuzz SECONDS_EACH=600
	$(MAKE) --no-print-directory world FIRST=$$(date +%s) SEEDS=100000
	$(MAKE) --no-print-directory soak

.PHONY: advisories
advisories: ## Known vulnerabilities of the packages in use, by cargo-deny or cargo-audit; says so if it cannot check (nightly).
	scripts/advisories

.PHONY: check-traces
check-traces: reference ## What is checked against a folder of recorded traces (TRACES=dir).

.PHONY: test-long-python
test-long-python: ## The Python tests that `make test` leaves out: Dask, the loop of the catalogue, the move of a Django site.
	@scripts/exclusive scripts/python-tests -n 2 -m long

.PHONY: test-long
test-long: test-long-python simulate-full loom stress flushes collisions sanitize consistency faults-long http-peers ## The tests that take longer than the everyday ones (over an hour; cargo-fuzz; MEMCACHED=path adds its slab classes).
	$(MAKE) --no-print-directory world SEEDS=100000
	$(MAKE) --no-print-directory soak SOAK_SECONDS=600
	$(MAKE) --no-print-directory fuzz SECONDS_EACH=30
	@if [ -n "$(MEMCACHED)" ]; then $(MAKE) --no-print-directory oracle-slabs; fi

# ---- the server: proofs -----------------------------------------------------------------------

STRESS_SECONDS ?= 600

.PHONY: stress
stress: ## Threads against one small store, every hit verified, everything forced, ten minutes (STRESS_SECONDS=n).
	STRESS_SECONDS=$(STRESS_SECONDS) $(CARGO) test --release -p glasscache-store --features strict --test it -- --nocapture stress::

.PHONY: flushes
flushes: ## Flush 100,000 times beside clients that copy without end; nothing may outlive it (FLUSHES=n, ADDRESS=host:port of another server).
	GLASSCACHE_TEST_FLUSHES=$(or $(FLUSHES),100000) $(if $(ADDRESS),GLASSCACHE_TEST_ADDRESS=$(ADDRESS)) \
		$(CARGO) test --release -p glasscache-server --test it -- --nocapture flushes::

.PHONY: flush-prefix
flush-prefix: ## Time to flush the prefix of ten million items, and of reads with 0 and 1,000 flushed prefixes (ITEMS=n).
	$(CARGO) run --release -p glasscache-store --example flush_prefix -- flush $(or $(ITEMS),10000000)
	for prefixes in 0 1000; do $(CARGO) run --release -p glasscache-store --example flush_prefix -- read $$prefixes; done

.PHONY: bench-coherent
bench-coherent: ## Staleness of coherent near caches with 16 watchers and 10,000 writes a second, kills and stalls, and what a line costs the server (SECONDS=25).
	$(CARGO) run --release -p glasscache-world --example coherent -- $(or $(SECONDS),25)

.PHONY: collisions
collisions: ## Send a million keys of one bucket: no false miss, and what other connections notice of it (COLLISIONS=n).
	GLASSCACHE_TEST_COLLISIONS=$(or $(COLLISIONS),1000000) $(CARGO) test --release -p glasscache-store --test it -- --nocapture collisions::
	GLASSCACHE_TEST_COLLISIONS=$(or $(COLLISIONS),1000000) $(CARGO) test --release -p glasscache-server --test it -- --nocapture collisions::

.PHONY: admin-commands
admin-commands: ## CPU time of the longest event-loop iteration under each administrator's command over ten million items (ITEMS=n).
	ADMIN_ITEMS=$(or $(ITEMS),10000000) $(CARGO) test --release -p glasscache-server --test it -- --nocapture admin::no_admin

.PHONY: loom
loom: ## Explore the store's hand-made protocols (bucket, resize, flush, epoch, segments) in every order of their steps.
	RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom $(CARGO) test --release -p glasscache-store --lib interleaved

.PHONY: sanitize
sanitize: ## The store's tests and stress under AddressSanitizer and ThreadSanitizer, the server's under the first (nightly).
	@scripts/sanitize

.PHONY: miri
miri: ## The store's unit tests under Miri, where the nightly toolchain has it.
	@scripts/store-miri

.PHONY: memcached-tests
memcached-tests: release ## Run memcached's own test files against us (TREE=a memcached 1.6.45 source tree, ARGS="metaget --verbose").
	@test -n "$(TREE)" || { echo "say where the source tree is: make memcached-tests TREE=dir"; exit 2; }
	python3 tests/live/memcached_tests.py "$(TREE)" --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: oracle
oracle: ## Send the conformance cases to a real memcached (MEMCACHED=path).
	@test -n "$(MEMCACHED)" || { echo "no memcached found: make oracle MEMCACHED=path"; exit 2; }
	GLASSCACHE_TEST_ORACLE="$(MEMCACHED)" $(CARGO) test -p glasscache-cli --test it -- --nocapture conformance

.PHONY: differential
differential: release ## Random conversations with us and a memcached 1.6.45 or newer, each reply compared (MEMCACHED=path, ARGS="--rounds 5000 --protocol binary").
	@test -n "$(MEMCACHED)" || { echo "no memcached found: make differential MEMCACHED=path"; exit 2; }
	python3 tests/live/differential.py --server "$(GLASSCACHE) serve" --memcached "$(MEMCACHED)" $(ARGS)

.PHONY: hostile
hostile: release ## Send hostile inputs to a server and measure its memory (ARGS='--server memcached' for another).
	python3 tests/live/hostile.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: login-flood
login-flood: release ## What logged-in clients notice of 10,000 failing logins (ARGS='--logins 1000').
	PYTHONPATH=tests/live python3 tests/live/login_flood.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: live-curve
live-curve: ## Errors of the live curve, and how often its interval holds, over twenty samples of the keys on three loads, and on recorded ones where there is a folder of them (TRACES=dir).
	$(CARGO) run --release -p glasscache-sim --features parquet --example live_curve -- $(if $(wildcard $(TRACES)),"$(TRACES)"/*.parquet)

.PHONY: http-peers
http-peers: release ## What clients notice of 100,000 malformed requests to the HTTP port, and resident memory (ARGS="--requests 1000").
	PYTHONPATH=tests/live python3 tests/live/http_peers.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: warm-check
warm-check: release ## Copy a full server of 1 GB to an empty one: what a reader of both notices, and the hits afterwards (ARGS="--old memcached").
	PYTHONPATH=tests/live python3 tests/live/warming.py --binary $(GLASSCACHE) $(ARGS)

.PHONY: tls-handshakes
tls-handshakes: release ## What plain clients notice of 300 full TLS handshakes a second (ARGS='--apart --hostile', ARGS='--against "PATH serve"').
	PYTHONPATH=tests/live python3 tests/live/tls_handshakes.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: tls-checks
tls-checks: release ## What OpenSSL's client can and cannot do with the server's TLS: versions, ciphers, certificates, half handshakes.
	PYTHONPATH=tests/live python3 tests/live/tls_checks.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: peer-memory
peer-memory: release ## Resident memory under peers that read nothing, or send a part and stop, and an honest client beside them (ARGS='--only readers').
	python3 tests/live/peer_memory.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: idle-connections
idle-connections: release ## Resident memory that 4,000 idle connections add after real work (ARGS='--server memcached').
	python3 tests/live/idle_connections.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: consistency
consistency: release ## Check recorded histories (sets, cas, leases, expiry, flush) for 80 s with evictions and killed connections, after proving the check.
	python3 tests/live/consistency.py --faulty all --seconds 15
	python3 tests/live/consistency.py --server "$(GLASSCACHE) serve" --seconds 20 --flush-seconds 0.2 $(ARGS)
	python3 tests/live/consistency.py --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: soak
soak: release ## The same for an hour with flushes, full memory, resident memory and descriptors watched (SOAK_SECONDS=1800 for half an hour).
	python3 tests/live/consistency.py --soak --server "$(GLASSCACHE) serve" --seconds $(or $(SOAK_SECONDS),3600) $(ARGS)

.PHONY: clients
clients: release ## Run unchanged clients of other projects against us, and two clients' own tests (pip, apt, gem, npm, go, mvn, cargo; ARGS="pymemcache memjs-sasl", ARGS="--server memcached").
	python3 tests/clients/run.py --server "$(GLASSCACHE) serve" $(ARGS)

# ---- the client: proofs -----------------------------------------------------------------------

.PHONY: placement
placement: ## Compare placement key by key with the real clients (libmemcached-dev, php, ruby, go, Maven).
	$(CARGO) build --release -p glasscache-client --example server_of
	"$$(scripts/peers-python)" tests/placement/compare.py --memcached "$(MEMCACHED)"

.PHONY: dialects
dialects: ## Write values with the real clients and read them with ours, and the other way round.
	$(CARGO) build --release -p glasscache-client --example convert
	"$$(scripts/peers-python)" tests/dialects/compare.py --memcached "$(MEMCACHED)"

.PHONY: django-tests
django-tests: ## Run Django's own cache, middleware, session and template tests on our backend, 5.2 and the newest.
	@scripts/drop-in-tests tests/django/run.py --memcached "$(MEMCACHED)"
	@scripts/django-newest tests/django/run.py --memcached "$(MEMCACHED)"

.PHONY: django-moving
django-moving: release ## Move a Django site from PyMemcacheCache and PyLibMCCache and back, old and new processes together, 5.2 and the newest (ARGS="--values 30").
	@scripts/drop-in-tests tests/django/backend_migration.py --django "5.2.*" --memcached "$(MEMCACHED)" --server "$(GLASSCACHE) serve" $(ARGS)
	@scripts/django-newest tests/django/backend_migration.py --memcached "$(MEMCACHED)" --server "$(GLASSCACHE) serve" $(ARGS)

.PHONY: dropin-tests
dropin-tests: ## Run pymemcache's and pylibmc's own tests on the drop-in modules.
	@scripts/drop-in-tests tests/dropin/run.py --memcached "$(MEMCACHED)"

.PHONY: http-tests
http-tests: ## Run http-tests/cache-tests through both middlewares, with a rule that shares what has cookies (npm; SUITE=checkout of the suite for its newest cases, ARGS=--failed).
	@scripts/http-tests $(if $(SUITE),--suite "$(SUITE)") --share-cookies --least $(if $(SUITE),142/74,140/74) $(ARGS)
	@scripts/http-tests $(if $(SUITE),--suite "$(SUITE)") --share-cookies --least $(if $(SUITE),142/74,140/74) --wsgi $(ARGS)

.PHONY: dogpile-tests
dogpile-tests: ## Run dogpile.cache's own suites (generic, serializer, mutex) on our backend.
	@scripts/web-suites dogpile

.PHONY: cachelib-tests
cachelib-tests: ## Run cachelib's own mixins on our backend (both kinds of values, with a prefix), and its tests of memcached over our drop-in for pylibmc.
	@scripts/web-suites cachelib -W ignore

.PHONY: flask-caching-tests
flask-caching-tests: ## Run Flask-Caching's own tests of backends, views, memoized functions and templates on our type, five minutes (LONGEST_WAIT_S=3600 for the one that waits for an hour).
	@scripts/web-suites flask_caching -W ignore

.PHONY: requests-cache-tests
requests-cache-tests: ## Run requests-cache's own tests of a storage and of a backend on ours; a list of keys, which some need, the test keeps.
	@scripts/web-suites requests_cache -W ignore

.PHONY: varnish
varnish: release ## The usual rules in our format and as VCL: the same hit or miss for 10,000 requests (Debian's varnish; ARGS="--requests 1000").
	@scripts/python-venv --release
	@GLASSCACHE=$(GLASSCACHE) .venv/bin/python tests/web/varnish.py $(ARGS)

.PHONY: fragments
fragments: release ## A page of 40 fragments in Jinja2 and Django, one by one and by one request, through a relay that adds 1 ms.
	@scripts/python-venv --release
	@GLASSCACHE=$(GLASSCACHE) .venv/bin/python tests/web/fragments.py $(ARGS)

.PHONY: http-cache
http-cache: release ## Measure the HTTP cache under uvicorn: 200 misses at once over 4 processes, a GiB, a soft purge of 100,000 URLs, a hit's CPU beside the peers' (ARGS=peers), or beside a bare read and another checkout (ARGS=hits OLD=folder).
	@GLASSCACHE=$(GLASSCACHE) OLD=$(OLD) scripts/http-cache $(ARGS)

.PHONY: web-users
web-users: ## Send 100,000 random requests of 50 users with cookies and credentials through the HTTP cache, each reply held to a model (REQUESTS=n).
	@GLASSCACHE_TEST_REQUESTS=$(or $(REQUESTS),100000) scripts/python-tests -v -s python/tests/web/test_users.py python/tests/web/test_personal_pages.py

.PHONY: web-spellings
web-spellings: ## Send 1,000,000 random requests in every spelling through the keys of the HTTP cache, over ASGI and WSGI (REQUESTS=n).
	@GLASSCACHE_TEST_REQUESTS=$(or $(REQUESTS),1000000) scripts/python-tests -v python/tests/web/test_canonical.py

.PHONY: leases
leases: ## Have 64 processes ask for one cold key at once: one of them makes the value (PROCESSES=n).
	@GLASSCACHE_TEST_PROCESSES=$(or $(PROCESSES),64) scripts/python-tests -v -k of_many_processes python/tests/test_leases.py

.PHONY: loop
loop: release ## Record the course catalogue of examples/catalogue, simulate, deploy, replay on the cache itself and through a delaying relay, check the forecasts; writes build/loop/*.html (ARGS="--requests 2000").
	@scripts/python-venv --release
	@GLASSCACHE=$(GLASSCACHE) .venv/bin/python examples/catalogue/loop.py $(ARGS)

.PHONY: site
site: release ## Serve the shop of examples/site with each layer of its cache, drive it, print a table and write build/shop.html (ARGS="--serve http,page").
	@scripts/python-venv --release
	@GLASSCACHE=$(GLASSCACHE) .venv/bin/python examples/site/drive.py --page build/shop.html $(ARGS)

.PHONY: early-refresh
early-refresh: release ## 500 requests a second for a value that takes 50 ms and lives for 2 s, a minute: nobody waits (ARGS="--off --seconds 20").
	@scripts/python-venv --release
	@GLASSCACHE=$(GLASSCACHE) .venv/bin/python tests/web/early_refresh.py $(ARGS)

.PHONY: split-values
split-values: release ## Two writers and a reader of 20 MB values in a full server, 10,000 rounds, up to an hour: whole values of one write or misses (ROUNDS=n).
	@scripts/python-venv --release
	@GLASSCACHE=$(GLASSCACHE) GLASSCACHE_TEST_ROUNDS=$(or $(ROUNDS),10000) .venv/bin/python -m pytest -v -s -k never_mix python/tests/test_split.py

.PHONY: py
py: ## Build the Python module into .venv and say how to use it.
	@scripts/python-venv
	@echo 'PYTHONPATH=python .venv/bin/python -c "import glasscache"'

.PHONY: wheel
wheel: ## Build the wheel (module and command), install it into a fresh environment and run the Python tests there.
	@scripts/exclusive scripts/wheel-check

.PHONY: faults
faults: ## Run the clients against a server that lies, hangs and breaks off: threads, asyncio and fork too.
	@GLASSCACHE_TEST_CALLS=10000 GLASSCACHE_TEST_RACES=10000 scripts/python-tests -v -s python/tests/test_faults.py python/tests/test_deadlines.py python/tests/test_invalidation.py

.PHONY: faults-strict
faults-strict: ## The same without room for other work on the machine: deadlines are held to their bounds (20 ms at p99.9, 100 ms).
	@GLASSCACHE_TEST_SLACK=0 GLASSCACHE_TEST_CALLS=10000 scripts/python-tests -v -s python/tests/test_faults.py python/tests/test_deadlines.py
	@GLASSCACHE_TEST_SLACK=0 $(CARGO) test -p glasscache-server --test it -- tls::peers:: login:: memory::

.PHONY: faults-long
faults-long: ## Ten million operations through every fault, ten million with values to 1 MB and flat memory, 13,600 forks (ARGS="--operations 1000000").
	@scripts/client-long faults $(ARGS)
	@scripts/client-long resident $(ARGS)
	@GLASSCACHE_TEST_FORKS=3400 scripts/python-tests -v python/tests/test_forks.py

# Each world makes and frees megabytes: glibc is to keep them instead of returning them to the kernel.
WORLD := MALLOC_MMAP_THRESHOLD_=33554432 MALLOC_TRIM_THRESHOLD_=536870912 $(CARGO) run --release -q -p glasscache-world --

.PHONY: world
world: ## Simulated worlds of the client's engine and the server, from a first seed on (FIRST=0 SEEDS=10000); a failing seed prints its shortest history.
	@scripts/need-toolchain
	$(WORLD) $(or $(FIRST),0) $(or $(SEEDS),10000)

# ---- the lab: proofs --------------------------------------------------------------------------

.PHONY: reference
reference: release ## Compare policies and sampled curves with the reference results of a folder (TRACES=dir).
	python3 tests/reference/compare.py "$(TRACES)" --binary $(GLASSCACHE)

.PHONY: oracle-slabs
oracle-slabs: ## Compare our slab classes and plans with a real memcached (MEMCACHED=program).
	@test -n "$(MEMCACHED)" || { echo "no memcached on the path: MEMCACHED=program"; exit 1; }
	MEMCACHED=$(MEMCACHED) $(CARGO) test --release -p glasscache-sim --test it -- --include-ignored --nocapture of_memcached::

.PHONY: simulate-full
simulate-full: ## Compare the request simulator with its plain second implementation on a log of 200,000 requests.
	$(CARGO) test --release -p glasscache-sim --test it -- --include-ignored --nocapture request_simulation::

.PHONY: screenshots
screenshots: ## Draw every page of the lab in Chromium, wide, on a phone and on paper, light and dark, as pictures in SCREENSHOTS=dir.
	GLASSCACHE_TEST_SCREENSHOTS="$(abspath $(or $(SCREENSHOTS),build/screenshots))" $(CARGO) test -p glasscache-cli --test pages -- --nocapture legible

.PHONY: pause
pause: ## Pause a server once for 100 ms in a minute at 20,000 requests a second: p99.9 from the intended and from the send time.
	GLASSCACHE_TEST_PAUSE_SECONDS=60 GLASSCACHE_TEST_PAUSE_RATE=20000 $(CARGO) test --release -p glasscache-cli --test it -- --nocapture bench_pause

.PHONY: curve-check
curve-check: release ## Compare the forecast of `curve --server` with live look-aside replays on both servers, values of 1 KB and of mixed sizes (TRACES=dir, ARGS="--requests 1000000").
	$(GLASSCACHE) bench misses "$(TRACES)" --forecast --trace cloudphysics-w106 --trace cache2k-web12 $(if $(MEMCACHED),--memcached "$(MEMCACHED)") $(ARGS)
	$(GLASSCACHE) bench misses "$(TRACES)" --forecast --value-bytes 1000 --trace cloudphysics-w106 --trace cache2k-web12 $(if $(MEMCACHED),--memcached "$(MEMCACHED)") $(ARGS)

.PHONY: self-check
self-check: release ## Compare a server with itself by `bench --vs` and `profile --vs`, a hundred times each, 23 minutes: how often the interval contains 1, and how wide it is (RUNS=n, ARGS="--server memcached").
	PYTHONPATH=tests/live python3 tests/live/self_check.py --binary $(GLASSCACHE) --runs $(or $(RUNS),100) $(ARGS)

.PHONY: record-check
record-check: release ## Record a load of 20,000 gets a second on our server and a memcached: what was counted, what it cost, and the curve beside that of the load's own keys, five minutes (SECONDS=n, MEMCACHED=path, ARGS="--rate 5000").
	PYTHONPATH=tests/live python3 tests/live/record_check.py --binary $(GLASSCACHE) --server "$(GLASSCACHE) serve" \
	  $(if $(MEMCACHED),--server "$(MEMCACHED)") --seconds $(or $(SECONDS),60) $(ARGS)

# ---- measurements -----------------------------------------------------------------------------

.PHONY: bench-sim
bench-sim: release ## Time policies and the whole of `curve` beside the libcachesim package (TRACES=dir ARGS="--trace NAME").
	"$$(scripts/sim-python)" bench/sim/run.py "$(TRACES)" --binary $(GLASSCACHE) --keep bench/results $(ARGS)

.PHONY: replace-check
replace-check: release ## Replace a running server ten times under 50,000 requests a second: refused connections, wrong values, the longest pause (ARGS="--times 3 --memory 200 --keys 100000").
	scripts/replace-check --binary $(GLASSCACHE) $(ARGS)

.PHONY: figures-program
figures-program: release ## Build target/release/figures, the measurements that only developers need; it is not installed.
	@scripts/exclusive scripts/cargo-build --release -p glasscache-lab --bin figures

.PHONY: bench
bench: figures-program ## Measure CPU per request and latency beside memcached (MEMCACHED=path, ARGS="--scenario get-50 --rounds 5 --json").
	$(FIGURES) speed --keep bench/results $(if $(MEMCACHED),--memcached "$(MEMCACHED)") $(ARGS)

.PHONY: bench-builds
bench-builds: figures-program ## Compare CPU per request with an older build of ours, 20 pairs of every scenario, a quarter of an hour (OLD=path, ARGS="--scenario get-50").
	@test -n "$(OLD)" || { echo "no older build given: make bench-builds OLD=path/to/glasscache"; exit 2; }
	$(FIGURES) builds --old "$(OLD)" $(ARGS)

.PHONY: instructions
instructions: ## Count the instructions of gets and sets, of server and client, and of the server's worker in pipelines, under callgrind (OLD=checkout of an older build, ARGS="-o policy=tuned").
	for tree in . $(OLD); do (cd $$tree && RUSTFLAGS="--cfg=rustix_use_libc" CARGO_TARGET_DIR=target/callgrind \
		$(CARGO) build --release -p glasscache-cli -p glasscache-client --bin glasscache --example calls) || exit 1; done
	scripts/instructions target/callgrind/release $(if $(OLD),$(OLD)/target/callgrind/release)
	$(if $(OLD),scripts/server-instructions $(OLD)/target/callgrind/release/glasscache)
	scripts/server-instructions target/callgrind/release/glasscache $(ARGS)

.PHONY: bench-tls
bench-tls: release ## CPU of a request over TLS 1.3 beside a memcached built with TLS and beside OpenSSL alone (TLS_MEMCACHED=path, ARGS="--rounds 9").
	@test -n "$(TLS_MEMCACHED)" || { echo "no memcached with TLS given: make bench-tls TLS_MEMCACHED=path"; exit 2; }
	python3 bench/tls/run.py --binary $(GLASSCACHE) --memcached "$(TLS_MEMCACHED)" $(ARGS)

.PHONY: bench-generator
bench-generator: release ## Gets per CPU second of the load generator beside memtier_benchmark, two minutes (MEMTIER=path, ARGS="--rounds 9").
	@test -n "$(MEMTIER)" || { echo "no memtier_benchmark given: make bench-generator MEMTIER=path"; exit 2; }
	python3 bench/generator.py --binary $(GLASSCACHE) --memtier "$(MEMTIER)" $(ARGS)

.PHONY: bench-memory
bench-memory: release ## Fill to the limit and read back: user bytes per resident byte beside memcached (ARGS="-m 256 --size mix").
	$(GLASSCACHE) bench memory --keep bench/results $(if $(MEMCACHED),--memcached "$(MEMCACHED)") $(ARGS)

.PHONY: bench-bounds
bench-bounds: figures-program ## The bounds that a server always keeps, and its memory through fills of shifting sizes (ARGS="-m 256 --part chain").
	$(FIGURES) bounds --keep bench/results $(if $(MEMCACHED),--memcached "$(MEMCACHED)") $(ARGS)

.PHONY: bench-misses
bench-misses: release ## Replay recorded key streams look-aside and compare avoidable misses with memcached's (TRACES=dir ARGS="--trace NAME").
	$(GLASSCACHE) bench misses "$(TRACES)" --keep bench/results $(if $(MEMCACHED),--memcached "$(MEMCACHED)") $(ARGS)

.PHONY: ranks
ranks: ## Print the mean misses of each policy over S3-FIFO's on recorded key streams (TRACES=dir; a minute).
	$(CARGO) run --release -p glasscache-sim --features parquet,own-policy --example ranks -- "$(TRACES)"/*.parquet

.PHONY: tuning
tuning: ## Print the misses of a policy that tunes itself over those of its default settings, eight seeds, generated loads and recorded key streams (TRACES=dir; SIZES=1 for goals; some minutes).
	$(CARGO) run --release -p glasscache-sim --features parquet,own-policy --example tuning -- "$(TRACES)"/*.parquet

.PHONY: bench-simulate
bench-simulate: release ## Time the request simulator (one core; the command on two) and the optimum of slab classes.
	python3 bench/sim/simulate.py --binary $(GLASSCACHE) --keep bench/results

.PHONY: figures
figures: release ## Print each promised figure with its command, its target and what was found (ARGS="speed --kept").
	@scripts/figures $(ARGS)

.PHONY: reference-pages
reference-pages: ## Write docs/reference/{settings,statistics,errors,client-settings}.md from the tables of the program.
	GLASSCACHE_WRITE_REFERENCE=1 $(CARGO) test -p glasscache-server -p glasscache-cli --lib --bins reference
	GLASSCACHE_WRITE_REFERENCE=1 scripts/python-tests -q python/tests/test_client_settings.py -k reference

.PHONY: figures-page
figures-page: ## Write docs/reference/figures.md and the table of README.md from the kept results.
	@scripts/figures --write

# ---- documentation ----------------------------------------------------------------------------

.PHONY: docs
docs: ## Build the documentation as a site in build/site, with the Python and Rust API; a warning is an error.
	@scripts/docs

.PHONY: picture
picture: release ## Draw the picture of README.md, a page of the lab, with a Chromium.
	@scripts/picture

FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
SECONDS_EACH ?= 60
# Room for an upload, which begins at 64 KiB, and something around it.
FUZZ_LEN ?= 200000

.PHONY: fuzz
fuzz: ## Feed parsers, sessions and the store with random bytes (SECONDS_EACH=60; nightly toolchain, cargo-fuzz).
	for target in $(FUZZ_TARGETS); do \
		cargo +nightly fuzz run $$target -- -max_total_time=$(SECONDS_EACH) -max_len=$(FUZZ_LEN) || exit 1; \
	done

.PHONY: bench-client
bench-client: ## Measure the Python clients side by side against a memcached, then against our server, on one CPU, six minutes (SCALE=1, ARGS="--rows get_many,asyncio").
	@MEMCACHED="$(MEMCACHED)" scripts/bench-client $(or $(SCALE),1) $(ARGS)

.PHONY: bench-record
bench-record: ## Measure what recording 1 % and 100 % of the requests adds to the Python clients' CPU and to a request, three minutes (ARGS="--rounds 20").
	@scripts/bench-record $(ARGS)

.PHONY: bench-telemetry
bench-telemetry: ## Measure what OpenTelemetry spans add to a get, off and on (ARGS="--rounds 200").
	@scripts/bench-telemetry $(ARGS)
