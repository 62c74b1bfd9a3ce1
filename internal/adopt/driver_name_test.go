package adopt_test

import (
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

const nameArgument = "args: [--driver-name=block.example.com]"

func csiDriverNamed(name string) string {
	return "---\n{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: " + name + "}}\n"
}

// node is a DaemonSet with a node-driver-registrar.
func node(name, namespace string) string {
	return `---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node, namespace: ` + namespace + `}
spec:
  template:
    spec:
      containers:
        - name: registrar
          image: node-driver-registrar:v2
          args: [--csi-address=/csi/csi.sock, --kubelet-registration-path, $(FOLDER)/csi.sock]
          env: [{name: FOLDER, value: /var/lib/kubelet/plugins/` + name + `}]
`
}

func TestNameOfTheDriverAndWhatSaysIt(t *testing.T) {
	for name, test := range map[string]struct {
		change     []string
		more       string
		given      []string
		want, from string // from: a part
		no         string // a part of the reason if the name is not known
	}{
		"the user before all":  {given: []string{"given.example.com"}, want: "given.example.com", from: "--driver"},
		"by container":         {given: []string{"csi-attacher=given.example.com"}, want: "given.example.com", from: "--driver"},
		"by workload":          {given: []string{"controller/csi-attacher=given.example.com"}, want: "given.example.com", from: "--driver"},
		"argument":             {want: "block.example.com", from: "--driver-name of container driver"},
		"argument in two":      {change: []string{nameArgument, "args: [-drivername, block.example.com]"}, want: "block.example.com", from: "--drivername"},
		"argument of variable": {change: []string{nameArgument, "args: [--csi-name=$(OWN)]\n          env: [{name: OWN, value: block.example.com}]"}, want: "block.example.com", from: "--csi-name"},
		"variable":             {change: []string{nameArgument, "env: [{name: DRIVER_NAME, value: block.example.com}]"}, want: "block.example.com", from: "DRIVER_NAME of container driver"},
		"a word is no name":    {change: []string{nameArgument, "args: [--driver=block]"}, more: csiDriverNamed("real.example.com"), want: "real.example.com", from: "CSIDriver object, file.yaml: document 2"},
		"a version is no name": {change: []string{nameArgument, "args: [--driver=1.2.3]"}, no: "does not say the driver's name"},
		"they disagree":        {more: csiDriverNamed("real.example.com"), no: "block.example.com (--driver-name of container driver), real.example.com (CSIDriver object"},
		"registrar":            {change: []string{nameArgument, "args: []"}, more: node("block.example.com", "storage"), want: "block.example.com", from: "--kubelet-registration-path in DaemonSet node"},
		"folder without name":  {change: []string{nameArgument, "args: []"}, more: node("csi-block", "storage"), no: "preflight --socket unix:///csi/csi.sock"},
		"several objects":      {change: []string{nameArgument, "args: []"}, more: csiDriverNamed("a.example.com") + csiDriverNamed("b.example.com"), no: "a.example.com (CSIDriver object, file.yaml: document 2), b.example.com"},
		"registrar chooses":    {change: []string{nameArgument, "args: []", "emptyDir: {}", "hostPath: {path: /var/lib/kubelet/plugins/b.example.com}"}, more: csiDriverNamed("a.example.com") + csiDriverNamed("b.example.com"), want: "b.example.com", from: "path of the socket's volume sockets"},
		"sanitized in a path":  {change: []string{nameArgument, "args: []", "mountPath: /csi}]\n        - name: csi-attacher", "mountPath: /csi/b-example-com}]\n        - name: csi-attacher"}, more: csiDriverNamed("a.example.com") + csiDriverNamed("b.example.com"), want: "b.example.com", from: "path at which container driver mounts"},
		"one that attaches":    {change: []string{nameArgument, "args: []"}, more: csiDriverNamed("a.example.com") + strings.Replace(csiDriverNamed("b.example.com"), "metadata", "spec: {attachRequired: false}, metadata", 1), want: "a.example.com", from: "CSIDriver object"},
	} {
		t.Run(name, func(t *testing.T) {
			p := onlyPlan(t, changed(t, test.change...)+test.more, adopt.Options{Drivers: test.given})
			if p.Driver != test.want || !strings.Contains(p.NameFrom, test.from) || !strings.Contains(strings.Join(p.No, ""), test.no) {
				t.Errorf("name %q from %q, reasons %q; want %q from %q, %q", p.Driver, p.NameFrom, p.No, test.want, test.from, test.no)
			}
			if p.Adoptable() != (test.want != "") {
				t.Errorf("adoptable: %v, reasons %q", p.Adoptable(), p.No)
			}
		})
	}
}

func TestNamesOfTwoDriversByTheirNamespaces(t *testing.T) {
	one := changed(t, nameArgument, "args: []")
	two := strings.ReplaceAll(one, "namespace: storage", "namespace: other")
	all := plans(t, one+"---\n"+two+node("one.example.com", "storage")+node("two.example.com", "other"), adopt.Options{})
	if all[0].Driver != "one.example.com" || all[1].Driver != "two.example.com" {
		t.Errorf("names %q and %q", all[0].Driver, all[1].Driver)
	}
}

func TestNamesThatCannotStandTogether(t *testing.T) {
	other := strings.ReplaceAll(manifest, "name: controller", "name: other")
	for name, test := range map[string]struct{ other, want string }{
		"the same":     {"block.example.com", "are both for driver block.example.com"},
		"sanitized":    {"block-example-com", "have one Lease"},
		"small letter": {"Block.example.com", "have one Lease"},
	} {
		t.Run(name, func(t *testing.T) {
			err := adopt.CheckTogether(plans(t, manifest+"---\n"+other, adopt.Options{Drivers: []string{"other/csi-attacher=" + test.other}}))
			if err == nil {
				t.Fatal("they can stand together")
			}
			for _, want := range []string{"document 1 (Deployment controller): container csi-attacher", "document 2 (Deployment other)", test.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not have %q: %v", want, err)
				}
			}
		})
	}
	if err := adopt.CheckTogether(plans(t, manifest, adopt.Options{})); err != nil {
		t.Error(err)
	}
}

func TestOptionsThatCannotBeFollowed(t *testing.T) {
	attachers, err := adopt.Find(read(t, manifest), "default", simpleFlags)
	if err != nil {
		t.Fatal(err)
	}
	uid := int64(-1)
	o := adopt.Options{Image: "a b", Namespace: "A", HubNamespace: "b/c", Port: 65535, NodeCIDRs: []string{"10.0.0.0"}, Secrets: []string{"a/b/c"}, RunAsUser: &uid,
		Drivers: []string{"not a name", "nobody=block.example.com"}}
	err = o.Check(attachers)
	for _, want := range []string{"--image", "--namespace", "--hub-namespace", "--port", "--node-cidr", "--secret", "--run-as-user", `"not a name"`, `"nobody=block.example.com" means 0 csi-attachers: write WORKLOAD/CONTAINER=NAME with one of controller/csi-attacher`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not have %q: %v", want, err)
		}
	}
}
