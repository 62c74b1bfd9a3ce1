package adopt

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// attacherAfter returns the container of csi-attacher after the swap.
func attacherAfter(t *testing.T, p Plan) corev1.Container {
	t.Helper()
	c, found := containerNamed(templateAfter(t, []Plan{p}, StepActive), "csi-attacher")
	if !found {
		t.Fatal("csi-attacher is gone")
	}
	return c
}

func TestDropInTakesTheArgumentsThatTheHubHas(t *testing.T) {
	for name, tt := range map[string]struct {
		args, attacher string
		want           string // args
		no             string // a fragment; "" for none
	}{
		"only the image":          {`--csi-address=/run/csi/a, "--timeout=$(T)"`, "env: [{name: T, value: 1m}]", "--csi-address=/run/csi/a --timeout=$(T)", ""},
		"without an address":      {"--timeout=1m", "", "--timeout=1m --csi-address=/run/csi/socket", ""},
		"a command":               {"--v=2", "command: [/usr/bin/csi-attacher, --csi-address=/run/csi/a]", "--csi-address=/run/csi/a --v=2", ""},
		"another command":         {"--v=2", "command: [/start, --csi-address=/run/csi/a]", "--csi-address=/run/csi/a --v=2", "the hub's image has no /start"},
		"a flag of somebody else": {`--csi-address=/run/csi/a, --foreign=1`, "", "--csi-address=/run/csi/a --foreign=1", "the arguments --foreign=1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := podWith(t, Options{Mode: ModeDropIn}, tt.args, tt.attacher, "")
			c := attacherAfter(t, p)
			if got := strings.Join(c.Args, " "); got != tt.want || len(c.Command) > 0 && c.Command[0] != "/csi-attach-hub" {
				t.Errorf("command %v, args %s, want %s", c.Command, got, tt.want)
			}
			if no := strings.Join(p.No, "\n"); !strings.Contains(no, tt.no) || (tt.no == "") != (no == "") {
				t.Errorf("no: %q", no)
			}
		})
	}
}

func TestDropInOpensTheSocketAsTheUserOfCSIAttacher(t *testing.T) {
	user := int64(1234)
	for name, tt := range map[string]struct {
		o                 Options
		attacher, podSpec string
		want              int64 // -1: that of the image, which OpenShift replaces
		adoptable         bool
	}{
		"not said: root":              {Options{}, "", "", 0, true},
		"of the container":            {Options{}, "securityContext: {runAsUser: 1000}", "", 1000, true},
		"of the Pod":                  {Options{}, "", "securityContext: {runAsUser: 1000, runAsNonRoot: true}", 1000, true},
		"some user, but not root":     {Options{}, "securityContext: {runAsNonRoot: true}", "", 0, false},
		"named by the user":           {Options{RunAsUser: &user}, "securityContext: {runAsNonRoot: true}", "", 1234, true},
		"OpenShift, user not said":    {Options{OpenShift: true}, "", "", -1, true},
		"OpenShift, not as root":      {Options{OpenShift: true}, "securityContext: {runAsNonRoot: true}", "", -1, true},
		"OpenShift, user in the YAML": {Options{OpenShift: true}, "securityContext: {runAsUser: 0}", "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			tt.o.Mode = ModeDropIn
			p := podWith(t, tt.o, "--csi-address=/run/csi/a", tt.attacher, tt.podSpec)
			template := templateAfter(t, []Plan{p}, StepActive)
			c, _ := containerNamed(template, "csi-attacher")
			got := int64(-1)
			if u := userOf(template.Spec, c); u.UID != nil {
				got = *u.UID
			}
			if got != tt.want || p.Adoptable() != tt.adoptable {
				t.Errorf("user %d, want %d; no: %v", got, tt.want, p.No)
			}
		})
	}
}

func TestDropInHasTheMemoryOfAHub(t *testing.T) {
	for limit, want := range map[string]string{"20Mi": "512Mi", "256Mi": "512Mi", "512Mi": "512Mi", "1Gi": "1Gi", "": "0"} {
		attacher := ""
		if limit != "" {
			attacher = "resources: {requests: {memory: 16Mi}, limits: {cpu: 100m, memory: " + limit + "}}"
		}
		p := podWith(t, Options{Mode: ModeDropIn}, "--csi-address=/run/csi/a", attacher, "")
		c := attacherAfter(t, p)
		if got := c.Resources.Limits.Memory().String(); got != want {
			t.Errorf("limit of %q has become %s, want %s", limit, got, want)
		}
	}
}

func TestReplicasWithoutLeaderElectionAreNotSwapped(t *testing.T) {
	two := strings.Replace(onePod, "spec:\n  template:", "spec:\n  replicas: 2\n  template:", 1)
	for args, want := range map[string]bool{"--v=2": false, "--leader-election": true} {
		text := strings.NewReplacer("NAME", "driver", "ARGS", args, "ATTACHER", "", "POD", "").Replace(two)
		if p := plansOfText(t, []byte(text), Options{Mode: ModeDropIn})[0]; p.Adoptable() != want {
			t.Errorf("%s: no: %v", args, p.No)
		}
	}
}
