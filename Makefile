# The verbs that people type. Everything runs in a virtual environment of the clone's own, .venv,
# filled from the hash-pinned lists in requirements/.

PYTHON ?= python3
PYTEST_ARGS ?= -n 6 --dist worksteal
BIN := .venv/bin

.PHONY: demo dist docs images test tests test-again test-launchers test-libraries lint types fmt lock lock-launchers lock-libraries lock-release bench chaos grounds lambda-zip screenshots clean

demo: .venv/demo.stamp  ## Run the digits example through the whole system, then stop everything
	$(BIN)/python examples/demo.py

# mypy keeps one core busy, and the other idle if nothing runs beside it: hence -j 2 in .ci/run.
test: lint types tests  ## Run every check and every test

tests: .venv/dev.stamp
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-again: .venv/dev.stamp  ## Run the tests that failed last time, one at a time
	$(BIN)/python -m pytest -n 0 --last-failed --last-failed-no-failures none

LAUNCHERS := .launchers

test-launchers: .venv/dev.stamp $(LAUNCHERS)/stamp  ## Train with each launcher and framework
	FORGE_TEST_TORCH_BIN=$(CURDIR)/$(LAUNCHERS)/bin \
		$(BIN)/python -m pytest -n 2 tests/acceptance/gangs/test_multi_node_example.py \
		tests/acceptance/training/test_frameworks.py \
		tests/acceptance/training/test_integrations.py \
		tests/acceptance/training/test_mlflow_server.py \
		tests/acceptance/training/test_several_processes.py \
		tests/unit/job_io/test_tensorboard.py \
		tests/unit/job_io/test_trackers.py \
		tests/unit/project/test_mixed.py

LIBRARIES := .libraries

test-libraries: .venv/dev.stamp $(LIBRARIES)/stamp  ## Kill jobs of the libraries people train with, and compare how they end
	FORGE_TEST_LIBRARIES_BIN=$(CURDIR)/$(LIBRARIES)/bin \
		$(BIN)/python -m pytest -n 2 $(LIBRARIES_ARGS) tests/acceptance/training/test_libraries.py

lint: .venv/dev.stamp
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports

types: .venv/dev.stamp
	$(BIN)/mypy

fmt: .venv/dev.stamp
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: .venv/dev.stamp  ## Measure the queue against raw Postgres; takes five minutes
	$(BIN)/python benchmarks/queue

# SEED and MINUTES, and if wanted WORKERS and JOBS (a second); CHAOS_ARGS for the rest.
CHAOS = $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
	$(if $(WORKERS),--workers $(WORKERS)) $(if $(JOBS),--jobs $(JOBS)) $(CHAOS_ARGS)

chaos: .venv/dev.stamp  ## Strike a whole queue with faults and check that nothing was lost
	PYTHONPATH=tests $(BIN)/python -m chaos $(CHAOS)

grounds: .venv/dev.stamp  ## Try other Debian releases, Pythons, engines, databases and stores, as root
	PYTHONPATH=tests $(BIN)/python -m grounds $(GROUNDS_ARGS)

RELEASE := .release
PYTHONS ?= 3.11 3.12 3.13 3.14

dist: .venv/dev.stamp $(RELEASE)/stamp  ## Make a release in dist/: wheel, sdist, completion, manual page, images, SBOMs, notes; try it with PYTHONS
	$(BIN)/python infra/release/make.py --tools $(RELEASE)/bin --images $(DIST_ARGS) $(foreach one,$(PYTHONS),--python $(one))

images: .venv/dev.stamp  ## Build the images forge-server, forge-sweeper and forge-worker
	$(BIN)/python infra/release/images.py $(IMAGES_ARGS)

lambda-zip: .venv/dev.stamp  ## Build build/forge-lambda.zip, which infra/template.yaml deploys
	$(BIN)/python infra/lambda_zip.py $(LAMBDA_ARGS)

screenshots: .venv/dev.stamp  ## Take the pictures of the dashboard in docs/screenshots anew
	PYTHONPATH=tests $(BIN)/python -m browser.screenshots

docs: .venv/dev.stamp  ## Build the documentation site, build/docs/site/index.html
	$(BIN)/python docs/site/build.py

# Only the public registry and no local wheels, so that the hashes are the ones that everybody gets.
# Pins stay as they are where they still fit; `make lock LOCK_ARGS=--upgrade` takes newer ones.
LOCK = env -u PIP_INDEX_URL -u PIP_EXTRA_INDEX_URL -u PIP_FIND_LINKS PIP_CONFIG_FILE=/dev/null \
	CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --strip-extras \
	--no-annotate --allow-unsafe --no-emit-options $(LOCK_ARGS)
LOCK_PROJECT = $(LOCK) --build-deps-for editable
# One resolution serves all lists: what is tested is what is deployed.
LOCK_AS_DEV = $(LOCK_PROJECT) --constraint requirements/dev.txt

lock: .venv/dev.stamp  ## Pin the dependencies of pyproject.toml anew
	$(LOCK_PROJECT) --extra dev --output-file requirements/dev.txt pyproject.toml
	$(LOCK_AS_DEV) --output-file requirements/base.txt pyproject.toml
	$(LOCK_AS_DEV) --extra worker --output-file requirements/worker.txt pyproject.toml
	$(LOCK_AS_DEV) --extra functions --output-file requirements/functions.txt pyproject.toml
	$(LOCK_AS_DEV) --extra local --extra examples --output-file requirements/demo.txt pyproject.toml

lock-launchers: .venv/dev.stamp  ## Pin what test-launchers installs; may download all of it
	$(subst make lock,make lock-launchers,$(LOCK)) --output-file requirements/launchers.txt requirements/launchers.in

lock-libraries: .venv/dev.stamp  ## Pin what test-libraries installs; may download all of it
	$(subst make lock,make lock-libraries,$(LOCK)) --output-file requirements/libraries.txt requirements/libraries.in

lock-release: .venv/dev.stamp  ## Pin what dist checks a release with
	$(subst make lock,make lock-release,$(LOCK)) --output-file requirements/release.txt requirements/release.in

clean:  ## Remove what the targets above made
	[ ! -d .demo ] || chmod -R u+w .demo
	rm -rf .venv $(LAUNCHERS) $(LIBRARIES) $(RELEASE) .tox .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is set last, so that an installation cut short is done again.
.venv/%.stamp: requirements/%.txt pyproject.toml | $(BIN)/python
	@echo "installing requirements/$*.txt into .venv"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# PyTorch and its libraries are 3 GB to download and 6 GB on disk, those of test-libraries 1 GB and
# 4 GB, so no other target needs them.
$(LAUNCHERS)/stamp $(LIBRARIES)/stamp $(RELEASE)/stamp: .%/stamp: requirements/%.txt
	$(PYTHON) -m venv .$*
	@.$*/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Forge needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv .venv
