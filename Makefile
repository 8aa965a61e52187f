# Two commands: `make demo` runs the main job, `make test` passes the tests.
# Each sets up everything first (scripts/set-up), on a machine that has nothing of ours.

VENV ?= .venv
BIN := $(VENV)/bin
# Most of what tests do is wait for processes to start and answer.
WORKERS ?= $(shell expr 2 \* $$(nproc))
export VENV

.PHONY: help setup demo test test-long check format bench screenshots clean

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: ## Install everything that the rest needs
	@scripts/set-up

demo: setup ## A high-rise fire, planned and run in three ways, measured beside what was predicted
	@$(BIN)/firedex plan builtin:high-rise
	@$(BIN)/firedex emulate builtin:high-rise --duration 20 --embedded-if-needed --out out/demo

test: setup ## Run the tests (under 20 minutes)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup -m "not long" --durations 15 \
	  --ignore tests/emulation --ignore-glob '*_in_a_browser.py'
	$(BIN)/python -m pytest -m "not long" --durations 15 tests/emulation tests/dashboard/*_in_a_browser.py

test-long: setup ## Run the statistical and endurance bars at full length
	$(BIN)/python -m pytest -m long

check: setup ## Lint, types and import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## Rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## Run every benchmark
	@$(BIN)/firedex bench --all

screenshots: setup ## Take pictures of every page of the dashboard, light and dark
	@$(BIN)/python tests/dashboard/take_screenshots.py

clean: ## Remove what set-up and tests made here
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
