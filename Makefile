# Everything here runs on a machine with Go, Python, make and git. Other tools are fetched, pinned, by .ci/tool and
# .ci/python, and kept in .cache and in $OUTBID_CACHE (~/.cache/outbid).
.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

REVISION ?= $(shell git describe --always --dirty --exclude "*" 2>/dev/null)
FUZZTIME ?= 20s
PKG ?= ./orchestrator/policy/themis/auction
MUTANTS_AT_ONCE ?= 2
# go-nvml's headers mark functions of old drivers as deprecated.
export CGO_CFLAGS := -Wno-deprecated-declarations
# Builds contain no paths, so that every checkout finds them in Go's cache.
export GOFLAGS := $(GOFLAGS) -trimpath
# Keep compiled Python files whatever the environment says; otherwise every pytest process compiles all tests.
export PYTHONDONTWRITEBYTECODE :=
PY_FILES := sdk-python examples docs/research orchestrator
# Tests of processes, mostly of bin/outbid: the race detector would only see the code of the tests.
PROCESSES := ./orchestrator/endtoend
# Tests of other packages that compute so much that RACE=1 leaves out a part of them. They run whole without the race detector.
WHOLE := TestAHundredThousandTrials TestDecidingAndRestoringAreOne TestDecidingAndRestoringAreOneForEveryEvent \
  TestReleasedLedgersLeadToTheSameStates TestWriterFailsAtEveryRequest TestEveryUplinkFits TestInputsOfEverySize \
  TestEachPeriodIsDecidedAgainWithItsOptions \
  TestAnArchivedLedgerIsReadByteForByte TestAnyChangeShows TestJetStream TestJetStreamOfManySegments TestJetStreamOfSmallMessages TestMemory
WHOLE_IN := $(addprefix ./,orchestrator/control orchestrator/ledger worker)
# Most of the SDK's tests wait, so that more run at once than there are cores; those of a file share a server.
FILES_AT_ONCE := --numprocesses=3 --dist=loadfile --no-loadscope-reorder
# The results of the tests, which .ci/tests reads.
RESULTS := $(CURDIR)/build/tests
GO_TEST = mkdir -p $(RESULTS); $(NICE) $$(.ci/tool gotestsum) --format pkgname --format-hide-empty-pkg --hide-summary=skipped \
	--jsonfile $(RESULTS)/$@.json -- $(QUICK) -skip "$$(.ci/tests quarantined go)"
PYTEST = -m pytest -q -rs --junitxml=$(RESULTS)/$@.xml $$(../.ci/tests quarantined python)
# make lint runs vet, and no debugger needs the symbols.
QUICK := -vet=off -ldflags=-w -timeout 15m
# Identifies the programs that tests start, which go test does not see, so that no cached result of other programs is used. A
# commit that only changes the revision in the binaries does not count.
PROGRAMS = $$({ go list -deps -export -f '{{if not .Standard}}{{.BuildID}}{{end}}' . ./orchestrator/lab/outbid-lab; \
	find sdk-python/src examples deploy -type f ! -name '*.pyc' | sort | xargs cksum; } | cksum)
FIXTURES = versitygw=$$(.ci/tool versitygw); natsserver=$$(.ci/tool nats-server || echo "no nats-server: the tests of three of them are skipped" >&2); \
	programs="$(PROGRAMS)"; export OUTBID_TEST_PROGRAMS="$$programs"; \
	export OUTBID_TEST_VERSITYGW=$$versitygw OUTBID_TEST_NATS_SERVER=$$natsserver OUTBID_BIN=$(CURDIR)/bin/outbid \
	OUTBID_LAB_BIN=$(CURDIR)/bin/outbid-lab GORACE=atexit_sleep_ms=0
# Tests that need programs which take minutes to build and have no other use.
SERVICES := TestAlerts TestAlertsOfNodesAndTrials TestAlertsOfServersAndNATS TestAlertOfADamagedLedger TestCountersNeverFall \
  TestTracesReachACollector TestThePlatformGuide TestMinio TestPresignedAgainstMinio TestMinioTidiesByItself
