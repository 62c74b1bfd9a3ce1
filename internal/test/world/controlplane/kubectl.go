package main

import (
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
)

// kubectlName is the name under which this binary is kubectl. Tests run with it the commands that the product prints: a
// machine that has only Go needs no kubectl, and its version is that of the API server.
const kubectlName = "kubectl"

// runKubectl is kubectl's main. It reads os.Args itself.
func runKubectl() int {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints the error as kubectl does, and ends the process
	}
	return 0
}
