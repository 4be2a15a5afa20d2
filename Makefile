# What this repository does, by name. `make` lists it.

GO       ?= go
FUZZTIME ?= 10s
# Further flags of go test, such as TESTFLAGS='-run TestServe -v'.
TESTFLAGS ?=
# Flags of the benchmark, such as BENCHFLAGS=-short.
BENCHFLAGS ?=
# What draws the faults of make robustness, and for how long they come.
SEED     ?= 1
DURATION ?= 2m
COMPOSE  := $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
TOOL     := $(GO) tool -modfile=tools/go.mod

# What the image and the binary say of themselves at `idemstore version`.
RELEASE  ?= $(shell git describe --tags --always --dirty 2>/dev/null)

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/idemstore
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.release=$(RELEASE)" -o bin/idemstore ./cmd/idemstore

.PHONY: test
test: test-deps ## Run all tests, with what they need installed first
	cd examples/go && $(GO) test $(TESTFLAGS) ./...
	$(GO) test $(TESTFLAGS) ./...

.PHONY: race
race: test-deps ## Run all tests, under the race detector (examples/go without it)
	cd examples/go && $(GO) test $(TESTFLAGS) ./...
	CGO_ENABLED=1 $(TOOL) gotestsum --format pkgname --format-hide-empty-pkg -- -race -timeout 20m $(TESTFLAGS) ./...

.PHONY: test-pgbouncer
test-pgbouncer: test-deps ## Run the HTTP suite and the store's tests through PgBouncer in transaction mode
	IDEMSTORE_TEST_PGBOUNCER=1 $(GO) test -count=1 $(TESTFLAGS) ./internal/server/... ./internal/store/...

.PHONY: test-deps
test-deps:
	@scripts/install-test-deps.sh
	@scripts/need.sh curl

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME (10s)
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: robustness
robustness: test-deps ## Break everything around the service for DURATION (2m), drawn from SEED (1), and judge it
	$(GO) test ./robustness -run 'TestRobustness$$' -count=1 -timeout 0 -v -seed $(SEED) -duration $(DURATION)

.PHONY: robustness-broken
robustness-broken: test-deps ## Break the service itself, in each way that is known, and see it caught
	$(GO) test ./robustness -run TestBrokenBuildsAreCaught -count=1 -timeout 0 -v -seed $(SEED) -breaks all

.PHONY: bench
bench: test-deps ## Measure it beside pgbench, some five minutes (BENCHFLAGS=-short: one)
	$(GO) run ./bench $(BENCHFLAGS)

.PHONY: verify
verify: generated vet lint tidy compose-config ## Check what is generated, vet, lint, go.mod and the compose file

.PHONY: generate
generate: ## Generate api/*.gen.go from openapi.yaml
	$(GO) generate ./...

.PHONY: generated
generated:
	@before=$$(cat api/*.gen.go | cksum) && $(MAKE) --no-print-directory generate && \
	if [ "$$before" != "$$(cat api/*.gen.go | cksum)" ]; then \
		echo "api/*.gen.go did not come from this openapi.yaml; they do now: look at the change and keep it" >&2; exit 1; \
	fi

.PHONY: vet
vet:
	$(GO) vet ./...
	cd examples/go && $(GO) vet ./...

.PHONY: lint
lint: ## Lint
	$(TOOL) golangci-lint run ./...
	cd examples/go && $(GO) tool -modfile=../../tools/go.mod golangci-lint run ./...

.PHONY: tidy
tidy:
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd examples/go && $(GO) mod tidy -diff

.PHONY: compose-config
compose-config:
	@if command -v $(firstword $(COMPOSE)) >/dev/null; then $(COMPOSE) config --quiet; else echo "docker compose is not here: docker-compose.yml is not checked"; fi

.PHONY: lint-openapi
lint-openapi: ## Lint openapi.yaml (needs npm)
	REDOCLY_TELEMETRY=off npx --yes @redocly/cli@2.77.0 lint openapi.yaml

.PHONY: e2e
e2e: ## Build the image, run the compose file, and drive it from outside (needs Docker)
	scripts/e2e.sh

.PHONY: up
up: ## Run Postgres and the service in Docker, on 127.0.0.1:8080
	IDEMSTORE_RELEASE=$(RELEASE) $(COMPOSE) up --build --detach
	@for i in $$(seq 60); do $(COMPOSE) exec -T idemstore /idemstore healthcheck 2>/dev/null && exit 0; sleep 0.5; done; \
	$(COMPOSE) logs idemstore; exit 1

.PHONY: down
down: ## Stop what `make up` runs; its data stays (docker compose down --volumes takes it away)
	$(COMPOSE) down
