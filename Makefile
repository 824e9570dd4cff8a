# Everything starts from a bare machine: python3 (3.11 or newer, with venv) and make. `make` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The first Python that runs and is new enough; a version manager may have commands on the path that do not run.
PYTHON ?= $(shell for python in python3.11 python3.12 python3.13 python3; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.complete
EXTRAS := dev,runtime,simulator,operator

# Wheels that lie beside the checkout are preferred to a download (PyTorch's is large); PIP_FIND_LINKS stays honoured.
WHEELS := $(wildcard ../shared/wheels)
FIND_LINKS := $(if $(WHEELS),--find-links $(abspath $(WHEELS)))

.PHONY: help
help: ## list the targets
	@echo "make TARGET, where TARGET is one of"
	@sed -nE 's/^([a-z0-9-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

.PHONY: venv
venv: $(STAMP) ## set up .venv with everything needed; all other targets do so by themselves

$(STAMP): pyproject.toml constraints.txt
	@[[ -n "$(PYTHON)" ]] || { echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3" >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) lacks venv; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	[[ -x $(BIN)/python ]] || "$(PYTHON)" -m venv $(VENV)
	$(BIN)/pip install --quiet $(FIND_LINKS) --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

.PHONY: demo
demo: $(STAMP) ## train a small GPT twice, once with two groups killed that come back, and compare the losses
	$(BIN)/python examples/gpt/demo.py

.PHONY: test
test: $(STAMP) ## the fast tests
	$(BIN)/pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile

.PHONY: test-slow
test-slow: $(STAMP) ## the tests that run real processes for longer; of those with many cases a spread (20 minutes)
	$(BIN)/pytest -m slow --durations=10

.PHONY: test-every
test-every: $(STAMP) ## the slow tests with all of their cases: a failure at every point of every step (an hour or more)
	$(BIN)/pytest -m slow --every

.PHONY: lint
lint: $(STAMP) ## style, format, types and the order of the rooms
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: format
format: $(STAMP) ## put the code into the form that lint asks for
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: docs
docs: $(STAMP) ## write the documents that are made from code
	$(BIN)/python -c 'from spare.api.exit_codes import document; print(document(), end="")' > docs/exit-codes.md
	$(BIN)/python -c 'from spare.api.reference import document; print(document(), end="")' > docs/api-reference.md

.PHONY: manifests
manifests: $(STAMP) ## write the custom resource definition, which is made from code
	$(BIN)/python -c 'from spare.api.crd import document; print(document(), end="")' > manifests/crd/sparejobs.yaml
	cp manifests/crd/sparejobs.yaml charts/spare/files/

# What a benchmark prints is kept in docs/benchmarks.
RECORD := $(BIN)/python benchmarks/record.py

.PHONY: bench
bench: bench-planner bench-recovery bench-exact bench-steady ## all measurements of ours

.PHONY: bench-planner
bench-planner: $(STAMP) ## how long planning takes, and how good the plans are
	$(RECORD) planner python benchmarks/planner.py

.PHONY: bench-recovery
bench-recovery: $(STAMP) ## from a kill to the next committed step, phase by phase; what coming back and leaving cost the others (30 minutes)
	$(RECORD) recovery-4-groups python benchmarks/recovery.py
	$(RECORD) recovery-8-groups python benchmarks/recovery.py --groups 8
	$(RECORD) comings-and-goings python benchmarks/comings.py

.PHONY: bench-exact
bench-exact: $(STAMP) ## what summing in fixed point costs, and its error
	$(RECORD) exact python benchmarks/exact.py

.PHONY: bench-steady
bench-steady: $(STAMP) ## a step without failures against plain DDP, and where its time goes (20 minutes)
	$(RECORD) steady-2-groups python benchmarks/steady/run.py --groups 2 --pairs 40 --seconds 0.5
	$(RECORD) steady-4-groups python benchmarks/steady/run.py --pairs 12 --seconds 0.5 --no-account
	$(RECORD) steady-exact python benchmarks/steady/run.py --reduction exact --micro-batches 1 --pairs 8 --seconds 0.5 --no-account

.PHONY: bench-fleet
bench-fleet: $(STAMP) ## one coordinator and 1,000 agents on sockets, and 10,000 in virtual time (7 minutes)
	$(RECORD) fleet python benchmarks/fleet.py

PEERS := .venv-peers
.PHONY: bench-peers
bench-peers: $(STAMP) $(PEERS)/.complete ## the same job under DDP, torchrun elastic, torchft and ours (35 minutes)
	$(BIN)/python benchmarks/peers/run.py --peers $(abspath $(PEERS))/bin/python --docs docs

$(PEERS)/.complete: benchmarks/peers/requirements.txt
	[[ -x $(PEERS)/bin/python ]] || "$(PYTHON)" -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet $(FIND_LINKS) --requirement benchmarks/peers/requirements.txt
	@touch $@

.PHONY: simulate-paper
simulate-paper: $(STAMP) ## the paper's table and figures, and ours beside them, into docs/ (an hour on one core)
	$(BIN)/spare simulate paper --runs 5
	$(BIN)/spare simulate beyond --runs 10 --steps 5000
	$(BIN)/spare simulate page
	{ for job in "--strategy whole -r 9" "--strategy micro -r 5"; do \
		$(BIN)/spare simulate run --groups 1000 --reduction 10 --runs 1 --profile $$job; done; } > docs/simulation/profile.txt

.PHONY: model
model: $(STAMP) ## the protocol's model: every interleaving of small jobs (an hour on one core)
	$(BIN)/python -m tests.model

SEEDS ?= 10000

.PHONY: chaos
chaos: $(STAMP) ## the protocol under SEEDS random failures, simulated: SEEDS=10000 make chaos
	$(BIN)/python -m tests.chaos $(SEEDS)

.PHONY: images
images: $(STAMP) ## build the images of operator and trainer
	images/build

.PHONY: e2e
e2e: $(STAMP) ## cluster, images, and the tests that need them; E2E="-k upgrade" runs a few of these
	hack/kind/e2e

.PHONY: run-e2e
run-e2e: $(STAMP)
	$(BIN)/pytest -m kind --durations=10 tests/e2e $(E2E)

.PHONY: ci
ci: ## what the continuous integration runs
	.ci/run

.PHONY: clean
clean: ## remove what was built; keeps nothing but the sources
	rm -rf $(VENV) $(PEERS) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
