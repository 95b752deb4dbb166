PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: measure test check format docs truth clean

measure: $(STAMP)
	$(BIN)/rig measure --device xylo --scenario single-stream --simulate

test: $(STAMP)
	$(BIN)/python -m pytest

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy rig drivers scenarios reports fixtures benchmarks examples tests
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs

truth: $(STAMP)
	$(BIN)/python -m benchmarks.truth --plants 1000 --seed 1

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[audio,xylo,qubo,visa,serial,joulescope,nvml,dask,loihi2,docs,dev]'
	touch $@

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
