package registry_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const discoveryConfig = header + `defaults: {timeout: 7m, lease: {namespace: storage}}
discovery:
  csiDrivers:
    enabled: true
    endpointTemplate: unix:///csi/{driver}/csi.sock
    allowedEndpoints: ["unix:///csi/*", "tcp://*.storage.svc:9443"]
drivers:
  - name: listed.example.com
    endpoint: unix:///csi/listed.sock
    timeout: 1m
    lease: {name: external-attacher-leader-lease}
`

func object(name, endpoint string) registry.Driver {
	return registry.Driver{Name: name, Endpoint: registry.Endpoint(endpoint), Source: "CSIDriver " + name}
}

// windingDown is an object with attachRequired false.
func windingDown(name, endpoint string) registry.Driver {
	d := object(name, endpoint)
	d.WindDown = true
	return d
}

func TestWhatIsServedOfWhatWasFound(t *testing.T) {
	type drivers = []registry.Driver
	for _, test := range []struct {
		name      string
		objects   drivers
		served    string   // beside the one that is listed: name@endpoint, with a "-" before it if it winds down
		conflicts []string // driver: winner<loser: a part of the reason
	}{
		{name: "nothing"},
		{name: "object with an annotation", objects: drivers{object("a", "unix:///csi/x.sock")}, served: "a@unix:///csi/x.sock"},
		{name: "object without one", objects: drivers{object("a.b", "")}, served: "a.b@unix:///csi/a.b/csi.sock"},
		{name: "annotation that is not allowed", objects: drivers{object("a", "unix:///etc/x.sock")},
			conflicts: []string{"a: <CSIDriver a: not allowed by"}},
		{name: "annotation that is another spelling of one that is allowed", objects: drivers{object("a", "unix:///csi/../etc/x.sock")},
			conflicts: []string{"a: <CSIDriver a: must not contain"}},
		{name: "annotation that is no endpoint", objects: drivers{object("a", "nonsense")}, conflicts: []string{"a: <CSIDriver a: is not an endpoint"}},
		{name: "address without TLS", objects: drivers{object("a", "tcp://a.storage.svc:9443")},
			conflicts: []string{"a: <CSIDriver a: without TLS"}},
		{name: "name that no driver can have", objects: drivers{object("../x", "unix:///csi/x")},
			conflicts: []string{"../x: <CSIDriver ../x: is not a valid name"}},
		{name: "object of a driver that is listed, by the template", objects: drivers{object("listed.example.com", "")}},
		{name: "object of a driver that is listed, elsewhere", objects: drivers{object("listed.example.com", "unix:///csi/other.sock")},
			conflicts: []string{"listed.example.com: f.yaml:10<CSIDriver listed.example.com: is served at"}},
		{name: "object of a driver that is listed, not allowed", objects: drivers{object("listed.example.com", "unix:///etc/x.sock")},
			conflicts: []string{"listed.example.com: <CSIDriver listed.example.com: not allowed"}},
		{name: "sanitized names that are equal", objects: drivers{object("listed-example-com", "")},
			conflicts: []string{"listed-example-com: f.yaml:10<CSIDriver listed-example-com: both become listed-example-com"}},
		{name: "names of two objects that become equal", objects: drivers{object("a.b", ""), object("a-b", "")},
			served: "a-b@unix:///csi/a-b/csi.sock", conflicts: []string{"a.b: CSIDriver a-b<CSIDriver a.b: both become a-b"}},
		{name: "object whose lease a driver that is listed has", objects: drivers{object("lease", "")},
			conflicts: []string{"lease: f.yaml:10<CSIDriver lease: uses the lease storage/external-attacher-leader-lease"}},
		{name: "object whose lease differs in case only", objects: drivers{object("a", ""), object("A", "")},
			served: "A@unix:///csi/A/csi.sock", conflicts: []string{"a: CSIDriver A<CSIDriver a: uses the lease storage/external-attacher-leader-a"}},
		{name: "the endpoint of another driver", objects: drivers{object("a", "unix:///csi/listed.sock")},
			conflicts: []string{"a: f.yaml:10<CSIDriver a: already the endpoint of listed.example.com"}},
		{name: "two objects with one endpoint", objects: drivers{object("a", "unix:///csi/x"), object("b", "unix:///csi/x")},
			served: "a@unix:///csi/x", conflicts: []string{"b: CSIDriver a<CSIDriver b: already the endpoint of a"}},
		{name: "object that winds down", objects: drivers{windingDown("a", "")}, served: "-a@unix:///csi/a/csi.sock"},
		{name: "object that winds down, where nothing may be contacted", objects: drivers{windingDown("a", "unix:///etc/x"), windingDown("b", "nonsense"),
			windingDown("c", "tcp://c.storage.svc:9443"), windingDown("../x", "unix:///csi/x")}},
		{name: "object that winds down of a driver that is listed, elsewhere", objects: drivers{windingDown("listed.example.com", "unix:///csi/other.sock")}},
		{name: "object that winds down with the endpoint of one that does not", objects: drivers{windingDown("a", "unix:///csi/x"), object("b", "unix:///csi/x")},
			served: "b@unix:///csi/x"},
		{name: "object that winds down with the sanitized name of one that does not", objects: drivers{windingDown("a-b", ""), object("a.b", "")},
			served: "a.b@unix:///csi/a.b/csi.sock"},
		{name: "object that winds down whose lease a driver that is listed has", objects: drivers{windingDown("lease", "")}},
		{name: "two objects that wind down with one endpoint", objects: drivers{windingDown("a", "unix:///csi/x"), windingDown("b", "unix:///csi/x")},
			served: "-a@unix:///csi/x"},
		{name: "a conflict of one is none of the others",
			objects: drivers{object("a", "unix:///etc/x"), object("b", "")},
			served:  "b@unix:///csi/b/csi.sock", conflicts: []string{"a: <CSIDriver a: not allowed"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			config, err := registry.Parse("f.yaml", []byte(discoveryConfig))
			check(t, err)
			snapshot, conflicts := registry.Merge(config, test.objects)
			if got := snapshot["listed.example.com"]; got != config.Drivers()["listed.example.com"] {
				t.Errorf("the driver that is listed became %+v", got)
			}
			if got := others(t, snapshot); got != test.served {
				t.Errorf("served are %q, want %q", got, test.served)
			}
			checkConflicts(t, conflicts, test.conflicts)
			for range 10 {
				rand.Shuffle(len(test.objects), func(i, j int) { test.objects[i], test.objects[j] = test.objects[j], test.objects[i] })
				snapshot2, conflicts2 := registry.Merge(config, test.objects)
				if diff := cmp.Diff(snapshot, snapshot2) + cmp.Diff(conflicts, conflicts2); diff != "" {
					t.Fatalf("it depends on the order of what was found: %s", diff)
				}
			}
		})
	}
}

