# Each target creates .venv when it is missing; nothing else is needed than Python >= 3.11.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

FORMAT := $(BIN)/ruff format --check src tests bench packaging && $(BIN)/ruff check src tests bench packaging
TYPES  := nice $(BIN)/lint-imports && nice $(BIN)/mypy
# two that compute and one that waits: tests/together.py
# processes that tests start, some hundred, find bytecode where the shell asks not to keep it: half a second each
TESTS  := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder --durations=10

.DEFAULT_GOAL := help
.PHONY: help install demo reference docs test test-full test-pythons bench serve lint licenses audit

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: $(STAMP) ## create .venv, install Lading with its extras, compile and cache the kernels

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Lading needs Python >= 3.11, this is " + sys.version.split()[0] + "; set PYTHON=...")'
	@echo 'Installing Lading into $(VENV), once: four steps, three to six minutes on two cores.'
	@echo '1 of 4: packages, 2 GB on disk with Spark and its Java. One to three minutes, without a word from pip.'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# mypy takes two minutes of CPU the first time and two seconds later: it fills its cache during the other steps
	@rm -f $(VENV)/.types.read; (nice $(BIN)/mypy > /dev/null 2>&1; touch $(VENV)/.types.read) &
	@echo '2 of 4: compiling the kernels. About a minute, nothing if they are in the cache.'
	@$(BIN)/python -m lading.kernels.compile
	@echo '3 of 4: bytecode, of the tests too. Half a minute.'
	@# containers often ask Python not to keep bytecode: each start of a broker would then compile it, most of a second
	$(BIN)/python -m compileall -q src
	@# pytest rewrites 900 files of tests, 25 s of CPU, and without this each of the three processes of `make test` does so
	-@PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q --collect-only > $(VENV)/.collected 2>&1
	@echo '4 of 4: an archive of Spark'"'"'s Java classes for the tests, 190 MB. About a minute, nothing without Java.'
	@# seven sessions of a test run save 15 s of CPU each; tests run without it too
	-$(BIN)/python -m tests.spark.class_archive
	@for second in $$(seq 600); do [ -e $(VENV)/.types.read ] && break; sleep 1; done
	@touch $@

demo: install ## the flights of 2013, from messages with typed headers to tables, good and bad ones apart
	$(BIN)/lading demo

serve: install ## the broker on the default ports, data in ./data
	$(BIN)/lading serve --data ./data

reference: install ## what pages say of commands, settings, metrics and benchmarks, from the code
	$(BIN)/python packaging/reference_pages.py

docs: install ## the documentation as a site, with search: open build/site/index.html; fails on a broken link
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: install
	$(FORMAT)
	$(TYPES)

test: install ## lint, types, import rules and the tests; slow ones take turns by the day
	$(FORMAT)
	@# import rules and types are looked at beside the first tests and told behind the last; either fails the whole
	@rm -f .pytest_cache/d/summary/line.txt
	@echo '$(TYPES) > $(VENV)/.types &'; ($(TYPES)) > $(VENV)/.types 2>&1 & types=$$!; \
	echo '$(TESTS)'; $(TESTS); tests=$$?; wait $$types; types=$$?; cat $(VENV)/.types; cat .pytest_cache/d/summary/line.txt 2>/dev/null; exit $$((tests | types))

test-full: install lint ## all tests, the long suites whole; prints their figures
	LADING_TEST_FULL=1 $(BIN)/python -m pytest --timeout=3600

test-pythons: ## the unit tests on each Python from 3.11 to 3.14 that this machine has, in environments of their own
	$(PYTHON) packaging/test_pythons.py

bench: install ## every question of bench/, as ratios
	$(BIN)/python -m bench

licenses: install ## the licences of all that an installation brings; fails on one that is unknown
	$(BIN)/python packaging/licenses.py --check

audit: ## the pinned packages against the advisories of the package index; fails if one has any, or cannot be looked up
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/pip install --quiet pip-audit==2.10.1
	@# strict: a package that is not found would be passed over, and the rest be called free of known vulnerabilities
	$(VENV)/audit/bin/pip-audit --requirement constraints.txt --no-deps --disable-pip --strict --progress-spinner off
