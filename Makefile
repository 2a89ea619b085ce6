GO          ?= go
FUZZTIME    ?= 100000x
STATICCHECK  = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK  = golang.org/x/vuln/cmd/govulncheck@v1.9.0
MODULES      = bench cmd/redlockvet contrib docs/fencing integrations redlockotel redlockprom

.PHONY: test lint vulnerabilities fuzz bench chaos cover

test:
	$(GO) test -race ./...
	@set -e; for m in $(MODULES); do echo "$$m"; (cd $$m && $(GO) test -race ./...); done

lint:
	@if command -v golangci-lint >/dev/null; then \
		golangci-lint run -c .ci/golangci.yml ./...; \
	else \
		$(GO) vet ./... && $(GO) run $(STATICCHECK) ./...; \
	fi
	@set -e; for m in $(MODULES); do echo "$$m"; (cd $$m && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...); done

# Known vulnerabilities that the library, the commands and the modules for users call.
vulnerabilities:
	$(GO) run $(GOVULNCHECK) $$($(GO) list ./... | grep -v /chaos)
	@set -e; for m in cmd/redlockvet redlockotel redlockprom; do echo "$$m"; (cd $$m && $(GO) run $(GOVULNCHECK) ./...); done

# Every fuzz target of every package, one after the other.
fuzz:
	@set -e; for pkg in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
			echo "$$pkg $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg; \
		done; \
	done

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...
	cd bench && $(GO) test -run '^$$' -bench Cycle -benchtime 1x .

# Soaks, long schedules and large searches, too.
chaos:
	REDLOCK_LONG=yes $(GO) test -timeout 20m ./chaos/...

cover:
	$(GO) test -coverprofile=cover.out -coverpkg=. . ./test/...
	$(GO) tool cover -func=cover.out | tail -n 1
