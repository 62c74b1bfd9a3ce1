# `make` shows this menu.
.DEFAULT_GOAL := help
.PHONY: help build test browser lint vet vulnerabilities tools image manifests buildah demo sandbox pictures graphviz bench charts chaos crashes explore handover mutants soak fuzz clean

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION)
# All that runs without the race detector is compiled in one way, that of the images, so that most packages are compiled once, and
# without DWARF, which costs a tenth of the time. The race detector needs cgo.
override export GOFLAGS := $(strip $(or $(GOFLAGS),$(shell go env GOFLAGS)) -trimpath -gcflags=all=-dwarf=false)
override export CGO_ENABLED := 0
WITH_RACE := CGO_ENABLED=1
# Tools of `make lint` and `make vulnerabilities`. They are built from the Go module proxy, and never updated by themselves.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
DEADCODE := golang.org/x/tools/cmd/deadcode@v0.52.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
TOOLS := bin/tools
# Go modules of this repository besides the root. What TESTS and the control plane share with the root has the root's versions,
# so it is compiled once; csi-attacher has versions of its own.
TESTS := internal/test/deploy internal/test/fakecsi/sanity internal/test/bench
CONTROLPLANE := internal/test/world/controlplane
CSIATTACHER := internal/test/world/csiattacher
IMAGE := csi-attach-hub
PROXY_IMAGE := csi-attach-proxy
IMAGE_DIR := bin/image
ARCHITECTURES := amd64 arm64
PROGRAMS := csi-attach-hub csi-attach-proxy
# What an image says of its source. The time is that of the commit, so that all builds of a commit are equal.
REVISION := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
# The vfs driver needs no kernel feature, so it works in a container too.
BUILDAH := buildah --storage-driver vfs

help: ## show this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/csi-attach-hub, bin/csi-attach-proxy and bin/testbed
	go build -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

# Many tests wait, for example for leases: run more packages at once than there are cores, the longest first, and the other modules
# beside the root. The race detector makes some tests ten times as long: those in WITHOUT_RACE run without it, and skip themselves or
# parts of them with it. In hub/tests one row of each table of worlds in virtual time runs with it, and all worlds without it (-short
# leaves out the tests on the real API server, which run with it). The other modules run without it: their goroutines are those of
# packages whose own tests have it. A program with it sleeps for a second at its end, unless GORACE says otherwise. Go does not see
# that the tests of deploy depend on files outside their module, so their results must not come from its cache.
WITHOUT_RACE := TestExplore|TestLargestDrift|TestAReplicaThatComesBackAfterACrash|TestListingWithoutEnd|TestHundredThousand
test: ## run all tests, most with the race detector, and a real control plane (its first build takes minutes)
	@run() { GORACE="atexit_sleep_ms=0 $$GORACE" go test -vet off -timeout 30m "$$@"; }; \
	(failed=0; (cd internal/test/deploy && run -count 1 ./...) || failed=1; \
	  for module in internal/test/bench $(CONTROLPLANE) internal/test/fakecsi/sanity; do (cd $$module && run ./...) || failed=1; done; exit $$failed) & modules=$$!; \
	failed=0; (export $(WITH_RACE); run -race -p 3 ./hub/tests ./internal/test/... ./...) || failed=1; \
	run -run '$(WITHOUT_RACE)' ./hub/reconcile ./hub/lease ./hub/csiclient & explored=$$!; run -short ./hub/tests || failed=1; \
	wait $$explored || failed=1; wait $$modules && exit $$failed

# CI must not skip the tests of the page.
ifdef CI
test: browser
endif

browser: ## install Debian's chromium, which the tests of the status page need (as root)
	@command -v chromium || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; }

# vet and staticcheck of the control plane's few files would read all of Kubernetes: three minutes.
vet:
	@for module in . $(TESTS); do (cd $$module && go vet ./...) || exit 1; done

# What only tests use is dead too, but for the packages that are for tests.
lint: tools vet ## check formatting, go vet, staticcheck, dead code and the versions in all go.mod
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "not gofmt-ed:"; echo "$$unformatted"; exit 1; }
	@for module in . $(TESTS); do \
	  echo "== $$module"; (cd $$module && go mod tidy -diff && $(CURDIR)/$(TOOLS)/staticcheck ./...) || exit 1; \
	done
	@for module in $(CONTROLPLANE) $(CSIATTACHER); do (cd $$module && go mod tidy -diff) || exit 1; done
	@for module in $(TESTS) $(CONTROLPLANE); do \
	  awk 'NR == FNR { if ($$2 ~ /^v/) root[$$1] = $$2; next } $$2 ~ /^v/ && $$1 in root && $$2 != root[$$1] \
	    { print FILENAME ": " $$1 " " $$2 " is " root[$$1] " in the root"; differs = 1 } END { exit differs }' go.mod $$module/go.mod || exit 1; \
	done
	@dead=$$($(TOOLS)/deadcode ./cmd/csi-attach-hub ./cmd/csi-attach-proxy && $(TOOLS)/deadcode -test ./...) && test -z "$$dead" || { echo "dead code:"; echo "$$dead"; exit 1; }

