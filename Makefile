# Every target makes the environment that it needs from tests/constraints.txt: python3 >= 3.11 with venv and pip is enough.
#   make demo      a table before and after a recluster, on real TPC-H rows (SF=1 for 6 million)
#   make demo-iceberg   the same story on an Iceberg table, without a server, or on MinIO where it is installed
#   make first-ten-minutes   what a new user does first, on Parquet, Delta and Iceberg data made for it, timed
#   make test      all tests that this machine can run; what is skipped is printed with its reason
#   make test-thorough   the same with 60 times as many cases in every random test, and a minute for each race: hours
#   make test-lowest     the tests of LOWEST_TESTS on the lowest version of every dependency
#   make test-killed     processes at work on one table, killed at random: 150 s on each of four kinds of table, in turn
#   make test-sim  10,000 simulated histories of actors, faults and clocks, a fifth over Iceberg (COUNT=; FIRST=: the first seed)
#   make test-trino      Iceberg tables beside Trino, and in a Nessie catalog: loads 1.1 GB first; needs MinIO, Maven, Java 24
#   make fuzz      coverage-guided fuzzing of every parser, a minute each; PARSERS="where plan" for some, FUZZ_SECONDS for longer
#   make lint      ruff, and mypy --strict over the package as it is installed
#   make bench     all benchmarks; results as text in benchmarks/results/
#   make bench-policies   policies on traces: rows rewritten at equal depth, and the picture
#   make bench-workload   policies on workloads that drift: seconds of queries and of rewriting, and the picture
#   make bench-merge   the merge against every engine that does the same, Spark's table formats too; skips what it cannot get
#   make bench-layouts   curves against Delta's and Iceberg's, and Hudi's clustering: seconds, and what queries read; the picture
#   make bench-a   those of the format: append, scan, metadata, start-up
#   make docs      the site of docs/ in site/, with the API; fails on a broken link
#   make wheel     the wheel and the sdist in dist/;  make check-wheel  proves that it works without the extras, on every Python
#   make test INSTALL=wheel   the same tests against the built wheel in an environment of its own
PYTHON ?= python3
INSTALL ?= editable
PYTEST_ARGS ?= -n auto --dist loadgroup
COUNT ?= 10000
FIRST ?= 1
SF ?= 0.1
FUZZ_SECONDS ?= 60
CONSTRAINTS := tests/constraints.txt
LAYERS := api cli merger metrics selector tableformat
SOURCES := $(shell find $(LAYERS) -name '*.py' 2>/dev/null)
PIP_FLAGS := --quiet --disable-pip-version-check --constraint $(CONSTRAINTS)
VENV := .venv
WHEEL_VENV := .venv-wheel
BARE_VENV := .venv-bare
LOWEST_VENV := .venv-lowest
UV := uv==0.13.9
# What depends on how other libraries behave, in a minute. `make test` runs them on the highest versions.
LOWEST_TESTS := tests/tableformat/test_older_arrow.py tests/model/test_types.py tests/model/test_cluster_key.py \
  tests/metrics tests/predicate/test_sql.py tests/predicate/test_match_and_rows.py \
  tests/native/test_sorts.py tests/native/test_curve_tables.py tests/merger/test_merge.py tests/merger/test_cuts.py \
  tests/iceberg/test_pyiceberg_members.py tests/cli/test_recluster.py tests/workload/test_import.py
ifeq ($(INSTALL),wheel)
TEST_VENV := $(WHEEL_VENV)
CHECK_INSTALL = $(TEST_VENV)/bin/python scripts/check_wheel.py
else
TEST_VENV := $(VENV)
CHECK_INSTALL = @true
endif

.PHONY: docs first-ten-minutes demo demo-iceberg test test-trino test-thorough fuzz lint format bench bench-a bench-policies bench-workload bench-merge bench-layouts wheel check-wheel test-lowest lowest-tests lowest minio chromium postgres constraints clean test-killed test-sim
.DELETE_ON_ERROR:

demo: $(VENV)/.installed
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" SF=$(SF) bash scripts/demo.sh

demo-iceberg: $(VENV)/.installed
	PATH="$(CURDIR)/$(VENV)/bin:$$PATH" SF=$(SF) bash scripts/demo_iceberg.sh

