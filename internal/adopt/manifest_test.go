package adopt_test

import (
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

// manifest is a controller that can be adopted. Tests change a part of it.
const manifest = `apiVersion: apps/v1
kind: Deployment
metadata:
  name: controller
  namespace: storage
spec:
  replicas: 1
  template:
    metadata:
      labels: {app: controller}
    spec:
      containers:
        - name: driver
          image: example.com/driver:v1
          args: [--driver-name=block.example.com]
          volumeMounts: [{name: sockets, mountPath: /csi}]
        - name: csi-attacher
          image: registry.k8s.io/sig-storage/csi-attacher:v4.10.0
          args: [--csi-address=/csi/csi.sock, --leader-election, --timeout=1m, --worker-threads=5, --kube-api-qps=9]
          volumeMounts: [{name: sockets, mountPath: /csi}]
      volumes:
        - name: sockets
          emptyDir: {}
`

// changed returns the manifest with texts replaced, which must be there, in pairs of old and new.
func changed(t *testing.T, pairs ...string) string {
	t.Helper()
	text := manifest
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the manifest has no %q", pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// simpleFlags reads the flags that decisions depend on. The command has a parser for all.
func simpleFlags(args []string) (adopt.Flags, error) {
	var f adopt.Flags
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch name {
		case "csi-address":
			f.Address = value
		case "leader-election":
			f.LeaderElection = value != "false"
		case "leader-election-namespace":
			f.LeaseNamespace = value
		case "leader-election-type":
			f.LockType = value
		case "kubeconfig":
			f.Kubeconfig = value
		case "http-endpoint":
			f.HTTPEndpoint = value
		case "timeout":
			f.Settings = append(f.Settings, adopt.Setting{Key: "timeout", Value: value, Flag: "--timeout"})
		}
	}
	return f, nil
}

func read(t *testing.T, text string) []adopt.Object {
	t.Helper()
	objects, err := adopt.Read("file.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// plans returns the plans of manifests. Options get what the command gives by default.
func plans(t *testing.T, text string, o adopt.Options) []adopt.Plan {
	t.Helper()
	if o.Mode == "" {
		o.Mode = adopt.ModeProxy
	}
	o.Image, o.Namespace = "example.com/hub:v1", "default"
	objects := read(t, text)
	attachers, err := adopt.Find(objects, o.Namespace, simpleFlags)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.Check(attachers); err != nil {
		t.Fatal(err)
	}
	return adopt.NewPlans(attachers, objects, o)
}

// onlyPlan returns the plan of manifests with one csi-attacher.
func onlyPlan(t *testing.T, text string, o adopt.Options) adopt.Plan {
	t.Helper()
	all := plans(t, text, o)
	if len(all) != 1 {
		t.Fatalf("%d csi-attachers, want 1", len(all))
	}
	return all[0]
}
