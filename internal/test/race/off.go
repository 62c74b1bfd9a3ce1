//go:build !race

package race

// Detector says whether this program was built with the race detector.
const Detector = false
