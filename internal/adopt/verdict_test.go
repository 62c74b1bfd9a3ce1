package adopt_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

func labelled(label string) []string {
	return []string{"  namespace: storage\n", "  namespace: storage\n  labels: {" + label + "}\n"}
}

func annotated(annotation string) []string {
	return []string{"  namespace: storage\n", "  namespace: storage\n  annotations: {" + annotation + "}\n"}
}

func attacherArg(arg string) []string {
	return []string{"--leader-election,", "--leader-election, " + arg + ","}
}

const csiDriverWithoutAttach = `---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: block.example.com}
spec: {attachRequired: false}
`

func TestEachReasonHoldsForItsModes(t *testing.T) {
	all := adopt.Modes
	beside := []adopt.Mode{adopt.ModeProxy, adopt.ModeSidecarHub}
	for name, test := range map[string]struct {
		change []string // of the manifest
		more   string   // documents behind it
		want   string
		modes  []adopt.Mode
	}{
		"add-on manager":        {change: labelled("addonmanager.kubernetes.io/mode: Reconcile"), want: "add-on manager of the provider", modes: all},
		"add-on made once":      {change: labelled("addonmanager.kubernetes.io/mode: EnsureExists")},
		"EKS add-on":            {change: labelled("app.kubernetes.io/managed-by: EKS"), want: "Amazon EKS", modes: all},
		"AKS":                   {change: labelled("kubernetes.azure.com/managedby: aks"), want: "AKS", modes: all},
		"GKE component":         {change: annotated("components.gke.io/component-name: pdcsi"), want: "GKE", modes: all},
		"GKE namespace":         {change: []string{"namespace: storage", "namespace: gke-managed-filestore"}, want: "GKE", modes: all},
		"OpenShift operator":    {change: annotated("operator.openshift.io/spec-hash: abc"), want: "ClusterCSIDriver", modes: all},
		"OpenShift namespace":   {change: []string{"namespace: storage", "namespace: openshift-cluster-csi-drivers"}, want: "ClusterCSIDriver", modes: all},
		"lifecycle manager":     {change: labelled("olm.owner: csi.v1"), want: "ClusterServiceVersion", modes: all},
		"owner":                 {change: []string{"  namespace: storage\n", "  namespace: storage\n  ownerReferences: [{apiVersion: example.com/v1, kind: Storage, name: main, uid: u, controller: true}]\n"}, want: "Storage main of example.com/v1", modes: all},
		"owner for deletion":    {change: []string{"  namespace: storage\n", "  namespace: storage\n  ownerReferences: [{apiVersion: example.com/v1, kind: Storage, name: main, uid: u}]\n"}},
		"other socket":          {change: []string{"volumeMounts: [{name: sockets, mountPath: /csi}]\n        - name: csi", "volumeMounts: []\n        - name: csi", "emptyDir: {}", "hostPath: {path: /run/block}"}, want: "the driver runs in another Pod", modes: []adopt.Mode{adopt.ModeProxy}, more: "---\n{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: block.example.com}}\n"},
		"node socket":           {change: []string{"volumeMounts: [{name: sockets, mountPath: /csi}]\n        - name: csi", "volumeMounts: []\n        - name: csi", "emptyDir: {}", "hostPath: {path: /var/lib/kubelet/plugins/block.example.com}"}, want: "that of the node plugin", modes: []adopt.Mode{adopt.ModeProxy}},
		"no leader election":    {change: []string{"--leader-election", "--leader-election=false"}, want: "--without-leader-election", modes: beside},
		"lock of ConfigMaps":    {change: attacherArg("--leader-election-type=configmaps"), want: `"configmaps", not a Lease`, modes: all},
		"lock of Leases":        {change: attacherArg("--leader-election-type=leases")},
		"old csi-attacher":      {change: []string{"attacher:v4.10.0", "attacher:v1.2.1"}, want: "csi-attacher v1.2.1", modes: all},
		"kubeconfig":            {change: attacherArg("--kubeconfig=/etc/kubeconfig"), want: "another cluster", modes: beside},
		"TCP":                   {change: []string{"/csi/csi.sock", "tcp://10.0.0.1:9000"}, want: "network address", modes: all},
		"host and port":         {change: []string{"/csi/csi.sock", "driver.storage.svc:9000"}, want: "network address", modes: all},
		"socket in no volume":   {change: []string{"=/csi/csi.sock", "=/other/csi.sock"}, want: "in no volume", modes: all},
		"volume missing":        {change: []string{"- name: sockets\n          emptyDir", "- name: others\n          emptyDir"}, want: "has no volume", modes: all},
		"user of the image":     {change: []string{"    spec:\n      containers", "    spec:\n      securityContext: {runAsNonRoot: true}\n      containers"}, want: "--run-as-user", modes: all},
		"root is forbidden":     {change: []string{"    spec:\n      containers", "    spec:\n      securityContext: {runAsNonRoot: true, runAsUser: 0}\n      containers"}, want: "the kubelet does not start it", modes: all},
		"Windows":               {change: []string{"    spec:\n      containers", "    spec:\n      nodeSelector: {kubernetes.io/os: windows}\n      containers"}, want: "Windows", modes: all},
		"Windows by its system": {change: []string{"    spec:\n      containers", "    spec:\n      os: {name: windows}\n      containers"}, want: "Windows", modes: all},
		"attachRequired: false": {more: csiDriverWithoutAttach, want: "can be removed without a hub", modes: all},
		"shell":                 {change: []string{"args: [--csi-address", "command: [/bin/sh, -c]\n          args: [--csi-address"}, want: "the shell sh", modes: all},
		"ReplicaSet":            {change: []string{"kind: Deployment", "kind: ReplicaSet"}, want: "in a ReplicaSet of apps/v1", modes: all},
		"old API":               {change: []string{"apps/v1", "extensions/v1beta1"}, want: "extensions/v1beta1", modes: all},
		"other API":             {change: []string{"apps/v1", "argoproj.io/v1alpha1", "kind: Deployment", "kind: Rollout"}, want: "in a Rollout", modes: all},
		"Job":                   {change: []string{"apps/v1", "batch/v1", "kind: Deployment", "kind: Job"}, want: "in a Job", modes: all},
		"deployer": {more: strings.NewReplacer("name: controller", "name: deployer", "csi-attacher:v4.10.0", "pause:1", "args: [--csi-address=/csi/csi.sock, --leader-election, --timeout=1m, --worker-threads=5, --kube-api-qps=9]",
			"env: [{name: BLOCK_CSI_ATTACHER_IMAGE, value: 'registry.k8s.io/sig-storage/csi-attacher:v4.10.0'}]").Replace("---\n" + manifest), want: "BLOCK_CSI_ATTACHER_IMAGE", modes: beside},
		"adoptable": {},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range adopt.Modes {
				p := onlyPlan(t, changed(t, test.change...)+test.more, adopt.Options{Mode: mode})
				no := strings.Join(p.No, "\n")
				if want := slices.Contains(test.modes, mode); want != strings.Contains(no, test.want) && test.want != "" || !want && no != "" {
					t.Errorf("mode %s: the reasons are %q, want %q: %v", mode, no, test.want, want)
				}
				if !p.Adoptable() && len(p.Notes) > 0 {
					t.Errorf("mode %s: notes about what is not done: %q", mode, p.Notes)
				}
			}
		})
	}
}

