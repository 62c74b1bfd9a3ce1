package adopt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
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
	all := Modes
	for name, test := range map[string]struct {
		change []string // of the manifest
		more   string   // documents behind it
		want   string
		modes  []Mode
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
		"known operator":        {change: []string{"  namespace: storage\n", "  namespace: storage\n  ownerReferences: [{apiVersion: csi.ibm.com/v1, kind: IBMBlockCSI, name: main, uid: u, controller: true}]\n"}, want: "set csi-attacher in spec.sidecars of the IBMBlockCSI to the variant of the hub's image", modes: all},
		"operator as owner":     {change: []string{"  namespace: storage\n", "  namespace: storage\n  ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: rook-ceph-operator, uid: u, controller: true}]\n"}, want: "set ROOK_CSI_ATTACHER_IMAGE in the ConfigMap rook-ceph-operator-config", modes: all},
		"template":              {change: []string{"registry.k8s.io/sig-storage/csi-attacher:v4.10.0", "'{{ .Values.attacher }}'"}, want: "image {{ .Values.attacher }} is a template: render it first", modes: all},
		"owner for deletion":    {change: []string{"  namespace: storage\n", "  namespace: storage\n  ownerReferences: [{apiVersion: example.com/v1, kind: Storage, name: main, uid: u}]\n"}},
		"other socket":          {change: []string{"volumeMounts: [{name: sockets, mountPath: /csi}]\n        - name: csi", "volumeMounts: []\n        - name: csi", "emptyDir: {}", "hostPath: {path: /run/block}"}, want: "the driver runs in another Pod", modes: proxyOnly, more: "---\n{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: block.example.com}}\n"},
		"node socket":           {change: []string{"volumeMounts: [{name: sockets, mountPath: /csi}]\n        - name: csi", "volumeMounts: []\n        - name: csi", "emptyDir: {}", "hostPath: {path: /var/lib/kubelet/plugins/block.example.com}"}, want: "that of the node plugin", modes: proxyOnly},
		"lock of ConfigMaps":    {change: attacherArg("--leader-election-type=configmaps"), want: `no Lease (configmaps)`, modes: all},
		"lock of Leases":        {change: attacherArg("--leader-election-type=leases")},
		"old csi-attacher":      {change: []string{"attacher:v4.10.0", "attacher:v1.2.1"}, want: "csi-attacher v1.2.1", modes: all},
		"kubeconfig":            {change: attacherArg("--kubeconfig=/etc/kubeconfig"), want: "another cluster", modes: proxyOnly},
		"TCP":                   {change: []string{"/csi/csi.sock", "tcp://10.0.0.1:9000"}, want: "network address", modes: all},
		"host and port":         {change: []string{"/csi/csi.sock", "driver.storage.svc:9000"}, want: "network address", modes: all},
		"socket in no volume":   {change: []string{"=/csi/csi.sock", "=/other/csi.sock"}, want: "in no volume", modes: all},
		"subPathExpr":           {change: []string{"--kube-api-qps=9]\n          volumeMounts: [{name: sockets, mountPath: /csi}]", "--kube-api-qps=9]\n          volumeMounts: [{name: sockets, mountPath: /csi, subPathExpr: $(A)}]"}, want: "subPathExpr", modes: proxyOnly},
		"volume missing":        {change: []string{"- name: sockets\n          emptyDir", "- name: others\n          emptyDir"}, want: "has no volume", modes: all},
		"user of the image":     {change: []string{"    spec:\n      containers", "    spec:\n      securityContext: {runAsNonRoot: true}\n      containers"}, want: "--run-as-user", modes: all},
		"root is forbidden":     {change: []string{"    spec:\n      containers", "    spec:\n      securityContext: {runAsNonRoot: true, runAsUser: 0}\n      containers"}, want: "the kubelet does not start it", modes: all},
		"Windows":               {change: []string{"    spec:\n      containers", "    spec:\n      nodeSelector: {kubernetes.io/os: windows}\n      containers"}, want: "Windows", modes: all},
		"Windows by its system": {change: []string{"    spec:\n      containers", "    spec:\n      os: {name: windows}\n      containers"}, want: "Windows", modes: all},
		"attachRequired: false": {more: csiDriverWithoutAttach, want: "can be removed without a hub", modes: all},
		"shell":                 {change: []string{"args: [--csi-address", "command: [/bin/sh, -c]\n          args: [--csi-address"}, want: "the shell sh", modes: all},
		"deployer": {more: strings.NewReplacer("name: controller", "name: deployer", "csi-attacher:v4.10.0", "pause:1", "args: [--csi-address=/csi/csi.sock, --leader-election, --timeout=1m, --worker-threads=5, --kube-api-qps=9]",
			"env: [{name: BLOCK_CSI_ATTACHER_IMAGE, value: 'registry.k8s.io/sig-storage/csi-attacher:v4.10.0'}]").Replace("---\n" + manifest), want: "BLOCK_CSI_ATTACHER_IMAGE of the Deployment deployer to the variant of the hub's image that runs as root, example.com/hub:v1 with -root", modes: all},
		"no namespace":      {change: []string{"  namespace: storage\n", ""}, want: "names no namespace: add --namespace", modes: all},
		"proxy is there":    {change: []string{"      containers:\n", "      containers:\n        - {name: attach-hub-block-example-com, image: other}\n"}, want: "pass the manifest from before adopt", modes: all},
		"hub is there":      {change: []string{"registry.k8s.io/sig-storage/csi-attacher:v4.10.0", "mirror.example.com/csi-attach-hub:v0"}, want: "container csi-attacher is csi-attach-hub already", modes: all},
		"hub's own program": {change: []string{"          image: registry.k8s.io", "          command: [/csi-attach-hub]\n          image: registry.k8s.io"}, want: "container csi-attacher is csi-attach-hub already", modes: all},
		"adoptable":         {},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range Modes {
				p := onlyPlan(t, changed(t, test.change...)+test.more, Options{Mode: mode})
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
		options Options
	}{
		"user":               {nonRoot, Options{RunAsUser: &uid}},
		"user of OpenShift":  {nonRoot, Options{OpenShift: true}},
		"namespace":          {[]string{"  namespace: storage\n", ""}, Options{Namespace: "storage"}},
		"managed add-on":     {labelled("addonmanager.kubernetes.io/mode: Reconcile"), Options{Unmanaged: true}},
		"managed namespace":  {[]string{"namespace: storage", "namespace: gke-managed-filestore"}, Options{Unmanaged: true}},
		"name of the driver": {[]string{"--driver-name=block.example.com", "--v=5"}, Options{Drivers: []string{"block.example.com"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if p := onlyPlan(t, changed(t, test.change...), Options{}); p.Adoptable() {
				t.Error("it can be adopted without the option")
			}
			if p := onlyPlan(t, changed(t, test.change...), test.options); !p.Adoptable() {
				t.Errorf("it cannot be adopted: %q", p.No)
			}
		})
	}
}

func TestPortsOfHostNetworkAreFreeAndOfOneDriver(t *testing.T) {
	host := changed(t, "    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers")
	port := onlyPlan(t, host, Options{}).Port
	other := strings.NewReplacer("name: controller", "name: other", "csi-attacher:v4.10.0", "pause:1", "name: csi-attacher", "name: pause", "--csi-address=/csi/csi.sock", "--port=0.0.0.0:"+fmt.Sprint(port)).Replace(host)
	if got := onlyPlan(t, host+"---\n"+other, Options{}).Port; got != port+2 || port < 19000 {
		t.Errorf("port %d, want %d: another Pod of the network uses %d", got, port+2, port)
	}
	if got := onlyPlan(t, host, Options{Drivers: []string{"file.example.com"}}).Port; got == port {
		t.Errorf("two drivers have port %d", got)
	}
}

// role returns a ClusterRole that may write VolumeAttachments and read something else, and its binding to an account.
func role(name, other, account string) string {
	return fmt.Sprintf(`---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: %[1]s}, rules: [{resources: [volumeattachments], verbs: [get, patch]}, {resources: [%[2]s], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %[1]s-binding}, roleRef: {kind: ClusterRole, name: %[1]s}, subjects: [{kind: ServiceAccount, name: %[3]s, namespace: storage}]}
`, name, other, account)
}

func TestTheFindingSaysWhatTheUserMustKnow(t *testing.T) {
	onHost := []string{"    spec:\n      containers", "    spec:\n      hostNetwork: true\n      containers"}
	of := func(container string) []string {
		return []string{"          image: registry.k8s.io", "          " + container + "\n          image: registry.k8s.io"}
	}
	classes := ""
	for _, name := range []string{"a", "b", "c"} {
		classes += "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: " + name + "}, provisioner: block.example.com, parameters: {csi.storage.k8s.io/controller-publish-secret-name: '${pvc.name}', csi.storage.k8s.io/controller-publish-secret-namespace: storage}}\n"
	}
	for name, test := range map[string]struct {
		change []string
		more   string
		mode   Mode
		want   []string // parts of the finding; the first is not in that of the unchanged manifest
	}{
		"Helm":                {change: labelled("app.kubernetes.io/managed-by: Helm"), want: []string{"Helm (app.kubernetes.io/managed-by), which undoes"}},
		"Helm by annotation":  {change: annotated("meta.helm.sh/release-name: r"), want: []string{"Helm (meta.helm.sh/release-name)"}},
		"Helm by its comment": {change: []string{"apiVersion: apps/v1\nkind: Deployment", "# Source: block/templates/controller.yaml\napiVersion: apps/v1\nkind: Deployment"}, want: []string{"Helm (# Source: block)"}},
		"rights": {change: []string{"    spec:\n      containers", "    spec:\n      serviceAccountName: controller\n      containers"}, more: role("attacher", "persistentvolumes", "controller") + role("other", "persistentvolumes", "else") +
			role("all", "storageclasses", "controller"), want: []string{"remove what csi-attacher alone needs: ClusterRoleBinding attacher-binding and ClusterRole attacher; the verbs patch and update on volumeattachments and volumeattachments/status from ClusterRole all"}},
		"Argo CD":               {change: annotated("argocd.argoproj.io/tracking-id: a"), want: []string{"Argo CD"}},
		"Flux":                  {change: labelled("kustomize.toolkit.fluxcd.io/name: a"), want: []string{"Flux (kustomize.toolkit.fluxcd.io/)"}},
		"Flux before Helm":      {change: labelled("app.kubernetes.io/managed-by: Helm, helm.toolkit.fluxcd.io/name: a"), want: []string{"Flux (helm.toolkit.fluxcd.io/)"}},
		"replicas":              {change: []string{"replicas: 1", "replicas: 3"}, want: []string{"3; the hub calls one of them"}},
		"DaemonSet":             {change: []string{"kind: Deployment", "kind: DaemonSet"}, want: []string{"one on each of its nodes; the hub calls one of them"}},
		"host network":          {change: onHost, want: []string{"must be free on each node", "maxSurge: 0"}},
		"metrics":               {change: attacherArg("--http-endpoint=:8080"), want: []string{"not carried over: --http-endpoint=:8080"}},
		"user of another image": {change: []string{"registry.k8s.io/sig-storage/", "example.com/"}, want: []string{"if this image has another, add --run-as-user"}},
		"OpenShift":             {change: []string{"labels: {app: controller}", "annotations: {openshift.io/required-scc: nonroot}"}, want: []string{"if the cluster is OpenShift, add --openshift"}},
		"privileged":            {change: of("securityContext: {privileged: true}"), want: []string{"SELinux"}},
		"templates of Secrets":  {more: classes, want: []string{"a template in StorageClass a (storage/${pvc.name}), b (storage/${pvc.name}), c (storage/${pvc.name})"}},
		"all at once":           {change: slices.Concat(attacherArg("--http-endpoint=:8080, --foreign=a"), of("securityContext: {privileged: true}")), more: classes + role("attacher", "nodes", "default"), want: []string{"--foreign=a", "a template in StorageClass", "ClusterRole attacher", "SELinux"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Mode: test.mode}
			finding := func(p Plan) string {
				text, err := Text([]Plan{p})
				if lines := strings.Count(text, "\n"); err != nil || len(p.Notes) > 5 || lines > 60 {
					t.Errorf("%v, %d notes, %d lines; want at most 5 and 60", err, len(p.Notes), lines)
				}
				return strings.Join(strings.Fields(text), " ") // in one line
			}
			if before := finding(onlyPlan(t, manifest, o)); strings.Contains(before, test.want[0]) {
				t.Errorf("the unchanged manifest has it: %s", before)
			}
			got := finding(onlyPlan(t, changed(t, test.change...)+test.more, o))
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is missing:\n%s", want, got)
				}
			}
		})
	}
}

