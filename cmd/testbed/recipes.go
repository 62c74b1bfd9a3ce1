package main

import (
	"fmt"
	"strings"
)

// recipe is something to try in the sandbox. All lines are commands for a shell that has sourced the env file.
type recipe struct {
	title string
	do    []string // what to type
	look  []string // where the effect shows
	back  []string // the way back
}

// recipes returns what to try with these drivers. The drivers are those of behaviours.
func recipes() []recipe {
	explain := func(pod string) []string {
		return []string{"csi-attach-hub status --server $HUB", "csi-attach-hub explain --server $HUB pod/default/" + pod}
	}
	knobs := func(driver, json string) string { return fmt.Sprintf("testbed sandbox knobs %s '%s'", driver, json) }
	add := func(pod string) string { return "testbed sandbox add " + pod }
	remove := func(pod string) string { return "testbed sandbox remove " + pod }
	mode := func(driver, from, to string) string {
		return fmt.Sprintf("sed -i.bak '/name: %s/s/mode: %s/mode: %s/' $DRIVERS_YAML", driver, from, to)
	}
	return []recipe{
		{
			title: "Make a driver hang: it gets calls and answers none",
			do:    []string{knobs("fast", `{"hang":[{"method":"ControllerPublishVolume"}]}`), add("fast-hung")},
			look:  explain("fast-hung"),
			back:  []string{knobs("fast", `{"releaseAll":true}`), remove("fast-hung")},
		},
		{
			title: fmt.Sprintf("Make a volume stuck: it fails for longer than stuckAfter, which is %v here", sandboxStuckAfter),
			do:    []string{knobs("flaky", `{"fail":[{"method":"ControllerPublishVolume","volume":"flaky-stuck","code":"INTERNAL"}]}`), add("flaky-stuck")},
			look:  explain("flaky-stuck"),
			back:  []string{knobs("flaky", `{"clearFaults":true}`), remove("flaky-stuck")},
		},
		{
			title: "Make a driver fail",
			do:    []string{knobs("slow", `{"fail":[{"method":"ControllerPublishVolume","code":"INTERNAL"}]}`), add("slow-failing")},
			look:  explain("slow-failing"),
			back:  []string{knobs("slow", `{"clearFaults":true}`), remove("slow-failing")},
		},
		{
			title: "Fill the nodes of a driver: it answers ResourceExhausted",
			do:    []string{knobs("fast", `{"maxVolumesPerNode":1}`), add("fast-toomany")},
			look:  explain("fast-toomany"),
			back:  []string{knobs("fast", `{"maxVolumesPerNode":0}`), remove("fast-toomany")},
		},
		{
			title: "Kill a driver, and restart it",
			do:    []string{"testbed sandbox kill fast", add("fast-waiting")},
			look:  explain("fast-waiting"),
			back:  []string{"testbed sandbox start fast", remove("fast-waiting")},
		},
		{
			title: "Pause a driver: the hub keeps its connection and takes no work",
			do:    []string{mode("fast", "active", "paused"), add("fast-paused")},
			look:  explain("fast-paused"),
			back:  []string{mode("fast", "paused", "active"), remove("fast-paused")},
		},
		{
			title: "Put a driver into observe: the hub only says what it would do",
			do:    []string{mode("slow", "active", "observe"), add("slow-observed")},
			look:  explain("slow-observed"),
			back:  []string{mode("slow", "observe", "active"), remove("slow-observed")},
		},
		{
			title: "Start a second hub: the hubs share the drivers, and each is a standby for the other",
			do:    []string{"testbed sandbox start hub-2"},
			look:  []string{"csi-attach-hub status --server $HUB2"},
			back:  []string{"testbed sandbox stop hub-2"},
		},
		{
			title: "Kill a hub: the second one takes over its drivers when their leases run out, after 15s",
			do:    []string{"testbed sandbox start hub-2", "testbed sandbox kill hub"},
			look:  []string{"csi-attach-hub status --server $HUB2"},
			back:  []string{"testbed sandbox start hub", "testbed sandbox stop hub-2"},
		},
	}
}

// guide returns a text for the user: where everything is and what to try.
func (b *sandbox) guide() string {
	var t strings.Builder
	fmt.Fprintf(&t, `
%d Pods on %d nodes, each with a claim and a volume of one of %d drivers.
There is no kubelet, so Pods stay Pending even when their volumes are attached.

`, b.opts.pods, b.opts.nodes, len(b.running))
	for _, p := range b.running {
		fmt.Fprintf(&t, "  %-28s  %s\n", p.driver(), p.does)
	}
	fmt.Fprintf(&t, `
  status page   %s/
  drivers.yaml  %s
  hub's log     %s

In another terminal, read the variables and the programs of this sandbox first:

  source %s

`, b.hub.URL, b.ConfigPath(), b.hub.LogPath(), b.envPath())
	for _, r := range recipes() {
		fmt.Fprintf(&t, "%s\n", r.title)
		block(&t, "", r.do)
		block(&t, "Look", r.look)
		block(&t, "Back", r.back)
	}
	fmt.Fprintf(&t, `More:
  testbed sandbox --help                                 what else can be done
  curl --unix-socket $FAST_CONTROL http://driver/books   a driver's books: attachments, calls, violations
  kubectl get pods,pvc,volumeattachments,leases          the cluster

Attach a volume by hand; the hub reports it within a minute or two as one where no VolumeAttachment asks for it:
  write "drift: {interval: 10s}" into the entry of fast.demo.csi.example.com in $DRIVERS_YAML
  testbed sandbox knobs fast '{"gainAttachments":[{"volume":"fast-1","node":"id-of-node-3"}]}'
  csi-attach-hub explain --server $HUB pv/fast-1
 Back:
  testbed sandbox knobs fast '{"loseAttachments":[{"volume":"fast-1","node":"id-of-node-3"}]}'
  take the drift out of $DRIVERS_YAML

Ctrl-C here stops everything and removes the folder.
`)
	return t.String()
}

// block writes commands, each on a line of its own, with a heading if there is one.
func block(t *strings.Builder, heading string, commands []string) {
	if heading != "" {
		fmt.Fprintf(t, " %s:\n", heading)
	}
	for _, c := range commands {
		fmt.Fprintf(t, "  %s\n", c)
	}
	if heading == "Back" {
		t.WriteString("\n")
	}
}
