package registry

import "testing"

func TestSearchNearAGuessFindsTheFirst(t *testing.T) {
	for n := range 20 {
		for first := range n + 1 {
			for guess := -1; guess <= n+1; guess++ {
				tries := 0
				got := searchNear(guess, n, func(i int) bool {
					if tries++; i < 0 || i >= n {
						t.Fatalf("asked for %d of %d", i, n)
					}
					return i >= first
				})
				if got != first {
					t.Fatalf("of %d the first is %d, guessed %d: got %d", n, first, guess, got)
				}
				if near := first-guess >= -1 && first-guess <= 1; near && tries > 5 {
					t.Errorf("of %d the first is %d, guessed %d: %d tries", n, first, guess, tries)
				}
			}
		}
	}
}