SERVICES_IN := ./deploy ./orchestrator/endtoend ./orchestrator/objects

.PHONY: help build image wheel reproducible test test-go test-concurrent test-endtoend test-calm test-whole test-python test-services test-chaos test-integrations test-optuna-examples test-browser test-sign-in test-chart test-kubernetes matrix lint fmt gen dashboard demo bench fuzz mutate docs changelog baseline site clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build bin/outbid, and bin/outbid-lab, which can also compare policies
	go build -trimpath -buildvcs=false -ldflags "-s -w -X main.revision=$(REVISION)" -o bin/outbid .
	go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$$(cat VERSION)$(if $(REVISION),+$(REVISION))" \
	  -o bin/outbid-lab ./orchestrator/lab/outbid-lab

image: ## build the server's container image into build/outbid.tar, without a daemon; CA_BUNDLE=FILE: with authorities to trust
	mkdir -p build/image
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.revision=$(REVISION)" -o build/image/outbid .
	go run ./deploy/image -o build/outbid.tar -name outbid:$$(cat VERSION) build/image/outbid=/usr/local/bin/outbid \
	  $(if $(CA_BUNDLE),$(CA_BUNDLE)=/etc/ssl/certs/ca-certificates.crt)

wheel: ## build this machine's wheel into build/wheel, with the binary inside; PLATFORMS=all: those for Linux and macOS, and the source distribution
	REVISION=$(REVISION) .ci/wheel $(PLATFORMS)

reproducible: ## check that two builds of HEAD in different folders have the same bytes; COLD=1: with an empty Go cache too
	.ci/reproducible $(if $(COLD),--cold)

test: build ## run the tests of Go and of the SDK; four kinds side by side, as some compute and others wait; RACE=1: with the race detector, as CI does
	.ci/python >/dev/null # first: thousands of files take minutes to write while servers of tests sync the disk
	$(MAKE) --no-print-directory --jobs=4 test-python test-concurrent test-endtoend test-calm $(if $(RACE),test-whole)

# Tests that only compute have no deadlines, so they run at low priority, in the time in which the others wait. Collecting
# garbage less often saves a fifth of it.
test-calm: NICE := nice
test-calm test-whole: export GOGC := 400

test-go: test-concurrent test-endtoend test-calm $(if $(RACE),test-whole) ## run the Go tests, the object store's against a real S3 server

test-concurrent: build ## run the Go tests of packages that start goroutines; RACE=1: with the race detector
	race=; if [ -n "$(RACE)" ] && .ci/need cc; then race=-race; fi; $(FIXTURES); \
	$(GO_TEST) $$race $$(go list ./... | grep -vxF "$$(go run .ci/calm.go; go list $(PROCESSES))")

test-endtoend: build ## run the Go tests of bin/outbid's processes
	export OUTBID_RECORDED_BIN=$$(.ci/recorded || echo "the tests of the recorded release are skipped" >&2); \
	$(FIXTURES); $(GO_TEST) $(PROCESSES)

test-calm: build ## run the Go tests that only compute
	$(FIXTURES); $(GO_TEST) $$(go run .ci/calm.go)

test-whole: build ## run the Go tests that RACE=1 leaves out, as they would be many times slower
	if .ci/need cc; then $(GO_TEST) -run "^($$(echo $(WHOLE) | tr ' ' '|'))$$" $(WHOLE_IN); fi

# The SDK is compiled first, as hundreds of processes import it, and what pytest makes of the tests is kept.
test-python: build ## run the SDK's tests, the end-to-end ones against bin/outbid
	python=$$(.ci/python); cd sdk-python && "$$python" -m compileall -q src && \
	PYTHONDONTWRITEBYTECODE= OUTBID_BIN=$(CURDIR)/bin/outbid "$$python" $(PYTEST) $(FILES_AT_ONCE)

