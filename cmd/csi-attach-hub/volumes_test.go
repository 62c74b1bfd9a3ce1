package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// someVolumes are VolumeAttachments in several states.
func someVolumes() []status.Attachment {
	since := time.Now().Add(-time.Hour)
	volume := func(name string, s status.AttachmentState, h status.HealthState, claim string) status.Attachment {
		return status.Attachment{Name: name, Driver: "d.example.com", Node: "node-1", PersistentVolume: "pv-" + name, Claim: claim, State: s, Since: since, Health: status.Health{State: h}}
	}
	stray := volume("stray", status.Unserved, status.Broken, "")
	stray.Driver, stray.Operation = "stray.example.com", status.Attach
	other := volume("other-node", status.Failing, status.Attention, "shop/other")
	other.Node = "node-2"
	recreated := volume("recreated", status.Attached, status.Attention, "zoo/r")
	recreated.Node = "node-3"
	return []status.Attachment{volume("attached", status.Attached, status.Fine, "shop/a"), volume("new", status.Waiting, status.Fine, "bank/new"), other,
		volume("failing", status.Failing, status.Attention, "bank/failing"), volume("stuck", status.Stuck, status.Broken, "shop/stuck"), volume("idle", status.Idle, status.Fine, ""), stray, recreated}
}

func TestVolumesListsWhatItsFlagsSelect(t *testing.T) {
	server := fakeHub(t, status.Broken, someVolumes()...)
	for args, want := range map[string]string{
		"":                                   "stray stuck failing other-node recreated new",
		"--all":                              "stray stuck failing other-node recreated new attached idle",
		"--state stuck,failing":              "stuck failing other-node",
		"--state attached":                   "recreated attached",
		"--driver d.example.com":             "stuck failing other-node recreated new",
		"--health broken":                    "stray stuck",
		"--health broken,fine":               "stray stuck new attached idle",
		"--state waiting --health attention": "",
		"--driver stray.example.com":         "stray",
		"--driver d.example.com --all":       "stuck failing other-node recreated new attached idle",
		"--node node-2":                      "other-node",
		"-n bank":                            "failing new",
		"-n bank --state failing":            "failing",
	} {
		out, problems, code := runHere(append([]string{"volumes", "--server", server, "-o", "name"}, strings.Fields(args)...)...)
		got := strings.ReplaceAll(strings.Join(strings.Fields(out), " "), "volumeattachment/", "")
		if code != 0 || got != want || (want == "") != strings.Contains(problems, "No volume matches") {
			t.Errorf("%s: exit code %d, listed %q, want %q; stderr %q", args, code, got, want, problems)
		}
	}
	out, problems, code := runHere("volumes", "--server", server, "--driver", "e.example.com")
	if code != exitUsage || out != "" || !strings.Contains(problems, `"e.example.com"`) || !strings.Contains(problems, "csi-attach-hub status lists") {
		t.Errorf("a driver that is not there: exit code %d, stdout %q, stderr %q", code, out, problems)
	}
}

