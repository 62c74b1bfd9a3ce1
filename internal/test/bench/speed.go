package main

import (
	"context"
	"crypto/sha256"
	"runtime"
	"sync"
	"time"
)

// speedFor is how long a measurement of the machine's speed takes.
const speedFor = 250 * time.Millisecond

// machineSpeed returns how many megabytes per second this program hashes on all cores, and blocks for speedFor. Nothing else
// of the case has work meanwhile, so that it shows how much of the machine others leave.
func machineSpeed(ctx context.Context) float64 {
	const block = 64 << 10
	ctx, cancel := context.WithTimeout(ctx, speedFor)
	defer cancel()
	hashed := make([]int, runtime.NumCPU())
	began := time.Now()
	var all sync.WaitGroup
	for i := range hashed {
		all.Go(func() {
			data := make([]byte, block)
			for ctx.Err() == nil {
				sum := sha256.Sum256(data)
				copy(data, sum[:])
				hashed[i] += block
			}
		})
	}
	all.Wait()
	took := time.Since(began).Seconds()
	sum := 0
	for _, n := range hashed {
		sum += n
	}
	return float64(sum) / took / 1e6
}
