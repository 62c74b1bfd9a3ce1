package main

import (
	"io"
	"log"
	"strings"

	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"
)

// captureLogs has the loggers of Go's library and of gRPC write through klog: with --logging-format=json every line
// of the log is JSON. It must be called before gRPC is used.
func captureLogs() {
	log.SetFlags(0)
	log.SetOutput(klogWriter("Go library"))
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, klogWriter("gRPC"))) // errors only, as by default
}

// klogWriter writes lines of another logger, whose name is their message.
type klogWriter string

// Write implements io.Writer.
func (w klogWriter) Write(line []byte) (int, error) {
	klog.Background().Info(string(w), "problem", strings.TrimSpace(string(line)))
	return len(line), nil
}
