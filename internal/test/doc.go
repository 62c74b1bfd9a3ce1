// Package test has no code: its folders are what only serves tests. The product imports none of them.
//
//	world      a cluster on one machine: testbed starts it, one for all tests of a package (testbed.RunMain, testbed.Shared);
//	           controlplane is its etcd, kube-apiserver and kube-controller-manager; csiattacher pins the real csi-attacher;
//	           fakekube is an API server in memory, for tests in virtual time (hub/tests/virtual_test.go)
//	fakecsi    drivers that keep books of their volumes, with knobs to inject faults
//	safety     the rules of safety, once; every machine below judges by them
//	explore    enumerates the states of small worlds around the real core
//	torture    breaks everything around real hubs by a seed (chaos), kills hubs at each step (crashes), watches them grow (soak)
//	mutants    breaks the code in each listed way, and checks that a test fails
//	bench      measures the hub beside a baseline (a module of its own)
//	deploy     tests of the folder deploy: chart, manifests, alerts, documents, image (a module of its own)
//	certtest   CAs and certificates for tests
//	race       whether the race detector is on
//	statistics medians and percentiles
//
// Tests of one package stand beside it. Tests of the whole hub are in hub/tests, tests of the programs in cmd.
//
// # Write a test
//
//	inVirtualTime(t, func(v *virtual) {...})           hub/tests/virtual_test.go: hub, driver and API server in memory, hours in no time; one driver
//	eachInVirtualTime(t, rows, func(v, row) {...})     the same for each row of a table: the variants of a behaviour
//	newWorld(t)                                        hub/tests/world_test.go: a real API server and sockets; once per behaviour, and where drivers may disturb each other
//	testbed.RunMain in TestMain, testbed.Shared(t)     a real API server in a test of another package
//
// hub/tests has one file per behaviour: move_test.go begins with a short example on the API server, one in virtual time, and a table.
//
// # Run
//
//	go test ./hub/queue                                a package
//	go test -race -run IsDetachedFrom ./hub/tests      one test
//	cd internal/test/deploy && go test -run Chart .    a nested module; go test ./... in the root leaves these out
//	go test ./registry -update                         write the golden files again; the flag is -update in each package that has some
//
// make compiles with CGO_ENABLED=0 GOFLAGS='-trimpath -gcflags=all=-dwarf=false', and with CGO_ENABLED=1 for -race. With the same
// in the environment, go test compiles nothing again that make has compiled.
//
// In hub/tests -race runs one row of each table of worlds in virtual time, or the row that -run names, and skips worlds of hours, even if
// -run names them; RACE_ALL=1 go test -race skips none. -short runs all worlds in virtual time, and nothing on the real API server.
//
// The first test that needs the control plane builds it, which takes minutes; the result is kept in the user's cache folder.
//
// # See a failing seed again
//
// A test that draws prints its seed when it fails:
//
//	SEED=291 go test -run WhateverHappens ./hub/tests  with the log of the hubs; SEEDS=300 runs that many seeds
//	make chaos SEED=401 FAULTS=1000                    the same faults; the timing of processes differs
//	make crashes CRASHES=move                          only the points with that text in their name: scenario, call or write
//	make mutants MUTANT=text
//
// The explorer prints the steps that lead to a bad state; no seed is needed.
//
// # Profile
//
//	go test -run NONE -bench Event -cpuprofile cpu.out ./hub/driver
//	csi-attach-hub --profiling ...                     serves /debug/pprof on the loopback address of --http-endpoint
//
// How to add a setting or a CSI call: hub/doc.go.
package test
