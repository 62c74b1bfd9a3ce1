package explain_test

import (
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

// configCures are those of drivers.yaml.
var configCures = []cure{
	{
		name:    "paused",
		prepare: func(s *cureScene) { s.entry = []string{"mode: paused # for maintenance"} },
		verdict: diagnosis.DriverPaused, object: "driver {name}", words: []string{"mode: paused"},
		next: "Write `mode: active` in its entry", edit: func(s *cureScene) { s.writeConfig(s.configWith("mode: active")) },
	},
	{
		name:    "bad configuration",
		prepare: func(s *cureScene) { s.config = testbed.ConfigHead + "drivers: []\n" },
		breaks:  func(s *cureScene) { s.writeConfig(s.configWith("timeout: 90", "wrokers: 4")) },
		verdict: diagnosis.ConfigBroken, words: []string{"drivers.yaml:6: drivers[0].timeout: must be a duration", "drivers.yaml:7: drivers[0].wrokers: unknown key: did you mean workers?"},
		next: "Correct the file", edit: func(s *cureScene) { s.writeConfig(s.configWith("timeout: 90s", "workers: 4")) },
	},
	{
		name: "wrong socket",
		prepare: func(s *cureScene) {
			s.config = strings.Replace(s.configWith(), s.driver.Endpoint(), "unix://"+filepath.Join(s.world.Dir, "csi.sock"), 1)
		},
		verdict: diagnosis.SocketMissing, object: "driver {name}", words: []string{"csi.sock", "no such file"},
		next: "write its socket as `endpoint` in its entry", edit: func(s *cureScene) { s.writeConfig(s.configWith()) },
	},
}

// writeConfig changes the ConfigMap of the hub as somebody with an editor does.
func (s *cureScene) writeConfig(text string) {
	s.t.Helper()
	_, err := s.kube.CoreV1().ConfigMaps(s.hubSpace).Update(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMapName}, Data: map[string]string{"drivers.yaml": text}}, metav1.UpdateOptions{})
	s.must(err)
}
