package lease

import "k8s.io/klog/v2"

// quietLevel is the verbosity from which on client-go's own messages are shown.
const quietLevel = 4

// quiet returns a logger for client-go's machinery, which says at level 0, and as
// an error, what is no news for people: each attempt, each lost race, each
// renewal that failed. This package says for itself what came of it.
func quiet(logger klog.Logger) klog.Logger {
	if logger.GetSink() == nil {
		return logger
	}
	return klog.New(quietSink{logger.GetSink()}).V(logger.GetV())
}

type quietSink struct{ klog.LogSink }

func (quietSink) Init(klog.RuntimeInfo) {} // has happened

func (s quietSink) Enabled(level int) bool { return s.LogSink.Enabled(level + quietLevel) }

func (s quietSink) Info(level int, msg string, keysAndValues ...any) {
	s.LogSink.Info(level+quietLevel, msg, keysAndValues...)
}

func (s quietSink) Error(err error, msg string, keysAndValues ...any) {
	if s.Enabled(0) {
		s.LogSink.Info(quietLevel, msg, append([]any{"err", err}, keysAndValues...)...)
	}
}

func (s quietSink) WithValues(keysAndValues ...any) klog.LogSink {
	return quietSink{s.LogSink.WithValues(keysAndValues...)}
}

func (s quietSink) WithName(name string) klog.LogSink { return quietSink{s.LogSink.WithName(name)} }