test-integrations: build ## run the SDK's tests against Ray, MLflow and the other packages that it works with
	python=$$(.ci/python integrations); cd sdk-python && OUTBID_BIN=$(CURDIR)/bin/outbid "$$python" $(PYTEST) tests/integrations

test-optuna-examples: build ## run the official examples of Optuna in EXAMPLES, a checkout of optuna/optuna-examples
	python=$$(.ci/python examples); cd sdk-python && OUTBID_OPTUNA_EXAMPLES="$(abspath $(EXAMPLES))" OUTBID_BIN=$(CURDIR)/bin/outbid \
	  "$$python" $(PYTEST) --durations=0 tests/integrations/test_optuna_examples.py

test-services: build ## run the tests with Prometheus's promtool, an OpenTelemetry Collector and MinIO, which the first run builds
	promtool=$$(.ci/tool promtool); otelcol=$$(.ci/otelcol); minio=$$(.ci/tool minio); $(FIXTURES); \
	export OUTBID_TEST_PROMTOOL=$$promtool OUTBID_TEST_OTELCOL=$$otelcol OUTBID_TEST_MINIO=$$minio; \
	$(GO_TEST) -count 1 -run "^($$(echo $(SERVICES) | tr ' ' '|'))$$" $(SERVICES_IN)

test-sign-in: build ## sign in with oidc-provider (Node) and Keycloak (Java), which npm and Maven install below .cache
	.ci/oidc-provider
	test -d .cache/keycloak/keycloak-26.5.0 || mvn -q dependency:unpack -DoutputDirectory=.cache/keycloak \
	  -Dartifact=org.keycloak:keycloak-quarkus-dist:26.5.0:zip
	OUTBID_BIN=bin/outbid OUTBID_OIDC_PROVIDER=$$PWD/.cache/oidc-provider \
	  OUTBID_KEYCLOAK=$$PWD/.cache/keycloak/keycloak-26.5.0 go test -count=1 ./orchestrator/endtoend -run '^TestSignIn' -v

test-chart: ## check the chart of deploy/chart with helm, which the first run builds
	export OUTBID_TEST_HELM=$$(.ci/tool helm); $(GO_TEST) -count 1 -run '^TestChart' ./deploy

test-kubernetes: build image ## follow the chart's README on a real Kubernetes node that this starts; needs root and Linux, the first run builds Kubernetes
	deploy/kubernetes/test

test-browser: build ## run the tests of the dashboard in a real browser, Chromium
	.ci/need chromium && python=$$(.ci/python browser); \
	OUTBID_BIN=$(CURDIR)/bin/outbid "$$python" $(subst ../,,$(PYTEST)) -p no:cacheprovider orchestrator/dashboard/browser

test-chaos: build ## disturb a cluster of real processes for OUTBID_CHAOS (2m), and check that nothing is lost or done twice
	export OUTBID_CHAOS=$${OUTBID_CHAOS:-2m}; $(FIXTURES); $(GO_TEST) -count 1 -timeout 3h -run '^TestChaos$$' ./orchestrator/endtoend

matrix: build ## run every policy with every tuner on real servers, while a client reads all the time; make test runs a part
	export OUTBID_MATRIX=all OUTBID_BIN=$(CURDIR)/bin/outbid OUTBID_LAB_BIN=$(CURDIR)/bin/outbid-lab; $(GO_TEST) -count 1 -run '^TestEveryPolicyWithEveryTuner$$' ./orchestrator/endtoend

