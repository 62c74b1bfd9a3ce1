package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
	"github.com/csi-attach-hub/csi-attach-hub/internal/statustable"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// watchInterval is the interval of --watch.
const watchInterval = 2 * time.Second

func newStatusCommand() *cobra.Command {
	flags := clientFlags{clusterScoped: true}
	var watch bool
	c := newCommand("status", "Show the drivers of a running hub; exit code 1 if no replica answers", func(c *cobra.Command, _ []string) error {
		if err := flags.check(); err != nil {
			return err
		}
		return runStatus(c.Context(), flags, watch, c.OutOrStdout(), c.ErrOrStderr())
	})
	c.Args = cobra.NoArgs
	flags.add(c.Flags())
	c.Flags().BoolVarP(&watch, "watch", "w", false, "repeat every 2 seconds until interrupted")
	return c
}

// runStatus prints the status once, or with watch until ctx ends.
func runStatus(ctx context.Context, flags clientFlags, watch bool, out, errOut io.Writer) error {
	var config *rest.Config
	if flags.server == "" {
		var err error
		if config, err = flags.kube(); err != nil {
			return err
		}
	}
	show := func() error {
		view, err := fetchView(ctx, &flags, config, errOut)
		if err != nil {
			return err
		}
		if flags.output == "json" {
			return printJSON(out, view)
		}
		if watch {
			separate(out)
		}
		_, err = io.WriteString(out, statustable.Table(view))
		return err
	}
	if !watch {
		return show()
	}
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		if err := show(); err != nil && ctx.Err() == nil {
			fmt.Fprintln(errOut, terminal.Line(err.Error())) // the next try may succeed
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// fetchView finds and asks all replicas. It finds them each time, because the Pods may change.
func fetchView(ctx context.Context, flags *clientFlags, config *rest.Config, errOut io.Writer) (hubclient.View, error) {
	hub, err := flags.hub(ctx, config, errOut)
	if err != nil {
		return hubclient.View{}, err
	}
	defer hub.Close()
	view := hub.View(ctx)
	if !view.Reached() {
		return view, fmt.Errorf("no hub has answered: %s", terminal.Line(strings.Join(view.Problems(), "; ")))
	}
	return view, nil
}

// separate writes a separator between two tables: it clears a terminal, and writes the time
// into a file.
func separate(out io.Writer) {
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		fmt.Fprint(out, "\x1b[H\x1b[2J\x1b[3J")
		return
	}
	fmt.Fprintf(out, "\n%s\n", time.Now().UTC().Format(time.RFC3339))
}
