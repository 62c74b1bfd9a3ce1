// Package soak has a hub work for long and checks that it costs no more at the end than
// at the beginning.
//
// The flow of a run: chaos.Calm puts a world up and has pods attach and detach volumes
// all the time, without a fault; Run takes a Sample every few seconds, which is what the
// hub says of itself after a garbage collection; at the end Calm checks that nothing is
// lost, and the samples after the warm-up are judged. Whoever asked draws them.
//
// What is judged is the trend of each Quantity: what Theil and Sen's slope, the median of
// the slopes between all pairs of samples, makes of the whole time, and how far the
// medians of the first and the last quarter are apart. Neither minds what goes up and
// down. A rise above a part of the level that the quantity has is growth.
//
// Finding a leak that costs less than that takes a longer run: the bound is on the rise, not
// on the slope.
package soak
