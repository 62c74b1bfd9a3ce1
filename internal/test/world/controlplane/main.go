package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if filepath.Base(os.Args[0]) == kubectlName {
		os.Exit(runKubectl())
	}
	if len(os.Args) > 1 {
		if component, ok := components[os.Args[1]]; ok {
			os.Exit(component(os.Args[2:]))
		}
	}
	opts, err := parseOptions(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, opts); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// options is the command line.
type options struct {
	Dir               string        // where all state is kept; made if it does not exist
	ControllerManager bool          // run kube-controller-manager too
	PodGC             bool          // with the Pod garbage collector
	Unlimited         bool          // kube-apiserver queues and refuses no request
	ReadyTimeout      time.Duration // until each component must be ready
	Verbosity         int           // of the components' logs
	Out               io.Writer     // gets the line that says ready
}

func parseOptions(args []string, usage io.Writer) (options, error) {
	opts := options{Out: os.Stdout}
	fs := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	fs.SetOutput(usage)
	fs.StringVar(&opts.Dir, "dir", "", "folder that keeps all state; made if it does not exist (required)")
	fs.BoolVar(&opts.ControllerManager, "controller-manager", false, "run kube-controller-manager with the volume controllers")
	fs.BoolVar(&opts.PodGC, "pod-gc", false, "run the Pod garbage collector in kube-controller-manager too; implies --controller-manager")
	fs.BoolVar(&opts.Unlimited, "unlimited-requests", false, "run kube-apiserver without API Priority and Fairness, and with limits of requests in flight that no burst reaches")
	fs.DurationVar(&opts.ReadyTimeout, "ready-timeout", 2*time.Minute, "give up when a component is not ready after this long")
	fs.IntVar(&opts.Verbosity, "v", 1, "verbosity of the components' log files")
	if err := fs.Parse(args); err != nil {
		return options{}, err
	}
	opts.ControllerManager = opts.ControllerManager || opts.PodGC
	if fs.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q: only flags are taken, see --help", fs.Arg(0))
	}
	if opts.Dir == "" {
		return options{}, errors.New("--dir is missing: name the folder that keeps the state")
	}
	if opts.ReadyTimeout <= 0 {
		return options{}, fmt.Errorf("--ready-timeout is %v: it must be more than 0", opts.ReadyTimeout)
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return options{}, fmt.Errorf("resolve --dir %s: %w", opts.Dir, err)
	}
	opts.Dir = dir
	return opts, nil
}
