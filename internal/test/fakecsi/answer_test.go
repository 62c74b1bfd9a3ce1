package fakecsi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// postKnobs posts knobs as a user does, and returns the answer.
func postKnobs(t *testing.T, b *Backend, body string) (int, string) {
	t.Helper()
	r := httptest.NewRecorder()
	Control(b).ServeHTTP(r, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/knobs", strings.NewReader(body)))
	return r.Code, strings.TrimSuffix(r.Body.String(), "\n")
}

func TestKnobsAnswerWhatTheyChanged(t *testing.T) {
	b := newBackend(t, Options{Name: "ebs.csi.example"})
	publish(t.Context(), b, "v", "n1", rwo)
	for _, c := range []struct{ body, want string }{
		{`{"hang":[{"method":"ControllerPublishVolume"}]}`, "ControllerPublishVolume now hangs; 0 calls in flight"},
		{`{"hang":[{"method":"ControllerPublishVolume","volume":"v","node":"n1","afterEffect":true}]}`,
			"ControllerPublishVolume of volume v on n1 now changes the storage and then hangs; 0 calls in flight"},
		{`{"release":[{"method":"ControllerPublishVolume"}]}`, "ControllerPublishVolume released; 0 calls in flight"},
		{`{"releaseAll":true}`, "all hangs released; 0 calls in flight"},
		{`{"fail":[{"method":"ControllerPublishVolume","code":"INTERNAL"}]}`, "ControllerPublishVolume now fails with Internal, until clearFaults"},
		{`{"fail":[{"code":"UNAVAILABLE","count":1,"afterEffect":true}]}`, "every method now fails with Unavailable after it has changed the storage, for 1 call"},
		{`{"clearFaults":true}`, "all faults cleared"},
		{`{"latency":{"":{"base":"1s"},"Probe":{"base":"1s","jitter":"2s"}}}`, "each other method now takes 1s\nebs.csi.example: Probe now takes 1s to 3s"},
		{`{"maxVolumesPerNode":1}`, "ControllerPublishVolume now answers ResourceExhausted from 1 volume per node on; 1 node at the limit"},
		{`{"maxVolumesPerNode":0}`, "no limit of volumes per node"},
		{`{"notReady":true}`, "Probe now answers ready=false"},
		{`{"finishAbandoned":true}`, "new calls run to their end when their caller leaves"},
		{`{"finishAbandoned":false}`, "new calls end without effect when their caller leaves"},
		{`{"capabilities":[]}`, "capabilities are now none"},
		{`{"publishContext":{"secret":"hidden","a":"b"}}`, "a publish now returns a context with the keys [a, secret]"},
		{`{"loseAttachments":[{"volume":"v"}]}`, "volume v detached from all nodes without a call"},
		{`{"loseVolumes":["v"]}`, "volume v removed from the storage"},
		{`{"gainVolumes":["w"]}`, "volume w added to the storage"},
		{`{"gainAttachments":[{"volume":"w","node":"n2"}]}`, "volume w attached to n2 without a call"},
		{`{}`, "nothing changed; the knobs are capabilities, clearFaults, fail, "},
	} {
		code, got := postKnobs(t, b, c.body)
		if code != http.StatusOK || !strings.HasPrefix(got, "ebs.csi.example: "+c.want) {
			t.Errorf("%s: got %d %q, want %q", c.body, code, got, c.want)
		}
	}
	if _, got := postKnobs(t, b, `{"name":"other.example"}`); got != "other.example: the driver now calls itself other.example instead of ebs.csi.example" {
		t.Errorf("a new name: got %q", got)
	}
}

func TestAnswerOfAHangCountsTheCallsInFlight(t *testing.T) {
	ctx := testContext(t)
	b := newBackend(t, Options{Name: "ebs.csi.example"})
	if err := b.Set(Knobs{Hang: []Hang{{Method: ControllerPublishVolume}}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		publish(ctx, b, "v", "n1", rwo)
	}()
	if err := b.Wait(ctx, func(books Books) bool { return books.AttachInFlight.Now == 1 }); err != nil {
		t.Fatal(err)
	}
	if _, got := postKnobs(t, b, `{"releaseAll":true}`); got != "ebs.csi.example: all hangs released; 1 call in flight" {
		t.Errorf("got %q", got)
	}
	<-done
}

func TestUnknownKnobsGetOneErrorWithTheValidOnes(t *testing.T) {
	b := newBackend(t, Options{})
	for _, c := range []struct{ body, want string }{
		{`{"hangs":[]}`, `unknown knob "hangs": choose from capabilities, clearFaults, fail, finishAbandoned, `},
		{`{"hang":[{"metod":"Probe"}]}`, `knob "hang": unknown field "metod": choose from afterEffect, method, node, volume`},
		{`{"hang":[{"method":"Fly"}]}`, `hang: unknown method "Fly": choose from Probe, `},
		{`{"fail":[{"code":"SOMETIMES"}]}`, `invalid code: "\"SOMETIMES\"": choose from CANCELLED, UNKNOWN, `},
		{`{"latency":{"Probe":{"bas":"1s"}}}`, `knob "latency": unknown field "bas": choose from base, jitter`},
		{`{"latency":{"Probe":{"base":"1"}}}`, `write for example "1.5s"`},
		{`{"notReady":"yes"}`, `knob "notReady": JSON string does not fit the type bool`},
		{`{"maxVolumesPerNode":-1}`, `max volumes per node -1 is negative`},
		{`{"capabilities":["FLY"]}`, `unknown capability "FLY"`},
		{`{`, `write a JSON object such as {"releaseAll":true}`},
	} {
		code, got := postKnobs(t, b, c.body)
		if code != http.StatusBadRequest || !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s: got %d %q, want one line with %q", c.body, code, got, c.want)
		}
	}
	for _, name := range codeNames {
		if _, err := ParseKnobs([]byte(`{"fail":[{"code":"` + name + `"}]}`)); err != nil {
			t.Errorf("code %s is in the list of valid ones: %v", name, err)
		}
	}
}
