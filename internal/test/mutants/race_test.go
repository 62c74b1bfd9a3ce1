//go:build race

package mutants

const raceDetector = true
