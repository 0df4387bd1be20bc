# Thin: each line calls one command. VENV, PYTHON, JOBS and TORCH_INDEX can be set on the command line.
VENV ?= .venv
PYTHON ?= python3
JOBS ?= 2
BIN := $(VENV)/bin
# Address of an index that holds CPU builds of torch; only needed where the default index serves a CUDA build.
TORCH_INDEX ?=
INSTALLED := $(VENV)/.installed
BENCH_INSTALLED := $(VENV)-bench/.installed

export OMP_NUM_THREADS = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help env book test serve full bless bench lint lock clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

env: $(INSTALLED) ## create the environment (every other target does so when needed)

$(INSTALLED): requirements.lock requirements-carriers.lock pyproject.toml
	@sh scripts/install.sh "$(PYTHON)" "$(VENV)" requirements.lock "$(TORCH_INDEX)"

$(BENCH_INSTALLED): requirements-bench.lock requirements-carriers.lock pyproject.toml
	@sh scripts/install.sh "$(PYTHON)" "$(VENV)-bench" requirements-bench.lock "$(TORCH_INDEX)"

book: $(INSTALLED) ## run every chapter at quick (what is fresh is re-used) and build _build/html
	@$(BIN)/icml24 run --jobs $(JOBS)
	@$(BIN)/icml24 build

test: $(INSTALLED) ## all tests, nbval over every chapter's reference included
	@$(BIN)/python -m pytest -n $(JOBS) --dist loadscope --nbval --nbval-current-env --nbval-sanitize-with tests/notebooks/sanitize.cfg tests

serve: $(INSTALLED) ## serve _build/html on this machine
	@$(BIN)/icml24 serve

full: $(INSTALLED) ## run every chapter at full and record the results in book/records
	@$(BIN)/icml24 run --profile full --jobs $(JOBS)

bless: $(INSTALLED) ## renew the nbval references: make bless SLUG=private_hpo (all without SLUG)
	@$(BIN)/icml24 bless $(SLUG)

bench: $(BENCH_INSTALLED) ## time each kernel beside its peer, in one run: make bench SLUG=private_hpo (all without SLUG)
	@$(VENV)-bench/bin/python bench/run.py $(SLUG)

lint: $(INSTALLED) ## ruff, mypy, import contracts, and the book's own checks
	@sh scripts/lint.sh "$(BIN)"

lock: $(INSTALLED) $(BENCH_INSTALLED) ## write the versions now installed into the two lock files
	@$(BIN)/python scripts/lock.py "$(VENV)" "$(VENV)-bench"

clean: ## remove everything that was built, keep the environment
	@rm -rf _build
