package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// The hidden first arguments with which this binary runs as a component.
const (
	apiServerRole         = "kube-apiserver"
	controllerManagerRole = "kube-controller-manager"
)

func main() {
	// Under this name it is kubectl. Tests run with it the commands that the product prints: a machine that has only Go
	// needs no kubectl, and its version is that of the API server.
	if filepath.Base(os.Args[0]) == "kubectl" {
		util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) // prints an error as kubectl does, and ends the process
		return
	}
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case apiServerRole:
			os.Exit(component(apiserver.NewAPIServerCommand()))
		case controllerManagerRole:
			os.Exit(component(controllermanager.NewControllerManagerCommand()))
		}
	}
	if err := runPlane(); err != nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

// component runs as a component, and returns the exit code.
func component(cmd *cobra.Command) int {
	os.Args = append([]string{cmd.Name()}, os.Args[2:]...)
	cmd.SetArgs(os.Args[1:])
	return cli.Run(cmd)
}

// runPlane runs a control plane as the flags say, until SIGTERM.
func runPlane() error {
	dir := flag.String("dir", "", "folder that keeps all state; made if it does not exist (required)")
	unlimited := flag.Bool("unlimited-requests", false, "run kube-apiserver without API Priority and Fairness, and with limits of requests in flight that no burst reaches")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 {
		return errors.New("--dir is missing, or there is an argument: name the folder that keeps the state, see --help")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	return run(ctx, *dir, *unlimited)
}
