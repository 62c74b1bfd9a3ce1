//go:build !race

package volume_test

const raceDetector = false