# What a new user does first, on Parquet, Delta and Iceberg data made for it, timed.
first-ten-minutes: $(TEST_VENV)/.installed
	PATH="$(CURDIR)/$(TEST_VENV)/bin:$$PATH" bash scripts/first_ten_minutes.sh

# The folders of the checkout are not called tblctl, so `import tblctl` can only find what is installed in the
# environment: the editable one, or the wheel.
test: $(TEST_VENV)/.installed
	$(CHECK_INSTALL)
	-$(MAKE) .venv-duckdb/.installed
	$(TEST_VENV)/bin/python -m pytest $(PYTEST_ARGS)

test-lowest:
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13))'; then $(MAKE) lowest-tests; \
	else echo "skipped: the lowest versions of numpy and pandas have no wheels for Python 3.13 and newer"; fi

lowest-tests: $(LOWEST_VENV)/.installed
	$(LOWEST_VENV)/bin/python -m pytest -n auto --dist loadgroup $(LOWEST_TESTS)

test-killed: $(VENV)/.installed
	$(VENV)/bin/python -m tests.killed
test-sim: $(VENV)/.installed
	cd tests && ../$(VENV)/bin/python -m simulation --first $(FIRST) --count $$(( $(COUNT) * 4 / 5 ))
	cd tests && ../$(VENV)/bin/python -m simulation --format iceberg --first $(FIRST) --count $$(( $(COUNT) / 5 ))

# Trino and Nessie are too large for every run: 1.1 GB to load.
test-trino: export TBLCTL_TEST_ENGINES := 1
test-trino: $(TEST_VENV)/.installed
	bash scripts/install_trino.sh
	$(TEST_VENV)/bin/python -m pytest tests/engines

test-thorough: export HYPOTHESIS_PROFILE := thorough
test-thorough: PYTEST_ARGS += --timeout 36000
test-thorough: test

# mypy cannot follow folders mapped in pyproject.toml, so it reads a tree of links with the installed names.
# Fails at the first input that breaks a rule of tests/hostile/attack.py; build/fuzz/<parser>/ has the input.
fuzz: $(VENV)/.installed
	$(VENV)/bin/pip install $(PIP_FLAGS) --requirement tests/fuzz.txt
	for parser in $(or $(PARSERS),$$(PYTHONPATH=tests $(VENV)/bin/python -m hostile.parsers)); do \
	  echo "fuzzing $$parser"; \
	  PYTHONPATH=tests nice $(VENV)/bin/python -m hostile.fuzz $$parser -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	rm -rf build/typed && mkdir -p build/typed
	$(VENV)/bin/python scripts/link_package.py build/typed
	MYPYPATH=build/typed $(VENV)/bin/mypy --package tblctl
	MYPYPATH=build/typed $(VENV)/bin/mypy tests/typing/usage.py

format: $(VENV)/.installed
	$(VENV)/bin/ruff check --fix-only .
	$(VENV)/bin/ruff format .

bench: $(VENV)/.peers
	$(VENV)/bin/python -m benchmarks

bench-a: $(VENV)/.installed
	$(VENV)/bin/python -m benchmarks append scan metadata startup

bench-policies: $(VENV)/.peers
	$(VENV)/bin/python -m benchmarks policies

bench-workload: $(VENV)/.peers
	$(VENV)/bin/python -m benchmarks workload

bench-merge: $(VENV)/.peers
	-$(MAKE) .venv-hudi
	$(VENV)/bin/python -m benchmarks merge

bench-layouts: $(VENV)/.peers
	-$(MAKE) .venv-hudi
	$(VENV)/bin/python -m benchmarks layouts

# Hudi's Spark runtime ends at Spark 3.5.
.venv-hudi:
	$(PYTHON) -m venv $@.new
	$@.new/bin/pip install --quiet --disable-pip-version-check 'pyspark>=3.5,<3.6'
	mv $@.new $@

# DuckDB as a reader of Iceberg tables: its extensions are of this version, and tests use another. Without it, tests
# are skipped, and fail with CI=true.
.venv-duckdb/.installed: tests/duckdb.txt
	$(PYTHON) -m venv .venv-duckdb
	.venv-duckdb/bin/pip install --quiet --disable-pip-version-check --requirement tests/duckdb.txt
	touch $@

