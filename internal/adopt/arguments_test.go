package adopt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

func TestArgumentsAsTheKubeletExpandsThem(t *testing.T) {
	const env = `          envFrom: ENVFROM
          env:
            - {name: A, value: one}
            - {name: B, value: "$(A)-$(C)-$$(A)"}
            - {name: C, value: later}
            - {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
            - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
            - {name: MAP, valueFrom: {configMapKeyRef: {name: settings, key: k}}}
            - {name: OF_MAP, value: "x$(MAP)"}
            - {name: KEY, valueFrom: {secretKeyRef: {name: token, key: k}}}
`
	for arg, test := range map[string]struct{ envFrom, want, missing string }{
		"--x=$(A)":                {want: "--x=one"},
		"--x=$(B)":                {want: "--x=one-$(C)-$(A)"},
		"--x=$(NS)":               {want: "--x=storage"},
		"--x=$$(A)":               {want: "--x=$(A)"},
		"--x=$(NOBODY)":           {want: "--x=$(NOBODY)"},
		"--x=$(NODE)":             {want: "--x=$(NODE)", missing: "field spec.nodeName of the Pod"},
		"--x=$(MAP)":              {want: "--x=$(MAP)", missing: "$(MAP), from ConfigMap settings"},
		"--x=$(OF_MAP)":           {want: "--x=$(OF_MAP)", missing: "$(OF_MAP), from ConfigMap settings"},
		"--x=$(KEY)":              {want: "--x=$(KEY)", missing: "Secret token"},
		"--x=$(FROM)":             {envFrom: "[{configMapRef: {name: all}}]", want: "--x=$(FROM)", missing: "ConfigMap all"},
		"--x=$(API_SERVICE_HOST)": {want: "--x=$(API_SERVICE_HOST)", missing: "a Service"},
	} {
		t.Run(arg, func(t *testing.T) {
			from := test.envFrom
			if from == "" {
				from = "[]"
			}
			text := changed(t, "--leader-election,", "--leader-election, "+arg+",", "          image: registry.k8s.io", strings.Replace(env, "ENVFROM", from, 1)+"          image: registry.k8s.io")
			var got []string
			_, err := adopt.Find(read(t, text), "default", func(args []string) (adopt.Flags, error) {
				got = args
				return simpleFlags(args)
			})
			if err != nil || got[2] != test.want {
				t.Errorf("%q: %v, want %q", got, err, test.want)
			}
			notes := strings.Join(onlyPlan(t, text, adopt.Options{}).Notes, "\n")
			if strings.Contains(notes, "are not in the manifest") != (test.missing != "") || !strings.Contains(notes, test.missing) {
				t.Errorf("the notes are %q, want %q", notes, test.missing)
			}
		})
	}
}

func TestAValueThatMattersMustBeInTheManifest(t *testing.T) {
	for _, flag := range []string{"--csi-address", "--leader-election-namespace", "--timeout"} {
		text := changed(t, "--csi-address=/csi/csi.sock, ", "", "--timeout=1m, ", "", "--leader-election,", "--leader-election, "+flag+"=$(X),",
			"          image: registry.k8s.io", "          env: [{name: X, valueFrom: {configMapKeyRef: {name: settings, key: x}}}]\n          image: registry.k8s.io")
		_, err := adopt.Find(read(t, text), "default", simpleFlags)
		want := fmt.Sprintf("file.yaml: document 1 (Deployment controller): spec.template.spec.containers[1] (container csi-attacher): args: %s: the value is not in the manifest, write it there: $(X), from ConfigMap settings", flag)
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v\nwant %s", flag, err, want)
		}
	}
}

func TestAContainerIsAnAttacherByImageCommandOrNameAndFlag(t *testing.T) {
	for text, want := range map[string]bool{
		"image: quay.io/k8scsi/csi-attacher:v3":                                       true,
		"image: 'example.com:5000/mirror-csi-attacher@sha256:abc'":                    true,
		"image: quay.io/openshift/ose-csi-external-attacher:v4":                       true,
		"image: example.com/csi-attacher-rhel9:v4":                                    true,
		"{image: all-sidecars, command: [/bin/csi-attacher]}":                         true,
		"{image: all-sidecars, name: my-attacher, args: [-csi-address=/a]}":           true,
		"{image: all-sidecars, name: my-attacher, args: [--csi-address, /a]}":         true,
		"{image: all-sidecars, name: attacher}":                                       false,
		"image: example.com/csi-attacherless:v1":                                      false,
		"{image: csi-provisioner, name: csi-provisioner, args: [--csi-address=/csi]}": false,
	} {
		text = strings.TrimSuffix(strings.TrimPrefix(text, "{"), "}")
		text = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {template: {spec: {containers: [{" + text + "}]}}}}"
		attachers, err := adopt.Find(read(t, text), "default", simpleFlags)
		if err != nil || len(attachers) == 1 != want {
			t.Errorf("%s: %d csi-attachers, %v; want %v", text, len(attachers), err, want)
		}
	}
}
