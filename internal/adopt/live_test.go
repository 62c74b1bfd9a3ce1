package adopt_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

// fakeAPI answers paths, each with "?" and the token of a page behind it if there is one, with JSON.
type fakeAPI map[string]string

func (f fakeAPI) Get(_ context.Context, path string, query url.Values) ([]byte, error) {
	if token := query.Get("continue"); token != "" {
		path += "?" + token
	}
	body, ok := f[path]
	if !ok {
		return nil, errors.New("forbidden")
	}
	return []byte(body), nil
}

// liveController is the controller of the manifest as the API has it.
func liveController(t *testing.T, change ...string) fakeAPI {
	t.Helper()
	body, err := yaml.YAMLToJSON([]byte(changed(t, change...)))
	if err != nil {
		t.Fatal(err)
	}
	return fakeAPI{"/apis/apps/v1/namespaces/storage/deployments/controller": string(body)}
}

func readLive(t *testing.T, api fakeAPI) adopt.Object {
	t.Helper()
	name, ok := adopt.ParseLiveName("deploy/controller")
	if !ok {
		t.Fatal("deploy/controller is no name")
	}
	o, err := adopt.ReadLive(t.Context(), api, name, "storage")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestAWorkloadThatKubectlApplyDidNotMakeHasANote(t *testing.T) {
	for name, test := range map[string]struct {
		change []string
		want   bool
	}{
		"created":             {want: true},
		"made by apply":       {change: annotated("kubectl.kubernetes.io/last-applied-configuration: '{}'")},
		"applied by server":   {change: []string{"  namespace: storage\n", "  namespace: storage\n  managedFields: [{manager: kubectl, operation: Apply}]\n"}},
		"changed by kubectl":  {change: []string{"  namespace: storage\n", "  namespace: storage\n  managedFields: [{manager: kubectl-edit, operation: Update}]\n"}, want: true},
		"applied by somebody": {change: []string{"  namespace: storage\n", "  namespace: storage\n  managedFields: [{manager: operator, operation: Apply}]\n"}, want: true},
	} {
		o := readLive(t, liveController(t, test.change...))
		attachers, err := adopt.Find([]adopt.Object{o}, "storage", simpleFlags)
		if err != nil {
			t.Fatal(err)
		}
		notes := strings.Join(adopt.NewPlans(attachers, []adopt.Object{o}, adopt.Options{Mode: adopt.ModeProxy})[0].Notes, "\n")
		if strings.Contains(notes, "`kubectl apply` did not make this object") != test.want {
			t.Errorf("%s: %s; want the note: %v", name, notes, test.want)
		}
		if len(o.GetManagedFields()) > 0 || strings.Contains(notes, "controllerPublishSecretRef") {
			t.Errorf("%s: managedFields %v, notes %s", name, o.GetManagedFields(), notes)
		}
	}
}

func TestWhatTheClusterSaysIsReadInPagesAndKeptInPart(t *testing.T) {
	api := liveController(t)
	api["/api/v1/persistentvolumes"] = `{"metadata":{"continue":"next"},"items":[{"metadata":{"name":"a","annotations":{"large":"text"}},"spec":{"csi":{"driver":"block.example.com","volumeAttributes":{"large":"text"}}}}]}`
	api["/api/v1/persistentvolumes?next"] = `{"items":[{"metadata":{"name":"b"},"spec":{"csi":{"driver":"block.example.com","controllerPublishSecretRef":{"name":"s","namespace":"keys"}}}}]}`
	api["/apis/storage.k8s.io/v1/csidrivers"] = `[]`
	api["/apis/storage.k8s.io/v1/storageclasses"] = `{"items":null}`
	api["/api/v1/namespaces/storage/pods"] = `{"items":[]}`
	api["/apis/coordination.k8s.io/v1/namespaces/storage/leases"] = `{"items":[{"metadata":{"name":"external-attacher-leader-a"}},{"metadata":{"name":"other"}}]}`
	api["/apis/apps/v1/namespaces/storage/daemonsets"] = `{"items":[]}`
	api["/apis/networking.k8s.io/v1/namespaces/storage/networkpolicies"] = `{"items":[{"metadata":{"name":"closed","namespace":"storage"},"spec":{"podSelector":{},"ingress":[{}]}}]}`
	attachers, err := adopt.Find([]adopt.Object{readLive(t, api)}, "storage", simpleFlags)
	if err != nil {
		t.Fatal(err)
	}
	objects, warnings := adopt.ReadAbout(t.Context(), api, attachers)
	var got []string
	for _, o := range objects {
		got = append(got, o.GetKind()+" "+o.GetName())
		if o.GetAnnotations() != nil || strings.Contains(o.GetName(), "large") {
			t.Errorf("more than needed: %v", o.Object)
		}
	}
	if strings.Join(got, ", ") != "PersistentVolume a, PersistentVolume b, Lease external-attacher-leader-a, NetworkPolicy closed" {
		t.Errorf("objects: %s", strings.Join(got, ", "))
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], "cannot read CSIDriver objects, which can say the driver's name: the answer is no list") {
		t.Errorf("warnings: %q", warnings)
	}
	if p := adopt.NewPlans(attachers, objects, adopt.Options{Mode: adopt.ModeProxy, Drivers: []string{"block.example.com"}})[0]; p.OpensOtherPorts() {
		t.Errorf("opens what policy closed of the cluster closes; notes %q", p.Notes)
	}
	if secrets := adopt.NewPlans(attachers, objects, adopt.Options{Mode: adopt.ModeProxy})[0].Secrets; len(secrets) != 1 || secrets[0].String() != "keys/s" {
		t.Errorf("Secrets %v", secrets)
	}
}

