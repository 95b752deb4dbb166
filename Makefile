PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
SITE := $(VENV)/lib/python3*/site-packages

.PHONY: measure install test test-young test-narrow test-oldest check format docs truth firmware clean

measure: $(RUNTIME)
	$(BIN)/rig measure --device xylo --scenario single-stream --simulate

install: $(STAMP)

# Some tests wait for what they start, so three run at a time on two cores. Real-time tests run after the others. They
# mostly wait: five at a time; those that fail run again, alone.
ALONE := $(BIN)/python -m pytest -n 0 -m real_time
REAL_TIME = $(shell grep -rlw pytest.mark.real_time --include='test_*.py' tests)

test: export OPENBLAS_NUM_THREADS = 1  # a test has one core
test: export PYTHONDONTWRITEBYTECODE =  # what one process has compiled, the others read
test: $(STAMP)
	$(BIN)/python -m pytest -n 3 -m "not real_time"
	$(BIN)/python -m pytest -n 5 --dist worksteal -m real_time $(REAL_TIME) || $(ALONE) --lf $(REAL_TIME)

# A few real-time tests on one core, and on a host clock that reads a minute, as after booting.
FEW := tests/analysis/timing/test_gpio_live.py tests/drivers/meters/test_nvml.py tests/drivers/meters/test_rapl.py \
	tests/drivers/meters/test_every_meter.py::test_the_energy_of_a_computation_is_correct
BOOTED := unshare --map-root-user --time --fork --monotonic=$$($(BIN)/python -c 'import time; print(60 - int(time.monotonic()))')

test-young: $(STAMP)
	@if command -v taskset >/dev/null; then taskset -c 0 $(ALONE) $(FEW); else echo "Skipped: no taskset here for one core"; fi
	@if $(BOOTED) true 2>/dev/null; then $(BOOTED) $(ALONE) $(FEW); else echo "Skipped: this system permits no clock of one's own"; fi

# The figures as a processor without wide instructions computes them: recordings of earlier versions, and 16 plants.
FOUND := from numpy._core._multiarray_umath import __cpu_dispatch__ as all, __cpu_features__ as has; print(*filter(has.get, all))

test-narrow: export OPENBLAS_NUM_THREADS = 1
test-narrow: export NUMBA_CPU_NAME = generic
test-narrow: $(STAMP)
	NPY_DISABLE_CPU_FEATURES="$$($(BIN)/python -c '$(FOUND)')" $(BIN)/python -m pytest -n 2 tests/golden tests/analysis/power/test_truth.py

# The oldest versions that pyproject.toml admits, in an environment of their own.
OLDEST := $(VENV)-oldest
OLDEST_EXTRAS := audio,completion,dask,joulescope,loihi2,nir,nvml,primate,qubo,serial,visa,xylo
OLDEST_UV = $(OLDEST)/bin/python -m uv pip install --quiet --compile-bytecode --python $(OLDEST)/bin/python

test-oldest: export OPENBLAS_NUM_THREADS = 1
test-oldest:
	$(PYTHON) -m venv $(OLDEST) && $(OLDEST)/bin/python -m pip install --quiet uv
	$(OLDEST_UV) --resolution lowest-direct --editable '.[$(OLDEST_EXTRAS)]'
	$(OLDEST_UV) hypothesis jsonschema matplotlib pytest pytest-rerunfailures pytest-xdist pyvisa-sim
	$(OLDEST)/bin/python -m pytest -n 3 -m "not real_time"

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

firmware: $(STAMP)
	@if command -v arm-none-eabi-gcc >/dev/null && command -v qemu-system-arm >/dev/null; then \
		$(BIN)/python -m benchmarks.firmware --samples 200; \
	else echo "Skipped: no arm-none-eabi-gcc or qemu-system-arm here, so the firmware was NOT run"; fi

# uv installs if it is here, else pip does; with WHEELS=FOLDER, only from the wheels in that folder.
UV := $(shell command -v uv 2>/dev/null)
INSTALL = $(if $(UV),'$(UV)' pip install --python $(BIN)/python,$(BIN)/python -m pip install --no-compile) \
	--constraint constraints.txt $(if $(WHEELS),--no-index --find-links '$(WHEELS)')

# Installs extras. Of what the installer says, this shows the large steps, and everything from the first error on.
install_extras = { PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 $(INSTALL) --editable '.[$(1)]' 2>&1 || \
	printf '\nFAILED\n'; } | { all=; while read -r line; do case "$$line" in \
		FAILED) exit 1 ;; \
		ERROR*|error*|×*|Traceback*) all=1; echo "  $$line" ;; \
		*.whl\ *\ MB*|Download*MiB*|Building\ w*|Building\ *==*|Installing\ c*|Installed*|*Retrying*) printf '  %.110s\n' "$$line" ;; \
		*) test -z "$$all" || echo "  $$line" ;; \
	esac; done; }

# What takes room and serves nobody goes: setuptools, which builds bring along themselves, what `venv` compiled of pip,
# and the tests of pandas and SciPy (36 MB). Python compiles modules when they are first used.
RUNTIME_EXTRAS := xylo
$(RUNTIME): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; set PYTHON=")'
	@echo "Installing the rig and the simulated Xylo into $(VENV): 38 packages, about 510 MB, 1 to 3 minutes"
	@$(PYTHON) -m venv $(VENV)
	@$(call install_extras,$(RUNTIME_EXTRAS))
	@$(BIN)/python -m pip uninstall --quiet --yes setuptools 2>/dev/null
	@find $(addprefix $(SITE)/,pip pandas scipy) -type d '(' -name __pycache__ -o -name tests ')' -prune -exec rm -r {} +
	@touch $@

EXTRAS := audio,completion,xylo,nir,qubo,visa,serial,joulescope,nvml,dask,loihi2,docs,dev
$(STAMP): $(RUNTIME)
	@echo "Adding most extras and the tools of development to $(VENV): 117 packages and 1.1 GB in all, 1 to 3 minutes"
	@$(call install_extras,$(EXTRAS))
	@$(BIN)/python -W ignore -m compileall -qq -j 0 $(SITE) || true  # a template of somebody's is no Python
	@touch $@

clean:
	rm -rf $(VENV) $(OLDEST) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