func TestVolumesHasSeveralOutputs(t *testing.T) {
	all := someVolumes()
	all[4].Call, all[4].LastError = status.Call{Method: "ControllerPublishVolume", Since: time.Now()}, "\x1b[31mno"
	server := fakeHub(t, status.Broken, all...)
	ask := func(args ...string) string {
		out, problems, code := runHere(append([]string{"volumes", "--server", server}, args...)...)
		if code != 0 || problems != "" || strings.Contains(out, "\x1b") {
			t.Errorf("%v: exit code %d, stderr %q, stdout:\n%s", args, code, problems, out)
		}
		return out
	}
	if out := ask(); !strings.HasPrefix(out, "CLAIM ") || strings.Contains(out, "VOLUMEATTACHMENT") || strings.Count(out, "\n") != 7 {
		t.Errorf("the table is\n%s", out)
	}
	for flags, want := range map[string]string{"": "No volume waits or is in trouble.\n", "--node n": "No volume matches.\n"} {
		args := append([]string{"volumes", "--server", fakeHub(t, status.Fine)}, strings.Fields(flags)...)
		if out, text, code := runHere(args...); out != "" || text != want || code != 0 {
			t.Errorf("without a volume, %q: exit code %d, stdout %q, stderr %q", flags, code, out, text)
		}
	}
	if out := ask("-o", "wide"); !strings.Contains(out, "VOLUMEATTACHMENT") || !strings.Contains(out, "HANDLE") {
		t.Errorf("the wide table is\n%s", out)
	}
	var list struct {
		AsOf    time.Time
		Volumes []status.Attachment
	}
	if err := json.Unmarshal([]byte(ask("-o", "json")), &list); err != nil || len(list.Volumes) != 6 || list.Volumes[1].Name != "stuck" || list.Volumes[1].LastError != "\x1b[31mno" || list.AsOf.IsZero() {
		t.Errorf("%v: the JSON is %+v", err, list)
	}
	if err := json.Unmarshal([]byte(ask("-o", "json", "--node", "no-such")), &list); err != nil || list.Volumes == nil || len(list.Volumes) != 0 {
		t.Errorf("%v: the JSON of none is %+v", err, list)
	}
}

// podsOf serves the Pods of nodes: Pod "NODE-web" in namespace shop with claim "data", and one that has ended.
func podsOf(t *testing.T, refuse bool) (config *rest.Config, asked func() []string) {
	t.Helper()
	nodes := make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		node := strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "spec.nodeName=")
		nodes <- node
		if refuse {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		claim := corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}
		scratch := corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}
		pod := func(name string, phase corev1.PodPhase) corev1.Pod {
			return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{claim, scratch}}, Status: corev1.PodStatus{Phase: phase}}
		}
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{pod(node+"-job", corev1.PodSucceeded), pod(node+"-web", corev1.PodRunning)}}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL}, func() []string {
		close(nodes)
		var all []string
		for node := range nodes {
			all = append(all, node)
		}
		slices.Sort(all)
		return all
	}
}

func TestPodsAreLookedUpOnTheNodesOfTheirVolumes(t *testing.T) {
	config, asked := podsOf(t, false)
	all := []status.Attachment{
		{Node: "a", Claim: "shop/data"}, {Node: "b", Claim: "shop/data"}, {Node: "a", Claim: "shop/a-web-scratch"}, {Node: "a", Claim: "bank/data"}, {Node: "d"},
	}
	if err := addPods(t.Context(), config, all); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range all {
		got = append(got, strings.Join(a.Pods, ","))
	}
	if want := []string{"shop/a-web", "shop/b-web", "shop/a-web", "", ""}; !slices.Equal(got, want) {
		t.Errorf("the Pods are %q, want %q", got, want)
	}
	if got := asked(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("asked for the nodes %q, want a and b once", got)
	}
}

func TestFewNodesAreAskedForTheirPods(t *testing.T) {
	config, asked := podsOf(t, false)
	var all []status.Attachment
	for i := range 1000 {
		all = append(all, status.Attachment{Node: fmt.Sprintf("node-%03d", i), Claim: "shop/data"})
	}
	if err := addPods(t.Context(), config, all); err != nil {
		t.Fatal(err)
	}
	if got := asked(); len(got) != mostPodNodes || all[0].Pods == nil || all[mostPodNodes].Pods != nil {
		t.Errorf("asked for %d nodes, want the first %d", len(got), mostPodNodes)
	}
}

func TestWithoutTheRightToListPodsTheClaimsAreShown(t *testing.T) {
	config, _ := podsOf(t, true)
	all := []status.Attachment{{Node: "a", Claim: "shop/data"}}
	if err := addPods(t.Context(), config, all); err == nil || !strings.Contains(err.Error(), "Pods of node a") {
		t.Errorf("the error is %v", err)
	}
	if all[0].Pods != nil {
		t.Errorf("the Pods are %q", all[0].Pods)
	}
}
