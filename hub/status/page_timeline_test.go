package status

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestThePageShowsWhatAnAttachWaitsForAndWhatComesNext(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	waiting := courseFrom(now.Add(-time.Minute)).instant(StepCreated, "").instant(StepSeen, "").instant(StepWaited, "a worker of the driver").steps
	answered := waitedForWorker(now.Add(-52 * time.Second)).steps
	for _, tt := range []struct {
		name string
		a    Attachment
		want []string // the last events
	}{
		{"it waits", Attachment{State: Waiting, Operation: Attach, Steps: waiting},
			[]string{"now waits for a worker of the driver 60s", "next Next: write the finalizers, call ControllerPublishVolume, then write the status"}},
		{"the finalizer is written", Attachment{State: Waiting, Operation: Attach, Finalizer: true, Steps: waiting},
			[]string{"now waits for a worker of the driver 60s", "next Next: call ControllerPublishVolume, then write the status"}},
		{"a detach waits", Attachment{State: Waiting, Operation: Detach, Finalizer: true, Steps: waiting},
			[]string{"now waits for a worker of the driver 60s", "next Next: call ControllerUnpublishVolume, then remove the finalizer"}},
		{"the driver is called", Attachment{State: Attaching, Operation: Attach, Finalizer: true, Steps: courseFrom(now.Add(-time.Minute)).instant(StepCalled, "ControllerPublishVolume").steps},
			[]string{"now calls ControllerPublishVolume 60s", "next Next: write to the status that the volume is attached"}},
		{"the driver has answered", Attachment{State: Attaching, Operation: Attach, Since: now.Add(-52 * time.Second), Steps: answered[:5]},
			[]string{"done called ControllerPublishVolume 10s", "now Now: attaching for 52s", "next Next: write to the status that the volume is attached"}},
		{"a detach is called", Attachment{State: Detaching, Operation: Detach, Steps: courseFrom(now.Add(-time.Minute)).instant(StepCalled, "ControllerUnpublishVolume").steps},
			[]string{"now calls ControllerUnpublishVolume 60s", "next Next: remove the finalizer, then the VolumeAttachment is gone"}},
		{"the last try has failed", Attachment{State: Failing, Operation: Attach, Tries: 3, NextTry: now.Add(time.Second), Steps: retried(now.Add(-time.Minute), 3, "busy").steps},
			[]string{"failed called ControllerPublishVolume, which failed 3 times: 6s in the tries, 3s between them 9s", "done wrote the error to the status 20ms", "now waits for the next try 50s", "next 3rd retry"}},
		{"it is attached", Attachment{State: Attached, Node: "n", Steps: answered}, []string{"done attached", "now Now: attached to node n"}},
		{"a detach begins", Attachment{State: Waiting, Operation: Detach, Since: now.Add(-time.Minute), Steps: waiting[:1]},
			[]string{"done VolumeAttachment marked for deletion", "now Now: waiting for 60s", "next Next: call ControllerUnpublishVolume, then remove the finalizer"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			events := newPageTimeline(DiagnosisInput{Attachment: tt.a, Now: now}).Events
			for i, want := range tt.want {
				e := events[len(events)-len(tt.want)+i]
				if got := strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Kind, e.What, e.Length)); got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
}

func TestABarIsAsLongAsItsShareOfTheTime(t *testing.T) {
	now := time.Date(2026, 3, 4, 3, 0, 0, 0, time.UTC)
	p := newPageTimeline(DiagnosisInput{Attachment: Attachment{Steps: waitedForWorker(now).steps}, Now: now.Add(time.Hour)})
	var got []string
	for _, e := range p.Events {
		if e.Bar != nil {
			got = append(got, fmt.Sprint(*e.Bar))
		}
	}
	if want := "{waited 0 788} {other 788 4} {called 789 210} {other 996 4}"; strings.Join(got, " ") != want {
		t.Errorf("got %s, want %s", strings.Join(got, " "), want)
	}
}

func TestWithoutStepsThePageShowsWhatTheObjectShows(t *testing.T) {
	h := newTroubledHub(time.Now())
	u := startServer(t, h)
	for name, want := range map[string]bool{vaName(1000): false, vaName(2000): true} {
		_, _, body := get(t, u+"/attachments/"+name)
		if got := strings.Contains(body, `class="timeline measured"`); got != want || !strings.Contains(body, "VolumeAttachment created") {
			t.Errorf("%s: measured is %t, want %t", name, got, want)
		}
	}
}

// A driver that fails for days must not make a page of megabytes.
func TestThePageOfManyLongStepsStaysSmall(t *testing.T) {
	h := newFakeHub()
	c := courseFrom(time.Now().Add(-time.Hour))
	for i := range 10000 {
		c.took(StepCalled, fmt.Sprint(i, strings.Repeat(hostile, 50)), time.Millisecond, strings.Repeat(hostile, 50))
	}
	h.attachments["a"] = Attachment{Name: "a", Driver: "d", Node: "n", State: Failing, Operation: Attach, Steps: c.steps}
	_, _, body := get(t, startServer(t, h)+"/attachments/a")
	if len(body) > 150<<10 || !strings.Contains(body, "left out: ") {
		t.Errorf("the page has %d bytes", len(body))
	}
	checkElements(t, "/attachments/a", body)
}

func TestTheTimelineIsReadableOnAPhone(t *testing.T) {
	b := openTab(t, newTroubledHub(time.Now()))
	for _, name := range []string{vaName(2000), vaName(4000), vaName(9000), vaName(4100)} {
		b.open("/attachments/" + name)
		for _, scheme := range []string{"light", "dark"} {
			b.look(scheme)
			b.size(390, 1000, true)
			for _, bad := range append(ask[[]string](b, tooWide), ask[[]string](b, poorContrast)...) {
				t.Errorf("%s in %s: %s", name, scheme, bad)
			}
			for _, narrow := range ask[[]string](b, `[...document.querySelectorAll('.measured .what')].filter((e) => e.offsetWidth < 200).map((e) => e.offsetWidth + ': ' + e.innerText)`) {
				t.Errorf("%s in %s: a step is too narrow to read: %s", name, scheme, narrow)
			}
			// Bars have to be seen: 3 is what WCAG asks for graphics.
			for _, pale := range ask[[]string](b, paleBars) {
				t.Errorf("%s in %s: %s", name, scheme, pale)
			}
		}
	}
}

// paleBars lists the bars whose contrast with their track is below 3.
const paleBars = `(() => {
  const light = (color) => color.match(/[\d.]+/g).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  return [...document.querySelectorAll('.share')].map((s) => {
    const [a, b] = [...s.querySelectorAll('rect')].map((r) => light(getComputedStyle(r).fill)).sort((x, y) => y - x);
    return [(a + 0.05) / (b + 0.05), s.querySelectorAll('rect')[1].getAttribute('class')];
  }).filter(([contrast]) => contrast < 3).map(([contrast, kind]) => 'bar ' + kind + ' has contrast ' + contrast.toFixed(1));
})()`