func TestReasonsThatAnOptionLifts(t *testing.T) {
	nonRoot := []string{"    spec:\n      containers", "    spec:\n      securityContext: {runAsNonRoot: true}\n      containers"}
	uid := int64(1000)
	for name, test := range map[string]struct {
		change  []string
		options adopt.Options
	}{
		"leader election":    {[]string{"--leader-election", "--leader-election=false"}, adopt.Options{WithoutLeaderElection: true}},
		"user":               {nonRoot, adopt.Options{RunAsUser: &uid}},
		"user of OpenShift":  {nonRoot, adopt.Options{OpenShift: true}},
		"name of the driver": {[]string{"--driver-name=block.example.com", "--v=5"}, adopt.Options{Drivers: []string{"block.example.com"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if p := onlyPlan(t, changed(t, test.change...), adopt.Options{}); p.Adoptable() {
				t.Error("it can be adopted without the option")
			}
			if p := onlyPlan(t, changed(t, test.change...), test.options); !p.Adoptable() {
				t.Errorf("it cannot be adopted: %q", p.No)
			}
		})
	}
}

// Pods and ReplicaSets that a Deployment makes are in what kubectl get all prints.
func TestWhatAWorkloadMakesIsNoAttacherOfItsOwn(t *testing.T) {
	made := changed(t, "kind: Deployment", "kind: ReplicaSet", "  namespace: storage\n",
		"  namespace: storage\n  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: controller, uid: u, controller: true}]\n")
	if all := plans(t, manifest+"---\n"+made, adopt.Options{}); len(all) != 1 {
		t.Errorf("%d csi-attachers, want that of the Deployment", len(all))
	}
}

func TestAPodIsFoundAndNamed(t *testing.T) {
	pod := `{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, image: "csi-attacher:v4"}]}}`
	p := onlyPlan(t, pod, adopt.Options{})
	if p.Adoptable() || !strings.Contains(p.No[0], "in a Pod of v1") || p.Path != "spec.containers[0]" {
		t.Errorf("reasons %q, path %s", p.No, p.Path)
	}
}

func TestPortsOfHostNetworkAreFreeAndOfOneDriver(t *testing.T) {
	host := changed(t, "    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers")
	p := onlyPlan(t, host, adopt.Options{})
	other := strings.ReplaceAll(strings.ReplaceAll(host, "name: controller", "name: other"), "block.example.com", "other.example.com")
	taken := strings.Replace(other, "--v=5", "", 1)
	taken = strings.Replace(taken, "--driver-name=", "--port=0.0.0.0:"+p.Entry()[strings.Index(p.Entry(), ".svc:")+5:strings.Index(p.Entry(), ".svc:")+10]+", --driver-name=", 1)
	both := plans(t, host+"---\n"+taken, adopt.Options{})
	if both[0].Ports == p.Ports || both[0].Ports == both[1].Ports || both[0].Ports.Listen == 0 {
		t.Errorf("ports %v and %v, want others than %v, which another Pod of the network uses", both[0].Ports, both[1].Ports, p.Ports)
	}
}

func TestADriverKeepsItsPortWhenItsProxyIsThere(t *testing.T) {
	host := changed(t, "    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers")
	first := onlyPlan(t, host, adopt.Options{})
	proxy := fmt.Sprintf("      containers:\n        - {name: %s, image: hub, ports: [{containerPort: %d}]}\n", first.Base(), first.Ports.Listen)
	if again := onlyPlan(t, strings.Replace(host, "      containers:\n", proxy, 1), adopt.Options{}); again.Ports != first.Ports {
		t.Errorf("ports %v, want %v", again.Ports, first.Ports)
	}
}
