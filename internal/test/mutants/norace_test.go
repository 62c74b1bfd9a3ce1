//go:build !race

package mutants

const raceDetector = false