// others is what is served beside the driver that is listed.
func others(t *testing.T, snapshot registry.Snapshot) string {
	t.Helper()
	var served []string
	for name, d := range snapshot {
		if name == "listed.example.com" {
			continue
		}
		mark := ""
		if d.WindDown {
			mark = "-"
		}
		served = append(served, mark+d.Name+"@"+string(d.Endpoint))
		want := registry.DefaultSettings()
		want.Timeout, want.Lease.Namespace = 7*time.Minute, "storage"
		if name != d.Name || d.Settings != want {
			t.Errorf("%s has the settings %+v, want those of defaults", name, d.Settings)
		}
	}
	slices.Sort(served)
	return strings.Join(served, " ")
}

func checkConflicts(t *testing.T, got []registry.Conflict, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got the conflicts %+v, want %q", got, want)
	}
	for i, c := range got {
		head, reason, _ := strings.Cut(strings.TrimPrefix(want[i], c.Driver+": "), ": ")
		if c.Winner+"<"+c.Loser != head || !strings.Contains(c.Reason, reason) {
			t.Errorf("got the conflict %+v, want %q", c, want[i])
		}
	}
}

func TestObjectsWithoutAnnotationAreLeftOutWithoutATemplate(t *testing.T) {
	config, err := registry.Parse("f.yaml", []byte(strings.Replace(discoveryConfig, "endpointTemplate:", "#", 1)))
	check(t, err)
	snapshot, conflicts := registry.Merge(config, []registry.Driver{object("a", ""), object("b", "unix:///csi/b")})
	if got := others(t, snapshot); got != "b@unix:///csi/b" || len(conflicts) > 0 {
		t.Errorf("served are %q with the conflicts %+v, want b alone", got, conflicts)
	}
}

