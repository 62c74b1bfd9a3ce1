package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

const adoptData = "../../internal/adopt/testdata/"

// The manifests are in the shape of real drivers. Each golden file has all that is decided about one of them.
func TestDecisionsAboutEveryManifest(t *testing.T) {
	files, err := filepath.Glob(adoptData + "manifests/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("there are no manifests", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			golden := adoptData + "decisions/" + name + ".golden"
			got := decisions(t, file)
			if *update {
				write(t, golden, got)
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s; run with -update if the new decisions are right (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// decisions returns what is decided about a manifest in each mode.
func decisions(t *testing.T, file string) string {
	t.Helper()
	content, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	objects, err := adopt.Read(filepath.Base(file), content)
	if err != nil {
		t.Fatal(err)
	}
	attachers, err := adopt.Find(objects, "default", sidecarFlags)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, mode := range adopt.Modes {
		o := adopt.Options{Mode: mode, Image: "example.com/csi-attach-hub:v1", Namespace: "default"}
		for _, p := range adopt.NewPlans(attachers, objects, o) {
			if mode == adopt.ModeProxy {
				writeFacts(&b, p)
			}
			verdict := "yes"
			if !p.Adoptable() {
				verdict = "no"
			}
			fmt.Fprintf(&b, "%s, container %s: %s\n", mode, p.Container.Name, verdict)
			for _, no := range p.No {
				fmt.Fprintf(&b, "  no: %s\n", no)
			}
			for _, note := range p.Notes {
				fmt.Fprintf(&b, "  note: %s\n", note)
			}
		}
	}
	return b.String()
}

func writeFacts(b *strings.Builder, p adopt.Plan) {
	fact := func(what, format string, args ...any) {
		fmt.Fprintf(b, "  %-10s "+format+"\n", append([]any{what}, args...)...)
	}
	id := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	fmt.Fprintf(b, "%s\n", p.Attacher)
	fact("path", "%s", p.Path)
	fact("driver", "%s", p.Driver)
	fact("name from", "%s", p.NameFrom)
	fact("socket", "%s, volume %s", p.Socket.Path, p.Socket.Volume.Name)
	fact("user", "%s:%s, fsGroup %s, non-root %v, privileged %v", id(p.User.UID), id(p.User.GID), id(p.User.FSGroup), p.User.NonRoot, p.User.Privileged)
	fact("ports", "%d, %d, host network %v", p.Ports.Listen, p.Ports.Health, p.HostNetwork())
	fact("lease", "namespace %s, wait %s, leader election %v", p.LeaseNamespace(), p.LeaseWait(), p.Flags.LeaderElection)
	fact("replicas", "%d", p.Workload.Replicas)
	for _, s := range p.Secrets {
		fact("secret", "%s", s)
	}
	for _, s := range p.Flags.Settings {
		fact("setting", "%s: %s (%s)", s.Key, s.Value, s.Flag)
	}
	for _, o := range p.Flags.Other {
		fact("other", "%s: %s", o.Flag, o.Why)
	}
	for _, u := range p.Flags.Unknown {
		fact("unknown", "%s", u)
	}
}
