// Package race tells tests whether the race detector is on, which makes some of them ten times as long.
package race
