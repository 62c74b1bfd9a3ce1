package main

import (
	"bufio"
	"context"
	"io"
	"os"

	"golang.org/x/term"
)

// isTerminal reports whether a person can type into a reader.
func isTerminal(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// waitForEnter blocks until Enter is typed into a terminal, until the end of a file or pipe, or until ctx
// ends. A read goes on in the background then, since nothing can interrupt it.
func waitForEnter(ctx context.Context, in io.Reader) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		if isTerminal(in) {
			_, _ = bufio.NewReader(in).ReadString('\n') // an error is the end too
			return
		}
		_, _ = io.Copy(io.Discard, in)
	}()
	select {
	case <-read:
	case <-ctx.Done():
	}
}