func TestNothingIsAskedAboutManifests(t *testing.T) {
	attachers, err := adopt.Find(read(t, manifest), "storage", simpleFlags)
	if err != nil {
		t.Fatal(err)
	}
	if objects, warnings := adopt.ReadAbout(t.Context(), fakeAPI{}, attachers); len(objects)+len(warnings) > 0 {
		t.Errorf("%v, %q", objects, warnings)
	}
}

func TestNameOfALiveDriverWithoutTheHolderOfItsLease(t *testing.T) {
	const ebs, disk = "ebs.csi.aws.com", "disk.csi.azure.com"
	const daemonSets, volumes, leases = "/apis/apps/v1/namespaces/storage/daemonsets", "/api/v1/persistentvolumes", "/apis/coordination.k8s.io/v1/namespaces/storage/leases"
	node := func(driver string) string {
		return `{"metadata":{"name":"node","namespace":"storage"},"spec":{"template":{"spec":{"volumes":[{"name":"sockets","hostPath":{"path":"/p"}}],"containers":[{"name":"registrar","image":"registrar","args":["--csi-address=/csi/csi.sock","--kubelet-registration-path=/var/lib/kubelet/plugins/` + driver + `/csi.sock"],"volumeMounts":[{"name":"sockets","mountPath":"/csi"}]}]}}}}`
	}
	image := func(image string) []string { return []string{"example.com/driver:v1", image} }
	for name, test := range map[string]struct {
		change     []string
		csiDrivers []string
		more       fakeAPI // items
		want, from string
		no         []string // parts of the reason
	}{
		"image":                     {change: image("public.ecr.aws/ebs-csi-driver/aws-ebs-csi-driver:v1"), csiDrivers: []string{disk, ebs}, want: ebs, from: "\"ebs, aws\" in the workload"},
		"joined words":              {change: []string{"name: controller\n", "name: csi-azuredisk-controller\n"}, csiDrivers: []string{disk, ebs}, want: disk, from: `"disk, azure" in the workload`},
		"image without leases":      {change: append(image("aws-ebs:v1"), "--leader-election,", ""), csiDrivers: []string{disk, ebs}, want: ebs, from: "ebs"},
		"a registry says nothing":   {change: image("1.ecr.amazonaws.com/plain:v1"), csiDrivers: []string{disk, ebs}, no: []string{"--driver controller/csi-attacher=disk.csi.azure.com, or --driver controller/csi-attacher=ebs.csi.aws.com"}},
		"more words win":            {change: image("aws-ebs:v1"), csiDrivers: []string{ebs, "fsx.csi.aws.com"}, want: ebs, from: "ebs"},
		"volumes":                   {change: image("aws:v1"), csiDrivers: []string{ebs, "fsx.csi.aws.com"}, more: fakeAPI{volumes: `{"metadata":{"name":"a"},"spec":{"csi":{"driver":"ebs.csi.aws.com"}}}`}, want: ebs, from: "aws"},
		"several possible":          {change: image("aws:v1"), csiDrivers: []string{ebs, disk, "fsx.csi.aws.com"}, no: []string{"several names", "--driver controller/csi-attacher=ebs.csi.aws.com, or --driver controller/csi-attacher=fsx.csi.aws.com;"}},
		"a Lease chooses":           {change: image("aws:v1"), csiDrivers: []string{ebs, disk, "fsx.csi.aws.com"}, more: fakeAPI{leases: `{"metadata":{"name":"external-attacher-leader-ebs-csi-aws-com","namespace":"storage"}}`}, want: ebs, from: "Lease external-attacher-leader-ebs-csi-aws-com"},
		"only a Lease":              {csiDrivers: []string{ebs, disk}, more: fakeAPI{leases: `{"metadata":{"name":"external-attacher-leader-ebs-csi-aws-com","namespace":"storage"},"spec":{"holderIdentity":"gone"}}`}, want: ebs, from: "Lease external"},
		"a Lease of somebody else":  {change: []string{"--leader-election,", ""}, csiDrivers: []string{ebs, disk}, more: fakeAPI{leases: `{"metadata":{"name":"external-attacher-leader-ebs-csi-aws-com","namespace":"storage"}}`}, no: []string{"=disk.csi.azure.com, or "}},
		"node plugin":               {csiDrivers: []string{ebs, disk}, more: fakeAPI{daemonSets: node(disk)}, want: disk, from: "--kubelet-registration-path in DaemonSet node"},
		"node plugin of another":    {change: image("aws-ebs:v1"), csiDrivers: []string{ebs, disk}, more: fakeAPI{daemonSets: node(disk)}, want: ebs, from: "ebs"},
		"nothing but a CSIDriver":   {csiDrivers: []string{disk}, no: []string{"does not say the driver's name", "--driver controller/csi-attacher=disk.csi.azure.com;"}},
		"no CSIDriver asks for one": {no: []string{"add --driver NAME"}},
	} {
		t.Run(name, func(t *testing.T) {
			api := liveController(t, append([]string{nameArgument, "args: []"}, test.change...)...)
			var items []string
			for _, driver := range test.csiDrivers {
				items = append(items, `{"metadata":{"name":"`+driver+`"},"spec":{"attachRequired":true}}`)
			}
			for path, item := range test.more {
				api[path] = `{"items":[` + item + `]}`
			}
			api["/apis/storage.k8s.io/v1/csidrivers"] = `{"items":[{"metadata":{"name":"efs.csi.aws.com"},"spec":{"attachRequired":false}},` + strings.Join(append(items, `{"metadata":{"name":"-"}}`), ",") + `]}`
			o := readLive(t, api)
			attachers, err := adopt.Find([]adopt.Object{o}, "storage", simpleFlags)
			if err != nil {
				t.Fatal(err)
			}
			about, _ := adopt.ReadAbout(t.Context(), api, attachers)
			p := adopt.NewPlans(attachers, append(about, o), adopt.Options{Mode: adopt.ModeProxy, WithoutLeaderElection: true})[0]
			if p.Driver != test.want || !strings.Contains(p.NameFrom, test.from) {
				t.Errorf("driver %q from %q, no: %q; want %q from %q", p.Driver, p.NameFrom, p.No, test.want, test.from)
			}
			for _, part := range test.no {
				if !strings.Contains(strings.Join(p.No, "\n"), part) {
					t.Errorf("no: %q, want %q", p.No, part)
				}
			}
		})
	}
}