// Whether the defaults say insecure or not: what the rule says goes before them.
func TestDriversOfObjectsAreReachedOverTLSWhereTheRuleSaysSo(t *testing.T) {
	const files = "caFile: /ca, certFile: /crt, keyFile: /key"
	for _, test := range []struct{ defaults, tls, want string }{
		{"", files, "a.storage.svc"},
		{", insecure: true", files, "a.storage.svc"},
		{"", files + ", serverName: drivers", "drivers"},
	} {
		text := strings.Replace(discoveryConfig, "timeout: 7m", "timeout: 7m"+test.defaults, 1)
		text = strings.Replace(text, "    enabled:", "    tls: {"+test.tls+"}\n    enabled:", 1)
		config, err := registry.Parse("f.yaml", []byte(text))
		check(t, err)
		snapshot, conflicts := registry.Merge(config, []registry.Driver{object("a", "tcp://a.storage.svc:9443"), object("b", "unix:///csi/b"),
			object("c", "tcp://c.evil.svc:9443")})
		checkConflicts(t, conflicts, []string{"c: <CSIDriver c: not allowed by"})
		if got, want := snapshot["a"].TLS, (registry.TLS{CAFile: "/ca", CertFile: "/crt", KeyFile: "/key", ServerName: test.want}); got != want || snapshot["a"].Insecure {
			t.Errorf("%+v: got %+v, insecure %t", test, got, snapshot["a"].Insecure)
		}
		if snapshot["b"].TLS.Enabled() || len(snapshot) != 3 {
			t.Errorf("%+v: got %+v", test, snapshot)
		}
	}
}

func TestInsecureDefaultsLetObjectsNameAddressesThatAreAllowed(t *testing.T) {
	config, err := registry.Parse("f.yaml", []byte(strings.Replace(discoveryConfig, "timeout: 7m", "timeout: 7m, insecure: true", 1)))
	check(t, err)
	snapshot, _ := registry.Merge(config, []registry.Driver{object("a", "tcp://a.storage.svc:9443"), object("b", "tcp://evil.svc:9443")})
	if snapshot["a"].Endpoint != "tcp://a.storage.svc:9443" || len(snapshot) != 2 {
		t.Errorf("got %+v", snapshot)
	}
}

func TestEachDriverKnowsTheSecretsOfAllLists(t *testing.T) {
	const text = header + `defaults: {secrets: [shared/*]}
discovery: {csiDrivers: {enabled: true, allowedEndpoints: [unix:///*]}}
drivers:
  - {name: a, endpoint: "unix:///a", secrets: [ns/a]}
  - {name: b, endpoint: "unix:///b", secrets: []}
  - {name: p, endpoint: "unix:///p", mode: paused, secrets: [ns/p]}
`
	config, err := registry.Parse("f.yaml", []byte(text))
	check(t, err)
	snapshot, _ := registry.Merge(config, []registry.Driver{object("o", "unix:///o")})
	for driver, want := range map[string]string{"a": "ns/a", "b": "ns/free", "p": "ns/p", "o": "shared/x"} {
		var allowed []string
		for _, secret := range []string{"ns/a", "ns/free", "ns/p", "shared/x"} {
			namespace, name, _ := strings.Cut(secret, "/")
			if snapshot[driver].CheckSecret(namespace, name) == nil {
				allowed = append(allowed, secret)
			}
		}
		if got := strings.Join(allowed, " "); got != want {
			t.Errorf("volumes of %s may name %s, want %s", driver, got, want)
		}
	}
	if err := snapshot["o"].CheckSecret("ns", "a"); err == nil || !strings.Contains(err.Error(), "add ns/a to secrets of defaults in drivers.yaml, or give the driver an entry") {
		t.Errorf("got %v", err)
	}
}