# A database that cannot be read is a failure, unless no connection to it can be made: a machine that can reach a Go module proxy
# may reach nothing else. govulncheck finds nothing in an empty database, so it must know a vulnerability of an old release of Go.
# The control plane of the tests is left out: the product has nothing of what it links.
GOVULNDB ?= https://vuln.go.dev
CHECKED := . $(TESTS)
DATABASE := $(if $(findstring ://,$(GOVULNDB)),$(GOVULNDB),file://$(abspath $(GOVULNDB)))
vulnerabilities: tools ## look for known vulnerabilities in code that is called; GOVULNDB=folder for a database that is not https://vuln.go.dev
	@known=$$($(TOOLS)/govulncheck -db '$(DATABASE)' -mode query -format json stdlib@v1.16.0 2>&1) || { \
	  echo "vulnerabilities: NOT CHECKED: the database $(DATABASE) cannot be read:" $${known##*\}}; \
	  case "$$known" in *'dial tcp'*) exit 0 ;; *) exit 1 ;; esac; }; \
	case "$$known" in *'"osv":'*) ;; *) \
	  echo "vulnerabilities: NOT CHECKED: the database $(DATABASE) is empty or broken: it has nothing about Go 1.16"; exit 1;; esac; \
	for module in $(CHECKED); do \
	  echo "== $$module"; $(TOOLS)/govulncheck -C $$module -db '$(DATABASE)' -test ./... || exit 1; \
	done

tools:
	@for tool in $(STATICCHECK) $(DEADCODE) $(GOVULNCHECK); do \
	  GOBIN=$(CURDIR)/$(TOOLS) go install $$tool || { echo "$$tool cannot be built: see above. Its source comes from GOPROXY=$$(go env GOPROXY | sed 's!//[^/,|]*@!//!g')."; exit 1; }; \
	done

# The binaries are built here and copied into empty images: no emulation, and nothing from a registry. The second variant of the
# hub's image runs as root.
image: ## build container images for amd64 and arm64 with buildah, as bin/image.tar, image-root.tar and image-proxy.tar
	@for arch in $(ARCHITECTURES); do for program in $(PROGRAMS); do \
	  binary=$(IMAGE_DIR)/$$arch/$$program; echo "== $$binary"; \
	  GOOS=linux GOARCH=$$arch go build -buildvcs=false -ldflags '-s -w $(LDFLAGS)' -o $$binary ./cmd/$$program || exit 1; \
	done; done
	@for variant in csi-attach-hub,$(IMAGE):$(VERSION),,65532 csi-attach-hub,$(IMAGE):$(VERSION)-root,-root,0 csi-attach-proxy,$(PROXY_IMAGE):$(VERSION),-proxy,65532; do \
	  IFS=,; set -- $$variant; unset IFS; program=$$1; list=$$2; archive=$(IMAGE_DIR)$$3.tar; user=$$4; \
	  case " $(PROGRAMS) " in *" $$program "*) ;; *) continue ;; esac; echo "== $$archive: $$list"; \
	  rm -f $$archive; ! $(BUILDAH) manifest exists $$list || $(BUILDAH) manifest rm $$list > /dev/null || exit 1; \
	  for arch in $(ARCHITECTURES); do \
	    $(BUILDAH) bud --quiet --isolation chroot --identity-label=false --timestamp $(SOURCE_DATE_EPOCH) --file deploy/Dockerfile --target $$program \
	      --build-arg RUN_AS=$$user:$$user --build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) \
	      --build-arg CREATED=$$(date -u -d @$(SOURCE_DATE_EPOCH) +%FT%TZ) --platform linux/$$arch --manifest $$list $(IMAGE_DIR) > /dev/null || exit 1; \
	  done; \
	  $(BUILDAH) manifest push --quiet --all $$list oci-archive:$$archive:$$list || exit 1; \
	done

manifests: ## render deploy/install.yaml from the chart, and the schema of its values
	cd internal/test/deploy && go test -count 1 -run 'TestInstallYAMLIsRenderedFromTheChart|TestChartSchemaFollowsDriversYAMLAndTheComments' . -update

# CI must not skip the test of the image.
ifdef CI
test: buildah
endif

buildah: ## install Debian's buildah, which makes the image and its test need (as root)
	@command -v buildah || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends buildah; }

demo: build ## watch Pods of four drivers get their volumes
	bin/testbed demo --hub bin/csi-attach-hub

sandbox: build ## run the set-up of the demo until Ctrl-C, with recipes to break things
	bin/testbed sandbox --hub bin/csi-attach-hub

# The README's pictures, each for light and for dark pages: the status page of a made-up fleet,
# and a diagram of the hub. The diagram's source names colours by words.
PICTURES := deploy/pictures
LIGHT := s/BOX/\#ffffff/;s/AREA/\#f2f5f8/;s/LANE/\#e3eef7/;s/LINE/\#57606a/;s/TEXT/\#1f2328/;s/DIM/\#57606a/
DARK := s/BOX/\#0d1117/;s/AREA/\#161b22/;s/LANE/\#1b2d40/;s/LINE/\#8d96a0/;s/TEXT/\#e6edf3/;s/DIM/\#9198a1/
DRAW = dot -Tsvg | sed 's/font-family="DejaVu Sans"/font-family="DejaVu Sans,Verdana,sans-serif"/'

