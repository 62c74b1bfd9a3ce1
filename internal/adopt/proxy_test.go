package adopt

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func TestRootKeepsTheRightToOpenTheSocketOfAnotherUser(t *testing.T) {
	for securityContext, want := range map[string]bool{
		"":                                   true,
		"{privileged: true}":                 true,
		"{runAsUser: 0}":                     true,
		"{capabilities: {add: [SYS_ADMIN]}}": true,
		"{capabilities: {drop: [ALL], add: [DAC_OVERRIDE]}}": true,
		"{capabilities: {drop: [ALL]}}":                      false,
		"{capabilities: {drop: [DAC_OVERRIDE]}}":             false,
		"{runAsUser: 1000}":                                  false,
	} {
		attacher := ""
		if securityContext != "" {
			attacher = "securityContext: " + securityContext
		}
		p := podWith(t, Options{Mode: ModeProxy}, "--leader-election", attacher, "")
		c, _ := containerNamed(templateAfter(t, []Plan{p}, StepObserve), p.Base())
		if got := slices.Contains(c.SecurityContext.Capabilities.Add, "DAC_OVERRIDE"); got != want || !slices.Equal(c.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("csi-attacher with %q: capabilities %v", securityContext, c.SecurityContext.Capabilities)
		}
	}
}

func TestCallsInFlightEndBeforeThePodIsKilled(t *testing.T) {
	for podSpec, want := range map[string]string{"": "25s", "terminationGracePeriodSeconds: 300": "30s", "terminationGracePeriodSeconds: 6": "3s"} {
		p := podWith(t, Options{Mode: ModeProxy}, "--leader-election", "", podSpec)
		c, _ := containerNamed(templateAfter(t, []Plan{p}, StepObserve), p.Base())
		if !slices.Contains(c.Args, "--shutdown-grace="+want) {
			t.Errorf("%q: %v, want %s", podSpec, c.Args, want)
		}
	}
}

func TestNamesOfAnyDriverAreValid(t *testing.T) {
	for _, driver := range []string{"a", "ebs.csi.aws.com", "CSI.Example.COM", "1.example.com", strings.Repeat("a", 63), strings.Repeat("a.", 31) + "b",
		strings.Repeat("a", 38) + "..b", strings.Repeat("a", 30) + "." + strings.Repeat("-", 10) + strings.Repeat("b", 20), strings.Repeat("A", 62) + "z"} {
		base := Base(driver)
		if errs := validation.IsDNS1035Label(base); len(errs) > 0 || len(base) > 50 {
			t.Errorf("%s of %s cannot be the name of a Service: %v", base, driver, errs)
		}
		for _, suffix := range []string{"-tls", "-ca", "-self-signed"} {
			if errs := validation.IsDNS1123Label(base + suffix); len(errs) > 0 {
				t.Errorf("%s: %v", base+suffix, errs)
			}
		}
		if errs := validation.IsQualifiedName(Plan{Driver: driver}.DriverLabel()); len(errs) > 0 {
			t.Errorf("the label of %s: %v", driver, errs)
		}
		if cn := base + "-ca"; len(cn) > 64 {
			t.Errorf("%s is too long for a common name", cn)
		}
	}
	if long := strings.Repeat("a", 62); Base(long+"b") == Base(long+"c") {
		t.Error("two long names have one base")
	}
}

func TestADriverInInitContainersIsInThePod(t *testing.T) {
	for restart, want := range map[string]bool{"restartPolicy: Always": true, "": false} {
		text := strings.Replace(onePod, "      containers:\n        - name: driver\n", "      initContainers:\n        - name: driver\n", 1)
		text = strings.Replace(text, "        - name: csi-attacher\n", "      containers:\n        - name: csi-attacher\n", 1)
		text = strings.Replace(text, "image: driver\n", "image: driver\n          "+restart+"\n", 1)
		text = strings.NewReplacer("NAME", "driver", "ARGS", "--leader-election", "ATTACHER", "", "POD", "").Replace(text)
		if p := plansOfText(t, []byte(text), Options{Mode: ModeProxy})[0]; p.Adoptable() != want {
			t.Errorf("%q: no: %v", restart, p.No)
		}
	}
}
