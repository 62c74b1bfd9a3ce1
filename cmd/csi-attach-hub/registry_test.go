package main

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestDiscoveryDoesNotRepeatWhatADriverAnswers(t *testing.T) {
	for _, code := range []codes.Code{codes.Internal, codes.Unknown, codes.Unauthenticated, 77} {
		if err := withoutAnswer(status.Error(code, "login with hunter22 failed")); strings.Contains(err.Error(), "hunter22") || !strings.Contains(err.Error(), code.String()) {
			t.Error(err)
		}
	}
	for _, err := range []error{nil, errors.New("driver name is empty"), status.Error(codes.Unavailable, "connection refused")} {
		if got := withoutAnswer(err); (got == nil) != (err == nil) || err != nil && got.Error() != err.Error() {
			t.Errorf("%v became %v", err, got)
		}
	}
}