.venv-docs/.installed: scripts/docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --disable-pip-version-check --requirement scripts/docs.txt
	touch $@

docs: .venv-docs/.installed
	rm -rf build/docs && mkdir -p build/docs && $(PYTHON) scripts/link_package.py build/docs
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build

wheel: dist/.built

dist/.built: $(VENV)/.installed pyproject.toml README.md LICENSE $(SOURCES)
	rm -rf dist build/lib build/bdist.*
	$(VENV)/bin/python -m build --outdir dist .
	touch $@

# Both can be uploaded. With its declared dependencies only, every module of the wheel imports and the command works.
check-wheel: dist/.built .venv-release/.installed
	.venv-release/bin/twine check --strict dist/*.whl dist/*.tar.gz
	rm -rf $(BARE_VENV)
	$(PYTHON) -m venv $(BARE_VENV)
	$(BARE_VENV)/bin/pip install $(PIP_FLAGS) dist/*.whl
	$(BARE_VENV)/bin/python scripts/check_wheel.py
	bash scripts/check_pythons.sh dist/*.whl

.venv-release/.installed: scripts/release.txt
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/pip install --quiet --disable-pip-version-check --requirement scripts/release.txt
	touch $@

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS)
	$(PYTHON) scripts/check_python.py
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install $(PIP_FLAGS) --editable '.[dev,test]'
	touch $@

$(VENV)/.peers: $(VENV)/.installed
	$(VENV)/bin/pip install $(PIP_FLAGS) --editable '.[bench]'
	touch $@

$(WHEEL_VENV)/.installed: dist/.built $(CONSTRAINTS)
	$(PYTHON) -m venv $(WHEEL_VENV)
	$(WHEEL_VENV)/bin/pip install $(PIP_FLAGS) "$$(ls $(CURDIR)/dist/*.whl)[test]"
	$(WHEEL_VENV)/bin/pip install $(PIP_FLAGS) --no-deps --force-reinstall dist/*.whl
	touch $@

$(LOWEST_VENV)/.installed: pyproject.toml tests/lowest.txt
	$(PYTHON) -m venv $(LOWEST_VENV)
	$(LOWEST_VENV)/bin/pip install --quiet --disable-pip-version-check $(UV)
	$(LOWEST_VENV)/bin/uv pip install --quiet --python $(LOWEST_VENV)/bin/python --requirement tests/lowest.txt
	$(LOWEST_VENV)/bin/uv pip install --quiet --python $(LOWEST_VENV)/bin/python --no-deps --editable .
	touch $@

minio:
	bash scripts/install_minio.sh

chromium:
	bash scripts/install_chromium.sh

postgres:
	bash scripts/install_postgres.sh

# Resolve everything anew and write down what was chosen.
constraints:
	rm -rf build/constraints
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/pip install --quiet --editable '.[dev,test,bench]'
	{ sed -n '/^#/p' $(CONSTRAINTS); build/constraints/bin/pip freeze --exclude-editable | sort --ignore-case; } > build/constraints.txt
	mv build/constraints.txt $(CONSTRAINTS)

# Resolve anew what `make test-lowest` installs. With it come the tools of those tests.
lowest: $(VENV)/.installed
	$(VENV)/bin/pip install --quiet --disable-pip-version-check $(UV)
	mkdir -p build
	{ sed -n '/^#/p' tests/lowest.txt; \
	  printf '%s\n' 'pytest>=9,<9.2' 'pytest-timeout>=2.4' 'pytest-xdist>=3.8' 'hypothesis>=6.150' 'duckdb>=2,<3' \
	    'polars>=2,<3' 'pandas>=2.2' 'moto[server]>=5.1' 'minio>=7.2,<8' 'fastavro>=1.12,<2' \
	  | $(VENV)/bin/uv pip compile --quiet --no-header --no-annotate --resolution lowest-direct --python-version 3.11 \
	    --extra s3 --extra pictures --extra iceberg --extra delta pyproject.toml -; } > build/lowest.txt
	mv build/lowest.txt tests/lowest.txt

clean:
	rm -rf build dist site $(VENV) $(WHEEL_VENV) $(BARE_VENV) $(LOWEST_VENV) .venv-hudi .venv-duckdb .venv-docs .venv-release .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