func TestTextsOfManifestsCannotActOnTheTerminal(t *testing.T) {
	p := onlyPlan(t, changed(t, attacherArg(`"--foreign=a\e[2Jb"`)...), Options{})
	if notes := strings.Join(p.Notes, ""); strings.Contains(notes, "\x1b") || !strings.Contains(notes, "[2Jb") {
		t.Errorf("%q", notes)
	}
}

func TestSecretsOfClassesAndVolumesOfTheDriver(t *testing.T) {
	class := func(driver, name string) string {
		return "---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: c}, provisioner: " + driver +
			", parameters: {csi.storage.k8s.io/controller-publish-secret-name: " + name + ", csi.storage.k8s.io/controller-publish-secret-namespace: keys, csi.storage.k8s.io/node-stage-secret-name: node}}\n"
	}
	volume := func(driver, name string) string {
		return "---\n{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {csi: {driver: " + driver + ", volumeHandle: h, controllerPublishSecretRef: {name: " + name + ", namespace: keys}}}}\n"
	}
	more := class("block.example.com", "a") + class("other.example.com", "b") + volume("block.example.com", "a") + volume("block.example.com", "c") + volume("other.example.com", "d")
	p := onlyPlan(t, manifest+more, Options{Secrets: []string{"given", "keys/a", "all/*"}})
	want := []string{"storage/given", "keys/a", "all/*", "keys/c"}
	if !slices.Equal(p.Secrets, want) {
		t.Errorf("%v, want %v", p.Secrets, want)
	}
	config, err := registry.ParseManifest("block.example.com.yaml", []byte(fileOf(t, p)))
	if line := `secrets: ["storage/given", "keys/a", "all/*", "keys/c"]`; err != nil || len(config[0].Drivers()) != 1 || !strings.Contains(fileOf(t, p), line) {
		t.Errorf("%v: has no %s:\n%s", err, line, fileOf(t, p))
	}
	if p := onlyPlan(t, manifest, Options{}); len(p.Secrets) > 0 || !strings.Contains(strings.Join(p.Notes, ""), "controllerPublishSecretRef") {
		t.Errorf("Secrets %v, notes %q; want none, and how to find them", p.Secrets, p.Notes)
	}
}
