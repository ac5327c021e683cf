# Every target sets up what it needs, from python3, make and the package registries alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := .peers
PEERS_READY := $(PEERS)/.ready

.PHONY: help setup check test torture peers bench docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

setup: $(READY) ## build .venv with everything that development needs

$(READY): pyproject.toml constraints.txt
	@echo "== setting up $(VENV): a few minutes the first time"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

check: $(READY) ## lint, types, and which room may import which
	@echo "== ruff"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@echo "== mypy --strict"
	$(BIN)/mypy
	@echo "== import contracts"
	$(BIN)/lint-imports

test: $(READY) ## run every test, on all cores
	@echo "== pytest"
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

torture: $(READY) ## run the long proofs: many more random cases, a million arms by quadrature
	@echo "== pytest, the long way (about half an hour)"
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m torture

peers: $(PEERS_READY) ## build .peers with the libraries that the benchmarks compare with

$(PEERS_READY): peers-constraints.txt
	@echo "== setting up $(PEERS): a minute the first time"
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint peers-constraints.txt mabwiser numpy pymab river
	@touch $(PEERS_READY)

bench: $(READY) $(PEERS_READY) ## print the benchmark tables (about seven minutes) and write them as benchmarks/*.json
	@echo "== policies"
	$(BIN)/python -m benchmarks.policies
	@echo "== other libraries"
	$(PEERS)/bin/python -m benchmarks.peers benchmarks/peers.json
	@echo "== simulation"
	$(BIN)/python -m benchmarks.simulation --peers benchmarks/peers.json

docs: $(READY) ## write again the generated parts of docs/ and its pictures
	$(BIN)/python -m docs.generate
	$(BIN)/ruff format --quiet src

clean: ## remove what the targets made
	rm -rf $(VENV) $(PEERS) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
