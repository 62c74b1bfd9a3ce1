package adopt

import (
	"strings"
	"testing"
)

func TestPortsThatTheManifestShowsAreAvoided(t *testing.T) {
	for shown, want := range map[string]int32{
		"":                                    9443,
		"args: [--bind=0.0.0.0:9443]":         9453,
		`args: ["https://0.0.0.0:9443/hook"]`: 9453,
		`args: ["--ports=9443,9453"]`:         9463,
		`env: [{name: PORTS, value: "8080 9819"}]`:    9443,
		`env: [{name: PORTS, value: "8080 9809"}]`:    9453,
		"livenessProbe: {tcpSocket: {port: 9443}}":    9453,
		"startupProbe: {grpc: {port: 9443}}":          9453,
		"readinessProbe: {httpGet: {port: 9443}}":     9453,
		"args: [--image=driver:v1.9443x, --id=19443]": 9443,
	} {
		text := strings.Replace(onePod, `args: [--port=9443, "--health=:9463"]`, shown, 1)
		text = strings.NewReplacer("NAME", "driver", "ARGS", "--leader-election", "ATTACHER", "", "POD", "").Replace(text)
		if p := plansOfText(t, []byte(text), Options{Mode: ModeProxy})[0]; p.Ports.Listen != want {
			t.Errorf("%q: port %d, want %d", shown, p.Ports.Listen, want)
		}
	}
}
