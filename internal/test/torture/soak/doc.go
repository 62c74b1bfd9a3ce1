// Package soak lets a hub work for a long time and checks that the hub costs no more at the end
// than at the beginning.
//
// The flow of a run: torture.Calm starts a world in which pods attach and detach volumes all the
// time, without a fault. Run takes a Sample every few seconds: the metrics of the hub after a
// garbage collection. At the end Calm checks that nothing is lost, and Judge judges the samples
// after the warm-up. The caller draws them.
//
// Judge looks at the trend of each Quantity in two ways: the slope of Theil and Sen, which is the
// median of the slopes between all pairs of samples, over the whole time; and the difference
// between the medians of the first and the last quarter. Fluctuations disturb neither. A rise
// above a part of the quantity's level is growth.
//
// The bound is on the rise, not on the slope: to find a smaller leak, run for longer.
package soak
