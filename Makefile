.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
AIRFLOW := .venv-airflow
WORKERS ?= 3
PARTS ?= 4
MASTER ?= rocketmq
WAREHOUSE ?= local
# of random cases: another one each day, shown in the command that make prints
SEED ?= $(shell date +%Y%m%d)
GATE := not nightly and not airflow and not browser and not soak
PURE := not spark and not peer and $(GATE)
CODE := logtwin sources sinks pipeline tests bench airflow_dags conf
export LOGTWIN_CACHE ?= $(CURDIR)/.cache
# where it is set, every process of a test compiles all modules anew, and pytest rewrites all its assertions again
unexport PYTHONDONTWRITEBYTECODE

help: ## this list
	@awk -F ':.*## ' '/^##@ /{printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Try it

run: setup ## the demo: a master, messages, a live replica, queries, the proof (MASTER=dister or kafka; WAREHOUSE=s3; ARGS="--duration-s 20 --keep")
	@$(BIN)/logtwin demo --master $(MASTER) $(if $(filter local,$(WAREHOUSE)),,--warehouse $(WAREHOUSE)) $(ARGS)

clean: ## remove what runs left: tables, checkpoints, the demo's master
	rm -rf warehouse master-store tour spark-warehouse metastore_db dist build

##@ Set up

setup: $(STAMP) ## make the environment in .venv (fast when nothing changed)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "logtwin needs Python 3.11 or newer; set PYTHON=…" >&2; exit 2; }
	@echo "setting up $(VENV) (once, a minute or two) …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@{ $(BIN)/python -m pip install --upgrade pip && $(BIN)/python -m pip install --editable '.[dev]'; } \
	  > $(VENV)/setup.log 2>&1 || { tail -n 20 $(VENV)/setup.log >&2; exit 1; }
	@touch $@

airflow-setup: $(AIRFLOW)/.installed ## make Airflow's environment in .venv-airflow (fast when nothing changed)

$(AIRFLOW)/.installed: airflow_dags/requirements.txt airflow_dags/constraints.txt
	@echo "setting up $(AIRFLOW) (once, half a minute, 700 MB) …"
	@test -x $(AIRFLOW)/bin/python || $(PYTHON) -m venv $(AIRFLOW)
	@$(AIRFLOW)/bin/python -m pip install --requirement $< --constraint airflow_dags/constraints.txt \
	  > $(AIRFLOW)/setup.log 2>&1 || { tail -n 20 $(AIRFLOW)/setup.log >&2; exit 1; }
	@touch $@

browser-setup: ## install chromium, for the test of the report (fast when there is a browser)
	@for name in chromium chromium-browser google-chrome; do command -v $$name > /dev/null && exit; done; \
	echo "installing chromium (once, half a minute) …"; \
	{ test "$$(id -u)" = 0 && apt-get update && apt-get install --yes --no-install-recommends chromium; } > /dev/null 2>&1 \
	  || echo "no chromium: the report's test in a browser will be skipped; on Debian: apt-get install chromium" >&2

# npm may wait for ever for a registry that it cannot reach
azurite-setup: ## install Azure's emulator, for the tests of a warehouse there (fast when it is there)
	@test -e .azurite/.installed && exit; \
	command -v npm > /dev/null || { echo "no npm: the tests on Azure's emulator will be skipped; install Node.js" >&2; exit; }; \
	echo "installing Azurite (once, half a minute) …"; mkdir -p .azurite; \
	limit=$$(command -v timeout); \
	$${limit:+$$limit 180} npm install --prefix .azurite --no-save --no-audit --no-fund --loglevel http azurite@3.35.0 > .azurite/setup.log 2>&1 \
	  && touch .azurite/.installed || { echo "no Azurite: the tests on Azure's emulator will be skipped" >&2; tail -n 5 .azurite/setup.log >&2; }

##@ Change it

lint: setup ## format, lint, types, import contracts
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: setup ## write the format, fix what can be fixed
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

