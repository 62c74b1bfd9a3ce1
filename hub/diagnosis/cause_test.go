package diagnosis

import (
	"strings"
	"testing"
)

func TestParseTellsTheDriversWordsFromTheHubs(t *testing.T) {
	for _, tt := range []struct {
		text, code string
		want       Cause
		rest       string
	}{
		{"rpc error: code = Internal desc = array busy", "", Cause{BackendError, "Internal"}, "array busy"},
		{"rpc error: code = Unknown desc = array busy", "Internal", Cause{BackendError, "Internal"}, "array busy"},
		{"array busy", "Internal", Cause{BackendError, "Internal"}, "array busy"},
		{`rpc error: code = Internal desc = csinode "n" not found`, "", Cause{BackendError, "Internal"}, `csinode "n" not found`},
		{"rpc error: code = Internal desc = read secret a/b: forbidden\nin two lines", "", Cause{BackendError, "Internal"}, "read secret a/b: forbidden\nin two lines"},
		{"stuck: attach wanted since T, tried 4 times, the last error: rpc error: code = Aborted desc = pending", "", Cause{BackendError, "Aborted"}, "pending"},
		{"stuck: attach wanted since T, tried 4 times, the last error: the driver is not connected: refused", "", Cause{Verdict: CannotConnect}, "the driver is not connected: refused"},
		{`admission webhook "a" denied the request: failed calling webhook "b": x`, "", Cause{Verdict: AdmissionDenied}, `admission webhook "a" denied the request: failed calling webhook "b": x`},
		{"odd", "", Cause{}, "odd"},
	} {
		if got, rest := Parse(tt.text, tt.code); got != tt.want || rest != tt.rest {
			t.Errorf("%q with code %q: got %+v and %q, want %+v and %q", tt.text, tt.code, got, rest, tt.want, tt.rest)
		}
	}
}

func TestEveryCauseHasAnActionThatNamesItsObjects(t *testing.T) {
	causes := []Cause{{}, {BackendError, "Internal"}, {BackendError, "Code(77)"}}
	for verdict := range advice { // or a code
		causes = append(causes, Cause{Verdict: verdict}, Cause{BackendError, string(verdict)})
	}
	for _, row := range texts {
		if advice[row.verdict] == "" {
			t.Errorf("%s has no advice", row.verdict)
		}
	}
	for _, c := range causes {
		if got := c.Action("node-1", "pv-1", ""); !strings.HasSuffix(got, ".") || strings.Contains(got, "{") {
			t.Errorf("%+v: %q", c, got)
		}
	}
	if got := (Cause{Verdict: SecretForbidden}).Action("", "", "read secret ns/creds for the call: secrets is forbidden"); !strings.Contains(got, "get on secret ns/creds, and on no other") {
		t.Errorf("the secret is not named: %q", got)
	}
	for _, r := range refusals {
		verdict, action := ParseRefusal("dial: "+strings.ToUpper(r.words[0]), "tcp://d:1", "drivers.yaml:3")
		if verdict != r.verdict || action != strings.NewReplacer("{endpoint}", "tcp://d:1", "{source}", "drivers.yaml:3").Replace(r.action) || strings.Contains(action, "{") {
			t.Errorf("%q: got %s %q, want %s %q", r.words[0], verdict, action, r.verdict, r.action)
		}
	}
}

// The words of the operating system and of TLS are about the proxy here, not about the hub.
func TestErrorsBehindAProxyLeadToItsLog(t *testing.T) {
	for _, text := range []string{
		"probe driver: rpc error: code = Unavailable desc = proxy cannot open unix:///csi/csi.sock: permission denied",
		"probe driver: rpc error: code = Unavailable desc = proxy cannot open unix:///csi/csi.sock: no such file or directory",
		"the server there took the TLS handshake and hung up then: EOF",
	} {
		if verdict, action := ParseRefusal(text, "tcp://driver:9443", ""); verdict != CannotConnect || !strings.HasPrefix(action, "Look at the log of the proxy") {
			t.Errorf("%s: %s %s", text, verdict, action)
		}
	}
}

func TestProbeThatFailsByItsPreconditionIsADriverThatIsNotReady(t *testing.T) {
	if verdict, _ := ParseRefusal("probe driver: rpc error: code = FailedPrecondition desc = no array", "unix:///csi.sock", "drivers.yaml:3"); verdict != DriverNotReady {
		t.Errorf("got %s", verdict)
	}
}

func TestOnlySocketsAreLeftOver(t *testing.T) {
	for endpoint, want := range map[string]bool{"unix:///csi.sock": true, "tcp://driver:9443": false} {
		_, action := ParseRefusal("connect: connection refused", endpoint, "")
		if got := strings.Contains(action, "socket may be left over"); got != want {
			t.Errorf("%s: %s", endpoint, action)
		}
	}
}
