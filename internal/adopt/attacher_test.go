package adopt

import (
	"fmt"
	"strings"
	"testing"
)

func TestArgumentsAsTheKubeletExpandsThem(t *testing.T) {
	const env = `          env:
            - {name: A, value: one}
            - {name: B, value: "$(A)-$(C)-$$(A)"}
            - {name: C, value: later}
            - {name: NS, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}
            - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
            - {name: MAP, valueFrom: {configMapKeyRef: {name: settings, key: k}}}
            - {name: OF_MAP, value: "x$(MAP)"}
            - {name: KEY, valueFrom: {secretKeyRef: {name: token, key: k}}}
`
	for arg, want := range map[string]string{
		"--x=$(A)":                "--x=one",
		"--x=$(B)":                "--x=one-$(C)-$(A)",
		"--x=$(NS)":               "--x=storage",
		"--x=$$(A)":               "--x=$(A)",
		"--x=$(NOBODY)":           "--x=$(NOBODY)",
		"--x=$(NODE)":             "--x=$(NODE)",
		"--x=$(MAP)":              "--x=$(MAP)",
		"--x=$(OF_MAP)":           "--x=x$(MAP)",
		"--x=$(KEY)":              "--x=$(KEY)",
		"--x=$(FROM)":             "--x=$(FROM)",
		"--x=$(API_SERVICE_HOST)": "--x=$(API_SERVICE_HOST)",
	} {
		t.Run(arg, func(t *testing.T) {
			text := changed(t, "--leader-election,", "--leader-election, "+arg+",", "          image: registry.k8s.io", env+"          image: registry.k8s.io")
			var got []string
			_, err := Find(read(t, text), "default", func(args []string) (Flags, error) {
				got = args
				return plainFlags(args)
			})
			if err != nil || got[2] != want {
				t.Errorf("%q: %v, want %q", got, err, want)
			}
		})
	}
}

func TestAValueThatMattersMustBeInTheManifest(t *testing.T) {
	for _, flag := range []string{"--csi-address", "--leader-election-namespace", "--timeout"} {
		text := changed(t, "--csi-address=/csi/csi.sock, ", "", "--timeout=1m, ", "", "--leader-election,", "--leader-election, "+flag+"=$(X),",
			"          image: registry.k8s.io", "          env: [{name: X, valueFrom: {configMapKeyRef: {name: settings, key: x}}}]\n          image: registry.k8s.io")
		_, err := Find(read(t, text), "default", plainFlags)
		want := fmt.Sprintf("file.yaml: document 1 (Deployment controller): spec.template.spec.containers[1] (container csi-attacher): args: %s: the value is not in the manifest, write it there: $(X)", flag)
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
		attachers, err := Find(read(t, text), "default", plainFlags)
		if err != nil || len(attachers) == 1 != want {
			t.Errorf("%s: %d csi-attachers, %v; want %v", text, len(attachers), err, want)
		}
	}
}

func TestTheSocketIsInTheDeepestVolume(t *testing.T) {
	mounts := func(list string) []string {
		return []string{"--kube-api-qps=9]\n          volumeMounts: [{name: sockets, mountPath: /csi}]", "--kube-api-qps=9]\n          volumeMounts: [" + list + "]",
			"        - name: sockets\n", "        - name: others\n          emptyDir: {}\n        - name: sockets\n"}
	}
	for list, want := range map[string]string{
		"{name: sockets, mountPath: /csi/}, {name: others, mountPath: /}":         "sockets",
		"{name: others, mountPath: /}, {name: sockets, mountPath: /csi}":          "sockets",
		"{name: others, mountPath: /cs}, {name: sockets, mountPath: /csi}":        "sockets",
		"{name: others, mountPath: /csi/other}, {name: sockets, mountPath: /}":    "sockets",
		"{name: sockets, mountPath: /}, {name: others, mountPath: /csi/csi.sock}": "others",
	} {
		if p := onlyPlan(t, changed(t, mounts(list)...), Options{}); p.Socket.Volume.Name != want {
			t.Errorf("%s: volume %s, want %s", list, p.Socket.Volume.Name, want)
		}
	}
}

func TestAddressesOfSockets(t *testing.T) {
	for address, want := range map[string]string{"/csi/csi.sock": "/csi/csi.sock", "unix:///csi/csi.sock": "/csi/csi.sock", "unix:/csi/csi.sock": "/csi/csi.sock", "/csi//a/../csi.sock": "/csi/csi.sock"} {
		if p := onlyPlan(t, changed(t, "=/csi/csi.sock", "="+address), Options{}); p.Socket.Path != want || !p.Adoptable() {
			t.Errorf("%s: %s, reasons %q", address, p.Socket.Path, p.No)
		}
	}
	p := onlyPlan(t, changed(t, "--csi-address=/csi/csi.sock, ", "", "mountPath: /csi", "mountPath: /run/csi"), Options{})
	if p.Socket.Path != "/run/csi/socket" || !p.Adoptable() {
		t.Errorf("without --csi-address: %s, reasons %q", p.Socket.Path, p.No)
	}
}
