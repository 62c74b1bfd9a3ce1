package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// The hidden first arguments with which this binary runs as a component.
const (
	apiServerRole         = "kube-apiserver"
	controllerManagerRole = "kube-controller-manager"
)

// components run in a process of their own and return its exit code.
var components = map[string]func(args []string) int{
	apiServerRole:         func(args []string) int { return execute(apiserver.NewAPIServerCommand(), args) },
	controllerManagerRole: func(args []string) int { return execute(controllermanager.NewControllerManagerCommand(), args) },
}

func execute(cmd *cobra.Command, args []string) int {
	os.Args = append([]string{cmd.Name()}, args...)
	cmd.SetArgs(args)
	return cli.Run(cmd)
}

// controllers are those between a Pod and the end of its VolumeAttachment.
var controllers = []string{
	names.PersistentVolumeAttachDetachController,
	names.PersistentVolumeBinderController,
	names.PersistentVolumeClaimProtectionController,
	names.PersistentVolumeProtectionController,
}

func apiServerArgs(s *state, opts options) []string {
	disabled := []string{"ServiceAccount"} // pods need no token, and no controller makes accounts
	if !opts.ControllerManager {
		// It adds finalizers that only the protection controllers take away.
		disabled = append(disabled, "StorageObjectInUseProtection")
	}
	args := []string{
		"--etcd-servers=" + s.etcdURL(),
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.Ports.APIServer),
		"--tls-cert-file=" + s.path("server.crt"),
		"--tls-private-key-file=" + s.path("server.key"),
		"--token-auth-file=" + s.path("tokens.csv"),
		"--authorization-mode=RBAC",
		"--disable-admission-plugins=" + strings.Join(disabled, ","),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.path("service-account.key"),
		"--service-account-signing-key-file=" + s.path("service-account.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", // an endpoint on loopback would be refused
		"--allow-privileged=true",
		"--shutdown-delay-duration=0s",
		// Without it open watches hold the stop for a minute.
		"--shutdown-watch-termination-grace-period=1s",
		"--v=" + strconv.Itoa(opts.Verbosity),
	}
	if opts.Unlimited {
		args = append(args, "--enable-priority-and-fairness=false",
			"--max-requests-inflight=8000", "--max-mutating-requests-inflight=4000")
	}
	return args
}

func controllerManagerArgs(s *state, opts options) []string {
	controllers := controllers
	if opts.PodGC {
		controllers = append(slices.Clip(controllers), names.PodGarbageCollectorController)
	}
	return []string{
		"--kubeconfig=" + s.path("kubeconfig"),
		"--authentication-kubeconfig=" + s.path("kubeconfig"),
		"--authorization-kubeconfig=" + s.path("kubeconfig"),
		"--authentication-skip-lookup=true", // its config map is not made here; only /healthz is asked
		"--bind-address=127.0.0.1",
		"--secure-port=" + strconv.Itoa(s.Ports.ControllerManager),
		"--tls-cert-file=" + s.path("server.crt"),
		"--tls-private-key-file=" + s.path("server.key"),
		"--controllers=" + strings.Join(controllers, ","),
		"--leader-elect=false",
		"--use-service-account-credentials=false",
		// The default of 20 per second would be the bottleneck of every measurement.
		"--kube-api-qps=2000",
		"--kube-api-burst=4000",
		fmt.Sprintf("--v=%d", opts.Verbosity),
	}
}
