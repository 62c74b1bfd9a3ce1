//go:build race

package reconcile

// shortStates is how many states of each world a short run sees. The race detector makes each take several times as long.
const shortStates = 300
