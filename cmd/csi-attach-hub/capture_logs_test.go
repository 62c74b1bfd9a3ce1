package main

import (
	"log"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

func TestLinesOfOtherLoggersGoThroughKlog(t *testing.T) {
	defer klog.CaptureState().Restore()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	klog.SetLogger(logger)
	log.New(klogWriter("Go library"), "", 0).Print("a line\n")
	lines := logger.GetSink().(ktesting.Underlier).GetBuffer().Data()
	if len(lines) != 1 || lines[0].Message != "Go library" || len(lines[0].ParameterKVList) != 2 || lines[0].ParameterKVList[1] != "a line" {
		t.Errorf("logged %+v", lines)
	}
}
