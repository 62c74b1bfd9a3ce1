//go:build !race

package reconcile

// shortStates is how many states of each world a short run sees.
const shortStates = 2500
