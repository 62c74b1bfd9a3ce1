package status

import (
	"testing"
	"time"
)

func TestHeadlineSaysWhatMattersMostFirst(t *testing.T) {
	driver := func(s HealthState) Driver { return Driver{Up: true, Health: Health{State: s}} }
	volume := func(state AttachmentState, s HealthState) Attachment {
		return Attachment{State: state, Health: Health{State: s}}
	}
	connecting, failed := driver(Attention), volume(Failing, Attention)
	connecting.Up = false
	stuck, waiting, attached := volume(Stuck, Broken), volume(Waiting, Attention), volume(Attached, Attention)
	unserved, now := volume(Unserved, Attention), time.Now()
	alone := Driver{Up: true, Mode: "active", State: StateWaitingForLease, Reason: `the API server cannot be reached: Get "https://10.0.0.1/x": dial tcp: connection refused`,
		Lease: Lease{Name: "l", Holder: "self", Renewed: now.Add(-30 * time.Second)}}
	alone.Health = HealthOfDriver(alone, []string{"self"}, now)
	rejected := Config{Files: []ConfigFile{{Path: "/etc/hub/drivers.yaml", Rejected: "/etc/hub/drivers.yaml was rejected"}, {Path: "/etc/hub/fine.yaml"}}, Errors: []string{"drivers.yaml:3: no"}}
	for name, tt := range map[string]struct {
		config  Config
		drivers []Driver
		trouble []Attachment
		state   HealthState
		text    string
	}{
		"nothing":                        {Config{}, nil, nil, Standby, "no driver is served"},
		"nothing, and volumes wait":      {Config{}, nil, []Attachment{unserved, unserved}, Attention, "2 volumes unserved; no driver is served"},
		"fine":                           {Config{}, []Driver{driver(Fine)}, nil, Fine, "all drivers answer"},
		"standby":                        {Config{}, []Driver{driver(Fine), driver(Standby)}, nil, Standby, "all drivers answer"},
		"rejected, and all else fine":    {rejected, []Driver{driver(Fine)}, nil, Attention, "drivers.yaml rejected (1 mistake); all drivers answer"},
		"rejected, and nothing served":   {Config{Errors: []string{"a", "b"}}, nil, nil, Attention, "configuration rejected (2 mistakes); no driver is served"},
		"rejected and stuck":             {rejected, []Driver{driver(Attention)}, []Attachment{stuck, stuck, stuck}, Broken, "drivers.yaml rejected (1 mistake); 3 volumes stuck; 1 driver needs attention"},
		"broken":                         {Config{}, []Driver{driver(Broken), driver(Fine), driver(Attention)}, []Attachment{stuck, failed, volume(Detaching, Attention), waiting, waiting, unserved, attached, volume(Idle, Attention)}, Broken, "1 driver broken; 1 volume stuck; 1 volume failing; 1 volume unserved; 1 volume slow; 2 volumes waiting; 2 volumes need attention; 1 driver needs attention"},
		"attention without a volume":     {Config{}, []Driver{driver(Attention), driver(Fine)}, nil, Attention, "1 driver needs attention"},
		"each driver whose health it is": {Config{}, []Driver{driver(Attention), connecting}, []Attachment{stuck}, Broken, "1 volume stuck; 2 drivers need attention"},
		"no API server":                  {rejected, []Driver{alone, alone}, nil, Broken, "kube-apiserver cannot be reached for 30s: connection refused; drivers.yaml rejected (1 mistake); 2 drivers broken"},
		"found, and not served":          {Config{Conflicts: []Conflict{{Driver: "a", Winner: "drivers.yaml:3"}, {Driver: "b"}}}, []Driver{driver(Fine)}, nil, Attention, "1 driver not served; all drivers answer"},
		"not connected yet":              {Config{}, []Driver{connecting}, []Attachment{waiting}, Attention, "1 volume waiting; 1 driver needs attention"},
	} {
		if state, text := Headline(tt.config, tt.drivers, tt.trouble, now); state != tt.state || text != tt.text {
			t.Errorf("%s: got %s, %q, want %s, %q", name, state, text, tt.state, tt.text)
		}
	}
}

// All replicas count it, the one that has lost the driver and one that has begun to connect to it.
func TestVolumeWhoseDriverCannotBeCalledNeedsAttentionAtOnce(t *testing.T) {
	now := time.Now()
	for state, want := range map[string]HealthState{StateConnecting: Attention, StateLost: Attention, StateProbing: Attention, StateNameMismatch: Attention,
		StateReady: Fine, StateWaitingForLease: Fine, StateDraining: Fine, StatePaused: Standby} {
		a := Attachment{State: Waiting, Operation: Attach, Since: now.Add(-time.Second), Waiting: Wait{Kind: WaitForDriver, DriverState: state}}
		if got := HealthOfAttachment(DiagnosisInput{Attachment: a, Driver: &Driver{State: state}, Now: now}).State; got != want {
			t.Errorf("%s: got %s, want %s", state, got, want)
		}
	}
}
