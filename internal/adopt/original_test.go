package adopt

import (
	"strings"
	"testing"
)

// An output with the changed workload as the way back would lead nowhere.
func TestAWorkloadThatAdoptHasChangedIsNoOriginal(t *testing.T) {
	for mode, want := range map[Mode]string{ModeProxy: "container attach-hub-", ModeSidecarHub: "container attach-hub-", ModeDropIn: "image of csi-attach-hub in the container csi-attacher"} {
		p := podWith(t, Options{Mode: mode}, "--csi-address=/run/csi/socket, --leader-election", "", "")
		if err := CheckOriginal([]Plan{p}); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		content, err := Patched([]Plan{p}, mode.Steps()[0])
		if err != nil {
			t.Fatal(err)
		}
		again := Object{Source: p.Workload.Source}
		again.Object = content
		for _, o := range []Options{p.Options, {Mode: mode, Image: "registry.example.com/csi-attach-hub:v2"}, {Mode: mode, Image: "other:v1"}} {
			attachers, err := Find([]Object{again}, "default", plainFlags)
			if err != nil || len(attachers) != 1 {
				t.Fatalf("%s: %d csi-attachers, %v", mode, len(attachers), err)
			}
			err = CheckOriginal(NewPlans(attachers, []Object{again}, o))
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "original/manifest.yaml") {
				t.Errorf("%s, image %s: %v", mode, o.Image, err)
			}
		}
	}
	p := podWith(t, Options{Mode: ModeDropIn}, "--csi-address=/run/csi/socket", "command: [/csi-attach-hub]", "")
	p.Container.Image = "mirror.example.com/some-name:v1"
	if err := CheckOriginal([]Plan{p}); err == nil {
		t.Error("the program of the hub in an image of another name is taken for csi-attacher")
	}
	for image, want := range map[string]string{"hub": "hub", "r:5000/hub": "r:5000/hub", "r:5000/hub:v1": "r:5000/hub", "r/hub:v1@sha256:12": "r/hub"} {
		if got := repository(image); got != want {
			t.Errorf("the repository of %s is %s, want %s", image, got, want)
		}
	}
}

func TestADeployerThatAdoptHasChangedIsNoOriginal(t *testing.T) {
	p := plansFor(t, "longhorn", Options{Mode: ModeDropIn})[0]
	if err := CheckOriginal([]Plan{p}); err != nil {
		t.Error(err)
	}
	content, err := Patched([]Plan{p}, StepActive)
	if err != nil {
		t.Fatal(err)
	}
	again := Object{Source: p.Workload.Source}
	again.Object = content
	found := FindDeployers([]Object{again}, "default", nil)
	if len(found) != 1 {
		t.Fatalf("found %v", found)
	}
	if err := CheckOriginal(NewPlans(found, []Object{again}, p.Options)); err == nil || !strings.Contains(err.Error(), "variable CSI_ATTACHER_IMAGE") {
		t.Error(err)
	}
}
