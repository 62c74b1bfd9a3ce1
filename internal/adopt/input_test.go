package adopt

import (
	"os"
	"strings"
	"testing"
)

const nameArgument = "args: [--driver-name=block.example.com]"

func csiDriverNamed(name string) string {
	return "---\n{apiVersion: storage.k8s.io/v1, kind: CSIDriver, metadata: {name: " + name + "}}\n"
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
		"argument":             {want: "block.example.com", from: "--driver-name of container driver"},
		"argument in two":      {change: []string{nameArgument, "args: [-drivername, block.example.com]"}, want: "block.example.com", from: "--drivername"},
		"argument of variable": {change: []string{nameArgument, "args: [--csi-name=$(OWN)]\n          env: [{name: OWN, value: block.example.com}]"}, want: "block.example.com", from: "--csi-name"},
		"variable":             {change: []string{nameArgument, "env: [{name: DRIVER_NAME, value: block.example.com}]"}, want: "block.example.com", from: "DRIVER_NAME of container driver"},
		"a word is no name":    {change: []string{nameArgument, "args: [--driver=block]"}, more: csiDriverNamed("real.example.com"), want: "real.example.com", from: "CSIDriver object, file.yaml: document 2"},
		"a version is no name": {change: []string{nameArgument, "args: [--driver=1.2.3]"}, no: "does not say the driver's name"},
		"the object chooses":   {change: []string{nameArgument, "args: [--driver-name=block.example.com, --csi-name=real.example.com]"}, more: csiDriverNamed("real.example.com") + csiDriverNamed("other.example.com"), want: "real.example.com", from: "--csi-name"},
		"they disagree":        {more: csiDriverNamed("real.example.com"), no: "block.example.com (--driver-name of container driver), real.example.com (CSIDriver object"},
		"several objects":      {change: []string{nameArgument, "args: []"}, more: csiDriverNamed("a.example.com") + csiDriverNamed("b.example.com"), no: "a.example.com (CSIDriver object, file.yaml: document 2), b.example.com"},
		"one that attaches":    {change: []string{nameArgument, "args: []"}, more: csiDriverNamed("a.example.com") + strings.Replace(csiDriverNamed("b.example.com"), "metadata", "spec: {attachRequired: false}, metadata", 1), want: "a.example.com", from: "CSIDriver object"},
	} {
		t.Run(name, func(t *testing.T) {
			p := onlyPlan(t, changed(t, test.change...)+test.more, Options{Drivers: test.given})
			if p.Driver != test.want || !strings.Contains(p.NameFrom, test.from) || !strings.Contains(strings.Join(p.No, ""), test.no) {
				t.Errorf("name %q from %q, reasons %q; want %q from %q, %q", p.Driver, p.NameFrom, p.No, test.want, test.from, test.no)
			}
			if p.Adoptable() != (test.want != "") {
				t.Errorf("adoptable: %v, reasons %q", p.Adoptable(), p.No)
			}
		})
	}
}

func TestDriversOfOneLeaseAreNotAdoptedTogether(t *testing.T) {
	for _, name := range []string{"block.example.com", "block-example-com", "Block.example.com"} { // the same, sanitized, in small letters
		other := strings.NewReplacer("name: controller", "name: other", "name: csi-attacher", "name: other-attacher").Replace(manifest)
		all := plans(t, manifest+"---\n"+other, Options{Drivers: []string{"other-attacher=" + name}})
		if no := strings.Join(all[1].No, "\n"); !all[0].Adoptable() || !strings.Contains(no, "document 1 (Deployment controller): container csi-attacher is for the driver block.example.com: this name gives the same Lease and finalizer") {
			t.Errorf("%s: %s", name, no)
		}
	}
}

func TestOptionsThatCannotBeFollowed(t *testing.T) {
	attachers, err := Find(read(t, manifest), "default", plainFlags)
	if err != nil {
		t.Fatal(err)
	}
	uid := int64(-1)
	o := Options{Image: "a b", Namespace: "A", HubNamespace: "b/c", Port: 65535, Secrets: []string{"a/b/c"}, RunAsUser: &uid,
		Drivers: []string{"not a name", "nobody=block.example.com"}, Mode: "sidecar"}
	err = o.Check(attachers)
	for _, want := range []string{"--mode", "--image", "--namespace", "--hub-namespace", "--port", "--secret", "--run-as-user", `"not a name"`, `"nobody=block.example.com" means 0 csi-attachers: write CONTAINER=NAME with one of csi-attacher`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not have %q: %v", want, err)
		}
	}
}

func TestSettingsOfOperatorsAreDocumented(t *testing.T) {
	page, err := os.ReadFile("../../deploy/DRIVERS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range operators {
		if row := "| " + o.workload + " | " + o.setting + " |\n"; !strings.Contains(string(page), row) {
			t.Errorf("deploy/DRIVERS.md has no %s", row)
		}
	}
}
