// Package statistics says what many measured values are like, for all that measures: the
// demo, the benchmarks and the soak.
package statistics
