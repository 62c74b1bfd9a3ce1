package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// stopGrace is how long kube-apiserver may take to end on SIGTERM before it is killed. It needs about one second to end its watches.
	stopGrace = 5 * time.Second
	// startTimeout bounds the start of each component.
	startTimeout = 2 * time.Minute
)

// run starts all components, reports ready, and blocks until ctx ends (nil) or
// a component does (its error). Nothing runs any more when it has returned.
func run(ctx context.Context, dir string, unlimited bool) error {
	st, err := openState(dir)
	if err != nil {
		return err
	}
	defer st.lock.Close()
	etcd, err := startEtcd(st)
	if err != nil {
		return err
	}
	defer etcd.Close()
	running, end := context.WithCancel(ctx)
	defer end()
	api, err := apiServer(running, st, unlimited)
	if err != nil {
		return err
	}
	// The kernel takes the end of the thread that started a child for the end of its parent.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := api.Start(); err != nil {
		return fmt.Errorf("start kube-apiserver: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		err = fmt.Errorf("kube-apiserver has ended: %v", api.Wait())
		close(ended)
	}()
	if err := waitReady(ctx, st, ended); err == nil {
		fmt.Printf("ready kubeconfig=%s\n", st.path("kubeconfig"))
		select {
		case <-ctx.Done():
		case <-ended:
		case <-etcd.Err():
		}
	} else if ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "controlplane:", err)
	}
	end()
	<-ended
	if ctx.Err() != nil {
		return nil // it was asked to stop
	}
	return err
}

// startEtcd opens the data in the state folder and serves it. The caller must
// Close it.
func startEtcd(s *state) (*embed.Etcd, error) {
	client, peer := loopbackURL("http", s.Ports.EtcdClient), loopbackURL("http", s.Ports.EtcdPeer)
	cfg := embed.NewConfig()
	cfg.Dir = s.path("etcd")
	cfg.LogLevel = "warn"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.UnsafeNoFsync = true // the data need not outlive a crash of the machine
	cfg.QuotaBackendBytes = 8 << 30
	cfg.WarningUnaryRequestDuration = time.Second // its zero value logs every request
	// A leader of one need not wait a second for votes.
	cfg.TickMs, cfg.ElectionMs = 10, 100

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, nil
	case err = <-e.Err():
	case <-time.After(startTimeout):
		err = errors.New("it is not ready after " + startTimeout.String())
	}
	e.Close()
	return nil, fmt.Errorf("start etcd: %w", err)
}

func loopbackURL(scheme string, port int) url.URL {
	return url.URL{Scheme: scheme, Host: "127.0.0.1:" + strconv.Itoa(port)}
}

// apiServer returns the command of kube-apiserver: this binary in a process of its own, which ends with ctx.
func apiServer(ctx context.Context, s *state, unlimited bool) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	etcd := loopbackURL("http", s.Ports.EtcdClient)
	cmd := exec.CommandContext(ctx, self, apiServerRole,
		"--etcd-servers="+etcd.String(),
		"--bind-address=127.0.0.1",
		"--secure-port="+strconv.Itoa(s.Ports.APIServer),
		"--tls-cert-file="+s.path("server.crt"),
		"--tls-private-key-file="+s.path("server.key"),
		"--token-auth-file="+s.path("tokens.csv"),
		"--authorization-mode=RBAC",
		// Pods need no token, and no controller makes accounts. Nothing takes finalizers for protection away.
		"--disable-admission-plugins=ServiceAccount,StorageObjectInUseProtection",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+s.path("server.key"),
		"--service-account-signing-key-file="+s.path("server.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", // an endpoint on loopback would be refused
		"--allow-privileged=true",
		"--shutdown-delay-duration=0s",
		// Without it open watches hold the stop for a minute.
		"--shutdown-watch-termination-grace-period=1s",
		"--v=1",
	)
	if unlimited {
		cmd.Args = append(cmd.Args, "--enable-priority-and-fairness=false", "--max-requests-inflight=8000", "--max-mutating-requests-inflight=4000")
	}
	cmd.Env = append(os.Environ(), "GOGC=400") // a start, which thirty tests wait for, takes 2.8 s of CPU instead of 3.3, and 105 MB more
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = childAttributes()
	cmd.ExtraFiles = []*os.File{s.lock} // the folder is in use until the child has ended
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, stopGrace
	return cmd, nil
}

// waitReady blocks until kube-apiserver is ready, has died, or the timeout has passed.
func waitReady(ctx context.Context, s *state, ended <-chan struct{}) error {
	config, err := clientcmd.BuildConfigFromFlags("", s.path("kubeconfig"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("kube-apiserver is not ready after "+startTimeout.String()))
	defer cancel()
	for {
		_, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil {
			// The API server makes it shortly after it is ready; nothing can be created in it before.
			_, err = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		}
		if err == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ended:
			return err
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
