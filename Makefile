# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXTRAS := dev

.PHONY: demo test torture check format docs clean

demo: $(VENV)/.core
	$(BIN)/lrc demo

test: $(VENV)/.full
	$(BIN)/python -m pytest -n auto --dist loadfile

# Faults at every step, kills, full disks, damaged inputs, fuzzing: hours. Figures go to torture.jsonl and
# docs/robustness.md.
torture: $(VENV)/.full
	LRC_KILLS=100 $(BIN)/python -m pytest -o timeout=0 -o faulthandler_timeout=0 tests/torture tests/test_faults.py

check: $(VENV)/.full
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

format: $(VENV)/.full
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

# The site, in build/site, its tutorials executed; a link that leads nowhere fails it, and so does a cell.
# LRC_NOTEBOOKS=off leaves the tutorials as they are written.
docs: $(VENV)/.docs
	$(BIN)/mkdocs build --strict

# A stamp is older than what it depends on only when something must be installed again.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) first: torch and a dozen packages, some minutes, once."
	$(BIN)/pip install --quiet -c constraints.txt -e '.[lab,studio]'
	touch $@

$(VENV)/.full: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Setting up $(VENV) first, with everything that tests need: some minutes, once."
	$(BIN)/pip install --quiet -c constraints.txt -e '.[$(EXTRAS)]'
	touch $(VENV)/.core $@

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/pip install --quiet -c constraints.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) demo