lint: build ## check style, and that everything builds for macOS: golangci-lint, go vet, gofumpt, buf, ruff, mypy
	$$(.ci/tool golangci-lint) run ./...
	GOOS=darwin CGO_ENABLED=0 go vet ./...
	bad=$$(git ls-files '*.go' | grep -v '^proto/' | xargs $$(.ci/tool gofumpt) -l); \
	test -z "$$bad" || { echo "not gofumpt's format (make fmt): $$bad"; exit 1; }
	cd proto && buf=$$(../.ci/tool buf) && $$buf lint && for b in baseline/*.binpb; do $$buf breaking --against $$b; done
	.ci/prose --check
	python=$$(.ci/python); \
	"$$python" -m ruff check $(PY_FILES); "$$python" -m ruff format --check $(PY_FILES); \
	cd sdk-python && "$$python" -m mypy --strict

fmt: ## put code into its standard format
	$$(.ci/tool golangci-lint) fmt
	python=$$(.ci/python); "$$python" -m ruff format $(PY_FILES); "$$python" -m ruff check --fix $(PY_FILES)

gen: ## generate the code of proto/, and the versions of the SDK and the chart from VERSION
	sed -i.old "s/^appVersion: [^ ]*/appVersion: $$(cat VERSION)/" deploy/chart/Chart.yaml
	rm deploy/chart/Chart.yaml.old
	sed -i.old "s/^__version__ = .*/__version__ = \"$$(sed 's/-\(rc\|a\|b\)\./\1/' VERSION)\"/" sdk-python/src/outbid/_version.py
	rm sdk-python/src/outbid/_version.py.old
	path=; for t in protoc-gen-go protoc-gen-go-grpc protoc-gen-grpc-gateway; do \
	  path=$$(dirname $$(.ci/tool $$t)):$$path; done; \
	gen=.cache/gen; test -x $$gen/bin/protoc-gen-mypy || { "$${PYTHON:-python3}" -m venv $$gen && \
	  $$gen/bin/python -m pip install --quiet --disable-pip-version-check grpcio-tools==1.71.2 mypy-protobuf==3.7.0; }; \
	PATH=$$path$(CURDIR)/$$gen/bin:$$PATH PYTHON=$(CURDIR)/$$gen/bin/python proto/gen.sh

dashboard: ## build the web pages, which are committed, into orchestrator/dashboard/dist; needs Node 20
	cd orchestrator/dashboard && go run ./gen
	cd orchestrator/dashboard/web && npm ci --no-audit --no-fund && npm run check && npm test && npm run build
	cd orchestrator/dashboard && go run ./gen -sum

demo: build ## tune a real network on digits: about two minutes, two workers
	python=$$(.ci/python); PATH=$(CURDIR)/bin:$$PATH OUTBID_BIN=$(CURDIR)/bin/outbid "$$python" examples/digits/demo.py

bench: ## run the benchmarks; docs/benchmarks.md says what they mean
	go test -run '^$$' -bench . -benchmem ./...

fuzz: ## run each fuzzer for FUZZTIME (20s)
	git grep -l '^func Fuzz' -- '*_test.go' | while read -r file; do \
	  for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
	    go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) ./$$(dirname $$file) </dev/null; done; done

mutate: ## change the code of PKG in many small ways, one at a time, and say which changes its tests do not notice
	GOFLAGS="$(GOFLAGS) -vet=off -ldflags=-w" $$(.ci/tool gremlins) unleash $(PKG) --invert-logical --output-statuses lct \
	  --workers $(MUTANTS_AT_ONCE) --timeout-coefficient 15

docs: build ## write the generated pages below docs/reference and the generated parts of others
	bin/outbid docs docs/reference/cli.md
	python=$$(.ci/python); "$$python" .ci/reference
	go test ./orchestrator -run '^TestGeneratedPartsAreFresh$$' -update

changelog: ## move the fragments of changes/ into CHANGELOG.md, as the section of VERSION
	python=$$(.ci/docs); "$$python" -m towncrier build --config .ci/towncrier.toml --dir . --version "$$(cat VERSION)" --yes

baseline: ## record the schema of proto/ as that of VERSION, with which make lint compares later ones
	cd proto && $$(../.ci/tool buf) build -o "baseline/$$(cat ../VERSION).binpb"

site: ## build the documentation site into build/site; fails on a broken link or a page outside of the navigation
	python=$$(.ci/docs); NO_MKDOCS_2_WARNING=1 "$$python" -m mkdocs build --quiet --strict --config-file .ci/mkdocs.yml

clean: ## remove what was built here; caches outside the checkout stay
	rm -rf bin build .cache
