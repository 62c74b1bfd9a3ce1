package explain_test

import "github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"

// configCures are those of drivers.yaml.
var configCures = []cure{
	{
		name:    "paused",
		prepare: func(s *cureScene) { s.entry = []string{"mode: paused # for maintenance"} },
		verdict: diagnosis.DriverPaused, words: []string{"mode: paused"},
	},
}