docs: $(VENV)/.docs ## the site of the documents, into build/site; fails on a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet && echo build/site/index.html

$(VENV)/.docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet --editable '.[docs]' && touch $@

##@ Test it

test: setup ## everything that must hold: lint, then unit, Spark and real-broker tests
	@$(MAKE) --no-print-directory --jobs=2 lint caches
	$(BIN)/python -m pytest -m "$(GATE)" -n $(WORKERS) --no-loadscope-reorder --durations=20 $(ARGS)

# of lint's two cores one is idle; without it tests are slower, and no less right
caches: setup ## what the first run of the tests makes for all later ones: jars, archives of classes, compiled loops
	-@$(BIN)/python -m tests.caches

unit: setup ## the pure tests without whole jobs and processes, in about 45 s
	$(BIN)/python -m tests.parts $(PARTS) -m "$(PURE) and not job" $(ARGS)

nightly: lint airflow-setup browser-setup azurite-setup ## within the hour: older brokers, Airflow, Azure, Chromium, demos, what repeats, random cases (SEED=…)
	$(BIN)/mypy tests bench
	$(BIN)/mypy --python-executable $(AIRFLOW)/bin/python --cache-dir .mypy_cache/airflow airflow_dags
	LOGTWIN_HYPOTHESIS=nightly $(BIN)/python -m tests.parts $(WORKERS) -m "$(PURE)" --hypothesis-seed $(SEED) $(ARGS)
	LOGTWIN_HYPOTHESIS=nightly $(BIN)/python -m pytest -m "(nightly or airflow or browser) and not soak" -n $(WORKERS) --no-loadscope-reorder --durations=20 --hypothesis-seed $(SEED) $(ARGS)

soak: setup airflow-setup azurite-setup ## long runs: a large log, random kills, an hour of fuzzing, many random cases; figures belong into bench/results/long-runs.md
	JAVA_TOOL_OPTIONS= $(BIN)/python -m pytest -m soak -s --timeout 7200 $(ARGS)
	LOGTWIN_HYPOTHESIS=exhaustive $(BIN)/python -m pytest -q -m "$(PURE)" --hypothesis-seed $(SEED) --timeout 7200

##@ Measure it

bench: setup ## the figures that have goals, into bench/results (hours; ARGS="--only catch_up --rounds 1")
	$(BIN)/python -m bench $(ARGS)

bench-quick: setup ## a few minutes: fails where a main ratio is 25 % below the recorded one (ARGS=--record records them)
	$(BIN)/python -m bench.quick $(ARGS)

bench-more: setup ## further figures, as ratios against something in the same run
	$(BIN)/python -m bench.verify
	$(BIN)/python -m bench.layout

##@ Ship it

wheel: setup ## dist/logtwin-*.whl, for spark-submit --py-files
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist . && ls dist/*.whl

release-check: $(VENV)/.release ## dist/ with wheel and sdist, each installed in a fresh environment and tried; then the changelog
	rm -rf dist build && $(BIN)/python -m build --outdir dist . > $(VENV)/release.log && $(BIN)/twine check --strict dist/*
	@for file in dist/*; do \
	  rm -rf build/fresh && $(PYTHON) -m venv build/fresh && build/fresh/bin/pip install --quiet "$$file[all]" \
	  && (cd build/fresh && bin/logtwin --version && bin/logtwin tables show messages > /dev/null && bin/logtwin docs first-job > /dev/null && bin/logtwin files --to files > /dev/null && echo "$$file answers") || exit 1; \
	done
	@version=$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml); grep -q "^## $$version (20" CHANGELOG.md \
	  || { echo "CHANGELOG.md has no date for $$version" >&2; exit 1; }

$(VENV)/.release: $(STAMP)
	@$(BIN)/python -m pip install --quiet --editable '.[release]' && touch $@

.PHONY: help run clean setup airflow-setup browser-setup azurite-setup lint fix docs test caches unit nightly soak bench bench-quick bench-more wheel release-check
