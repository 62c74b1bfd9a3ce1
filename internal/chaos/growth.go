package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Sample is what a hub process takes at a quiet.
type Sample struct {
	Hub        string `json:"hub"`
	PID        int    `json:"pid"`
	Stretch    int    `json:"stretch"`
	Goroutines int    `json:"goroutines"`
	Files      int    `json:"openFiles"`
	Heap       int    `json:"heapBytes"` // in use after a garbage collection
}

// What may be more at the last quiet of a process than at its first one: at both it has the same to do, but it may
// work for more of the drivers, and has metrics of what went wrong by then.
const (
	moreGoroutines = 40
	moreFiles      = 8
	moreHeap       = 4 << 20
)

// sample asks a process. It has been collected when it answers.
func sample(ctx context.Context, r *replica, stretch int) (Sample, error) {
	r.mu.Lock()
	s := Sample{Hub: r.name, PID: r.process.PID(), Stretch: stretch}
	address := r.address
	r.mu.Unlock()
	numbers := map[string]*int{"go_goroutines": &s.Goroutines, "process_open_fds": &s.Files, "# HeapInuse =": &s.Heap}
	// The heap first: profiles are written in a goroutine of their own.
	for _, path := range []string{"/debug/pprof/heap?gc=1&debug=1", "/metrics"} {
		err := insist(ctx, "ask "+r.name+" for "+path, func(ctx context.Context) error {
			return read(ctx, "http://"+address+path, numbers)
		})
		if err != nil {
			return s, err
		}
	}
	return s, nil
}

// read takes the numbers from the lines that begin with their names.
func read(ctx context.Context, url string, numbers map[string]*int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Close = true // the connection is not to be counted next time
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, response.Status)
	}
	lines := bufio.NewReader(response.Body)
	for {
		text, err := lines.ReadString('\n')
		for name, to := range numbers {
			rest, ok := strings.CutPrefix(text, name+" ")
			if !ok {
				continue
			}
			n, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				return fmt.Errorf("GET %s: %q: %w", url, text, err)
			}
			*to = int(n)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// grown compares the last sample of each process with its first one.
func grown(samples []Sample) []Finding {
	first := map[int]Sample{}
	last := map[int]Sample{}
	for _, s := range samples {
		if _, ok := first[s.PID]; !ok {
			first[s.PID] = s
		}
		last[s.PID] = s
	}
	var f []Finding
	for pid, a := range first {
		b := last[pid]
		for _, c := range []struct {
			what      string
			was, is   int
			more, per int // allowed: so many more, or a part of what was
		}{
			{"goroutines", a.Goroutines, b.Goroutines, moreGoroutines, 4},
			{"open files", a.Files, b.Files, moreFiles, 4},
			{"bytes of heap", a.Heap, b.Heap, moreHeap, 2},
		} {
			if c.is > c.was+max(c.more, c.was/c.per) {
				f = append(f, Finding{About: a.Hub, Text: fmt.Sprintf("process %d had %d %s at quiet %d and has %d at quiet %d", pid, c.was, c.what, a.Stretch, c.is, b.Stretch)})
			}
		}
	}
	return f
}