pictures: browser graphviz ## draw the pictures of the README again
	STATUS_SCREENSHOTS=$(CURDIR)/$(PICTURES) CHROMIUM_REQUIRED=1 go test -count 1 -run TestABrokenDriverAmongManyIsSeenFirst ./hub/status
	sed '$(LIGHT)' $(PICTURES)/overview.dot | $(DRAW) > $(PICTURES)/overview-light.svg
	sed '$(DARK)' $(PICTURES)/overview.dot | $(DRAW) > $(PICTURES)/overview-dark.svg

# Debian's graphviz draws the diagram of the README.
graphviz:
	@command -v dot || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends graphviz fonts-dejavu-core; }

# CSI_ATTACHER=path measures that csi-attacher too, CSI_ATTACHER=build the one of internal/test/world/csiattacher. BENCH=case runs one case. ROUNDS=n sets the rounds.
# MARKDOWN=deploy/BENCHMARKS.md writes tables and charts into that file and the folder pictures beside it, with those of cases that were
# measured before. The report is bench.json in that folder; without MARKDOWN it is bin/bench.json.
REPORT = $(if $(MARKDOWN),$(dir $(MARKDOWN))pictures,bin)/bench.json
bench: build build-bench ## measure the hub next to the baseline, and csi-attacher if CSI_ATTACHER names one; BENCH=case for one case
	bin/bench --json $(REPORT) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(MARKDOWN),--markdown $(MARKDOWN)) \
	  --command 'make bench$(if $(CSI_ATTACHER), CSI_ATTACHER=$(if $(filter build,$(CSI_ATTACHER)),build,path))$(if $(BENCH), BENCH=$(BENCH))$(if $(ROUNDS), ROUNDS=$(ROUNDS))' $(BENCH)

charts: build-bench ## write the tables and charts of deploy/BENCHMARKS.md again, from deploy/pictures/bench.json
	bin/bench --redraw --json deploy/pictures/bench.json --markdown deploy/BENCHMARKS.md

.PHONY: build-bench
build-bench:
	cd internal/test/bench && go build -o $(CURDIR)/bin/bench .

explore: ## enumerate the states of small worlds around the real core for EXPLORE=10m, and check each
	EXPLORE=$(or $(EXPLORE),10m) go test -count 1 -timeout 0 -v -run TestExplore ./hub/reconcile ./hub/lease

# RACE=1 builds the hub with the race detector.
chaos: build ## inject FAULTS=1000 faults around hubs, by SEED=n (drawn), and check that nothing is lost
	$(if $(RACE),$(WITH_RACE) go build -race -o bin/csi-attach-hub.race ./cmd/csi-attach-hub)
	bin/testbed chaos --faults $(or $(FAULTS),1000) $(if $(SEED),--seed $(SEED)) --hub bin/csi-attach-hub$(if $(RACE),.race)

# CSI_ATTACHER=path takes that csi-attacher instead of the one of internal/test/world/csiattacher.
handover: ## hand a driver HANDOVERS=100 times to and fro between the hub and the real csi-attacher, and check both
	HANDOVERS=$(or $(HANDOVERS),100) $(WITH_RACE) go test -race -count 1 -v -timeout 90m -run TestTheHubAndTheRealCSIAttacher ./cmd/csi-attach-hub

# make test runs a sample of it. CRASHES=text kills at the points with the text in their name.
crashes: ## kill the hub at each write and call of each scenario, and check that nothing is lost (2 minutes)
	CRASHES='$(or $(CRASHES),all)' go test -count 1 -v -timeout 30m -run TestCrash ./internal/test/torture

soak: build ## attach and detach for DURATION (20m), fail if the hub grows
	bin/testbed soak --hub bin/csi-attach-hub --duration $(or $(DURATION),20m)

# MUTANT=text runs those with the text in their name. internal/test/mutants lists all.
mutants: ## break the code in each way that internal/test/mutants lists, and check that the tests named there fail
	MUTANTS='$(or $(MUTANT),all)' go test -count 1 -timeout 60m -parallel 2 -run TestEachMutantDies ./internal/test/mutants

# -fuzzminimizetime: Go would spend up to a minute on minimizing a new input that fails no test.
FUZZTIME := 30s
fuzz: ## fuzz every fuzz target, each for FUZZTIME=30s
	@for package in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n1 dirname | sort -u); do \
	  targets=$$(go test -list '^Fuzz' $$package) || { echo "$$targets"; exit 1; }; \
	  for target in $$(echo "$$targets" | grep '^Fuzz'); do \
	    echo "== $$package $$target"; \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 20x -parallel 2 $$package || exit 1; \
	  done; \
	done

clean: ## remove bin (the cache of the control plane stays)
	rm -rf bin
