# Two commands do everything: `make demo` and `make test`. `make check` is the linters.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := pyproject.toml constraints.txt CMakeLists.txt $(shell find loaders/cpp tracer/cpp -name '*.h' -o -name '*.cpp' -o -name 'CMakeLists.txt')

.PHONY: demo test test-scale check build format clean bench docs

demo: $(STAMP)
	$(BIN)/mycroft demo

test: $(STAMP) $(VENV)/.browser $(VENV)/.systemd
	$(BIN)/python -m pytest --ignore=tests/scale $(PYTEST_ARGS)

# With real servers: S3, Kafka and Ray. Takes 200 MB of packages and some minutes, so it is no part of `make test`.
test-scale: $(VENV)/.scale
	$(BIN)/python -m pytest tests/scale $(PYTEST_ARGS)

$(VENV)/.scale: $(STAMP)
	$(BIN)/python -m pip install --quiet --no-build-isolation --constraint constraints.txt --editable '.[test-scale]'
	touch $@

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	git ls-files '*.h' '*.cpp' '*.cc' | xargs -r $(BIN)/clang-format --dry-run --Werror

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	git ls-files '*.h' '*.cpp' '*.cc' | xargs -r $(BIN)/clang-format -i

bench: $(STAMP)
	$(BIN)/python -m tests.bench

# Rebuilds the C++ after a change.
build:
	rm -f $(STAMP)
	$(MAKE) $(STAMP)

$(BIN)/python:
	@echo "setting up $(VENV): packages and C++, some minutes the first time"
	$(PYTHON) -m venv $(VENV) || { echo "no venv module: install it (Debian: python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade pip

$(STAMP): $(BIN)/python $(SOURCES)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt scikit-build-core pybind11 cmake ninja
	$(BIN)/python -m pip install --quiet --no-build-isolation --constraint constraints.txt --editable '.[test,dev]'
	touch $(STAMP)

# The browser tests need a Chromium: the one in $$MYCROFT_CHROMIUM or on the PATH, else Debian's package.
$(VENV)/.browser: $(BIN)/python
	@if [ -n "$$MYCROFT_CHROMIUM" ] || command -v chromium >/dev/null || command -v google-chrome >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium fonts-dejavu-core >/dev/null; \
	else echo "no chromium: install one, or name it in MYCROFT_CHROMIUM"; fi
	touch $@

# The examples of deploy/ are checked by systemd's own verifier, which needs no running systemd.
$(VENV)/.systemd: $(BIN)/python
	@if command -v systemd-analyze >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq systemd >/dev/null; \
	else echo "no systemd-analyze: install systemd"; fi
	touch $@

clean:
	rm -rf build dist .pytest_cache .ruff_cache $(STAMP)

# The pages that are made from the code.
docs: $(STAMP)
	$(BIN)/python -c "from mycroft.loaders.schema import markdown; print(markdown())" > docs/schema.md
