package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
)

// attachMethods are the two methods that attach and detach.
var attachMethods = []fakecsi.Method{fakecsi.ControllerPublishVolume, fakecsi.ControllerUnpublishVolume}

// driverFlags are the flags of the driver command as they are written.
type driverFlags struct {
	name, endpoint, control, state string
	latency, jitter                time.Duration
	failPublish, failUnpublish     []string
	hang                           []string
	capabilities                   []string
	maxVolumesPerNode              int
	strictVolumes, countersOnly    bool
	knobs                          string
}

func (f *driverFlags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.name, "name", "", "name of the driver (required)")
	s.StringVar(&f.endpoint, "endpoint", "", "address to listen on: unix:///path or tcp://host:port (required)")
	s.StringVar(&f.control, "control", "", "address of the HTTP API for books and knobs: unix:///path or 127.0.0.1:port")
	s.StringVar(&f.state, "state", "", "file that keeps the attachments across restarts")
	s.DurationVar(&f.latency, "latency", 0, "time that a publish or unpublish takes")
	s.DurationVar(&f.jitter, "latency-jitter", 0, "most time that is added to --latency, at random")
	s.StringArrayVar(&f.failPublish, "fail-publish", nil, "make publishes fail: CODE, or N:CODE for the first N, such as 2:Unavailable")
	s.StringArrayVar(&f.failUnpublish, "fail-unpublish", nil, "make unpublishes fail: CODE, or N:CODE for the first N")
	s.StringSliceVar(&f.hang, "hang", nil, "make calls of these methods hang until they are released; without a value, publish and unpublish")
	s.Lookup("hang").NoOptDefVal = string(attachMethods[0]) + "," + string(attachMethods[1])
	s.StringSliceVar(&f.capabilities, "capabilities", names(fakecsi.DefaultCapabilities()), "capabilities that the driver announces, with their names in the CSI specification")
	s.IntVar(&f.maxVolumesPerNode, "max-volumes-per-node", 0, "most volumes per node; 0 means no limit")
	s.BoolVar(&f.strictVolumes, "strict-volumes", false, "answer NotFound for volumes that were not created")
	s.BoolVar(&f.countersOnly, "counters-only", false, "keep no list of calls in the books, for long runs")
	s.StringVar(&f.knobs, "knobs", "", "further knobs, in the JSON of POST /knobs")
}

// driver is what the flags ask for.
func (f *driverFlags) driver() (*driver, error) {
	if f.name == "" || f.endpoint == "" {
		return nil, errors.New("--name and --endpoint are required: e.g. --name fake.example.com --endpoint unix:///tmp/fake.sock")
	}
	if err := checkControl(f.control); err != nil {
		return nil, err
	}
	d := &driver{endpoint: f.endpoint, state: f.state, control: f.control}
	d.options = fakecsi.Options{
		Name: f.name, StrictVolumes: f.strictVolumes, CountersOnly: f.countersOnly, Capabilities: []fakecsi.Capability{},
	}
	for _, c := range f.capabilities {
		d.options.Capabilities = append(d.options.Capabilities, fakecsi.Capability(c))
	}
	if f.knobs != "" {
		var err error
		if d.knobs, err = fakecsi.ParseKnobs([]byte(f.knobs)); err != nil {
			return nil, fmt.Errorf("--knobs: %w", err)
		}
	}
	return d, f.addKnobs(&d.knobs)
}

// addKnobs adds those that have a flag of their own.
func (f *driverFlags) addKnobs(k *fakecsi.Knobs) error {
	if f.latency != 0 || f.jitter != 0 {
		if k.Latency == nil {
			k.Latency = map[fakecsi.Method]fakecsi.Latency{}
		}
		for _, m := range attachMethods {
			k.Latency[m] = fakecsi.Latency{Base: f.latency, Jitter: f.jitter}
		}
	}
	for i, texts := range [][]string{f.failPublish, f.failUnpublish} {
		for _, text := range texts {
			fault, err := parseFault(text)
			if err != nil {
				return err
			}
			fault.Method = attachMethods[i]
			k.Fail = append(k.Fail, fault)
		}
	}
	for _, m := range f.hang {
		k.Hang = append(k.Hang, fakecsi.Hang{Method: fakecsi.Method(m)})
	}
	if f.maxVolumesPerNode != 0 {
		k.MaxVolumesPerNode = &f.maxVolumesPerNode
	}
	return nil
}

// parseFault reads CODE or N:CODE.
func parseFault(text string) (fakecsi.Fault, error) {
	var fault fakecsi.Fault
	name := text
	if count, rest, ok := strings.Cut(text, ":"); ok {
		n, err := strconv.Atoi(count)
		if err != nil || n < 1 {
			return fault, fmt.Errorf("fault %q: %q is no count: write N:CODE with N from 1, e.g. 2:Unavailable", text, count)
		}
		fault.Count, name = n, rest
	}
	for c := codes.Canceled; c <= codes.Unauthenticated; c++ {
		if strings.EqualFold(c.String(), name) {
			fault.Code = c
			return fault, nil
		}
	}
	return fault, fmt.Errorf("fault %q: %q is no gRPC error code: write e.g. Unavailable, DeadlineExceeded, Internal", text, name)
}

func names[S ~string](in []S) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}
