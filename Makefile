# Bare `make` lists the targets. Everything runs in .venv, which is made from requirements.lock when it is missing or old.
.DEFAULT_GOAL := help
.PHONY: help demo test quick cover faults bench lint format lock clean java

BIN := .venv/bin
ROOMS := core storage log queue capture events plan kernels flow sinks views
PARTS := tests/unit tests/contract
LAWS := tests/laws tests/faults tests/docs examples
FAST := --max-worker-restart 0  # a process that dies fails the run at once
MANY := tests/unit/kernels tests/laws/test_tables.py tests/laws/test_windows.py tests/faults/test_cleaning_crash.py
WORKERS := 3  # more than cores, where tests wait for brokers and processes; those with Spark are two at a time
COVER := $(foreach room,$(ROOMS),--cov=penstock.$(room)) --cov-report=term:skip-covered --cov-fail-under=95

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST) | expand -t 10

demo: .venv/.locked java  ## a shop, live in the terminal, with a crash in the middle
	@$(BIN)/penstock demo

test: lint java  ## everything that must hold before a change goes in
	@$(BIN)/python -m penstock.engine.spark.archive
	$(BIN)/pytest $(PARTS) -n $(WORKERS) $(FAST) --dist loadfile -m "not spark and not long"
	$(BIN)/pytest $(LAWS) -n $(WORKERS) $(FAST) -m "not spark and not long"
	$(BIN)/pytest tests examples -n 2 $(FAST) --dist loadfile -m "spark and not long"

quick: .venv/.locked  ## the tests that need no Spark
	$(BIN)/pytest $(PARTS) $(LAWS) -n $(WORKERS) -m "not spark and not long"

cover: .venv/.locked  ## how much of the rooms without Spark their own tests reach
	COVERAGE_FILE=$(CURDIR)/.venv/.coverage $(BIN)/pytest $(PARTS) -n $(WORKERS) --dist loadfile -m "not spark and not long" $(COVER)

faults: cover java  ## the long forms: kills, power loss, bad disks
	PENSTOCK_CASES=$${PENSTOCK_CASES:-4} $(BIN)/pytest $(MANY) -m "not long" -n 2
	$(BIN)/pytest tests -m long --timeout 3600 -n 2 $(FAST)

bench: .venv/.locked java  ## measure, and write docs/benchmarks.md
	$(BIN)/python -m bench

lint: .venv/.locked  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: .venv/.locked  ## lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:  ## choose versions anew and write requirements.lock (needs uv)
	uv pip compile --quiet --upgrade --no-strip-extras --universal --python-version 3.11 --extra dev --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links pyproject.toml --output-file requirements.lock

clean:  ## remove .venv and what tools leave behind
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage dist build
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

java:
	@tools/java.sh

.venv/.locked: requirements.lock pyproject.toml
	@tools/setup.sh
