# Every target sets up what it needs, from python3, make and the package registries alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .peers
PEERS_READY := $(PEERS)/.ready
# obp asks for Python below 3.11 and for versions of 2022, but its estimators run with those of today: so it comes
# without its own wishes, and with what it imports.
OBP_NEEDS := matplotlib pandas pyyaml scikit-learn scipy seaborn torch tqdm

.PHONY: help reproduce setup browser check test torture coverage peers bench gpu tails docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' Makefile

setup: $(READY) browser ## build .venv with everything that development needs

$(READY): pyproject.toml constraints.txt
	@echo "== setting up $(VENV): a few minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

# The browser is the distribution's own. Without one, and without the right to install one, the tests of pages are
# skipped and say so; under CI=true they fail.
browser: ## find Chromium for the tests of pages, or install it where the user may
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ]; then as_root=; else as_root="sudo -n"; fi; \
	if command -v apt-get >/dev/null && $$as_root true 2>/dev/null; then \
	  echo "== installing Chromium: a minute the first time"; \
	  $$as_root apt-get -qq update && $$as_root env DEBIAN_FRONTEND=noninteractive \
	    apt-get -qq install --yes --no-install-recommends chromium >/dev/null && exit 0; \
	fi; \
	echo "== no Chromium, and no way to install it here: the tests of pages will be skipped (under CI=true they fail)"

reproduce: $(READY) ## the main job: run the paper's evaluation, check its claims, write reproduction/index.html
	$(BIN)/maillard reproduce $(ARGS)

check: $(READY) ## lint, types, and which room may import which
	@echo "== ruff"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "== mypy --strict"
	$(BIN)/mypy
	@echo "== import contracts"
	$(BIN)/lint-imports

test: $(READY) browser ## run every test, on all cores
	@echo "== compiling the engines: a minute the first time"
	$(BIN)/python -m tests.warm
	@echo "== pytest"
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

torture: $(READY) ## run the long proofs: many more random cases, a million arms by quadrature, a million decisions by eight processes
	@echo "== pytest, the long way (about forty minutes)"
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m torture

coverage: $(READY) ## count how often intervals hold the truth on logs of policies that learn (half an hour on two cores), and write docs/coverage.md
	$(BIN)/python -m benchmarks.coverage $(ARGS)

peers: $(READY) $(PEERS_READY) ## build .peers with other libraries, and check that they read our files and estimate what we do
	@echo "== formats that other libraries read, and estimates beside theirs"
	$(BIN)/python -m tests.peers

$(PEERS_READY): peers-constraints.txt
	@echo "== setting up $(PEERS): a few minutes the first time"
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint peers-constraints.txt \
	  mabwiser numpy pymab river vowpalwabbit vw-estimators $(OBP_NEEDS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint peers-constraints.txt \
	  --no-deps --ignore-requires-python obp
	@touch $(PEERS_READY)

bench: $(READY) $(PEERS_READY) ## print the benchmark tables (about twelve minutes) and write them as benchmarks/*.json
	@echo "== policies"
	$(BIN)/python -m benchmarks.policies
	@echo "== other libraries"
	$(PEERS)/bin/python -m benchmarks.peers benchmarks/peers.json
	@echo "== simulation"
	$(BIN)/python -m benchmarks.simulation --peers benchmarks/peers.json
	@echo "== decisions"
	$(BIN)/python -m benchmarks.decisions
	@echo "== evaluation"
	$(BIN)/python -m benchmarks.evaluation
	@echo "== service"
	$(BIN)/python -m benchmarks.service

gpu: $(READY) ## on an NVIDIA GPU: measure the simulator (some minutes), and write docs/gpu.md
	$(BIN)/python -m benchmarks.gpu --grid --output docs/gpu.json
	$(BIN)/python -m benchmarks.gpu --page

tails: $(READY) ## on an NVIDIA GPU: the tail study (some ten minutes), and write docs/tails.md
	$(BIN)/python -m benchmarks.tails --device cuda
	$(BIN)/python -m benchmarks.tails --page

docs: $(READY) ## write again the generated parts of docs/ and its pictures
	$(BIN)/python -m docs.generate
	$(BIN)/ruff format --quiet src

clean: ## remove what the targets made
	rm -rf $(VENV) $(PEERS) reproduction reproduction.partial .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
