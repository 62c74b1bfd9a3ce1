package adopt_test

import (
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

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
		if p := onlyPlan(t, changed(t, mounts(list)...), adopt.Options{}); p.Socket.Volume.Name != want {
			t.Errorf("%s: volume %s, want %s", list, p.Socket.Volume.Name, want)
		}
	}
}

func TestAddressesOfSockets(t *testing.T) {
	for address, want := range map[string]string{"/csi/csi.sock": "/csi/csi.sock", "unix:///csi/csi.sock": "/csi/csi.sock", "unix:/csi/csi.sock": "/csi/csi.sock", "/csi//a/../csi.sock": "/csi/csi.sock"} {
		if p := onlyPlan(t, changed(t, "=/csi/csi.sock", "="+address), adopt.Options{}); p.Socket.Path != want || !p.Adoptable() {
			t.Errorf("%s: %s, reasons %q", address, p.Socket.Path, p.No)
		}
	}
	p := onlyPlan(t, changed(t, "--csi-address=/csi/csi.sock, ", "", "mountPath: /csi", "mountPath: /run/csi"), adopt.Options{})
	if p.Socket.Path != "/run/csi/socket" || !p.Adoptable() {
		t.Errorf("without --csi-address: %s, reasons %q", p.Socket.Path, p.No)
	}
}

func TestOnlyWhatLeadsToTheMetricsOfCSIAttacherIsNamed(t *testing.T) {
	text := changed(t, "--leader-election,", "--leader-election, '--http-endpoint=:8080',", "          image: registry.k8s.io", "          ports: [{name: http, containerPort: 8080}]\n          image: registry.k8s.io")
	notes := strings.Join(onlyPlan(t, text+scrapers, adopt.Options{}).Notes, "\n")
	if strings.Contains(notes, "port 81 of Service") || !strings.Contains(notes, "port 80 of Service") {
		t.Errorf("%s", notes)
	}
	// Two containers with one name for their ports: the name alone does not say whose is meant.
	both := strings.Replace(text, "image: example.com/driver:v1", "image: example.com/driver:v1\n          ports: [{name: http, containerPort: 9090}]", 1)
	if notes := strings.Join(onlyPlan(t, both+scrapers, adopt.Options{}).Notes, "\n"); strings.Contains(notes, "of Service") {
		t.Errorf("%s", notes)
	}
}
