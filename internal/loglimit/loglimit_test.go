package loglimit

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/klog/v2/ktesting"
)

func TestProblemThatPersistsIsLoggedAtOnceAndThenRarely(t *testing.T) {
	var p Problem
	begin := time.Now()
	for i, step := range []struct {
		after time.Duration
		text  string
		due   bool
	}{
		{0, "a", true},
		{time.Second, "a", false},
		{2 * time.Second, "b", false},
		{time.Minute, "b", true},
		{2 * time.Minute, "b", false},
		{11 * time.Minute, "b", true},
	} {
		if due := p.IsDue(step.text, begin.Add(step.after)); due != step.due {
			t.Errorf("%d: due is %t, want %t", i, due, step.due)
		}
	}
}

func TestManyLinesAreABurstThenOneInEachIntervalWithTheNumberOfTheSuppressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		l := New(3, time.Second)
		for i := range 10 {
			l.Info(logger, "failed", "n", i)
		}
		l.Info(logger, "succeeded", "n", 0)
		time.Sleep(time.Second)
		l.Info(logger, "failed", "n", 10)
		l.Info(logger, "failed", "n", 11)
		var got []string
		for _, line := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			got = append(got, fmt.Sprint(line.Message, line.ParameterKVList))
		}
		want := "failed[n 0] failed[n 1] failed[n 2] succeeded[n 0] failed[n 10 suppressed 7]"
		if strings.Join(got, " ") != want {
			t.Errorf("got  %v\nwant %s", got, want)
		}
	})
}
