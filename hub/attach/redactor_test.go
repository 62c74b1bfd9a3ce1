package attach

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestRedactorKnowsTheLatestValuesWithinItsBounds(t *testing.T) {
	var r Redactor
	hides := func(text string) bool { return !strings.Contains(r.Error(errors.New("<"+text+">")).Error(), text) }
	long := strings.Repeat("l", recentBytes+1)
	for i := range recentSecrets + 1 {
		r.Use(map[string]string{"password": fmt.Sprintf("password-%03d", i), "long": long})()
	}
	if hides("password-000") || !hides("password-001") || !hides(fmt.Sprintf("password-%03d", recentSecrets)) || len(r.recent) != recentSecrets {
		t.Errorf("%d values are known", len(r.recent))
	}
	r.Use(map[string]string{"certificate": long[:recentBytes]})()
	if len(r.recent) != 1 || r.Text("password-064", 100) != "password-064" {
		t.Errorf("%d values are known beside one of the most bytes", len(r.recent))
	}
	if r.Error(nil) != nil {
		t.Error("no error became one")
	}
}

func TestRedactorThatKeepsNothingKnowsTheCallsInFlight(t *testing.T) {
	var r Redactor
	secrets := map[string]string{"password": "correct horse", "again": "correct horse"}
	hides := func() bool { return r.Text("correct horse", 100) == "[secret]" }
	r.Use(secrets)()
	if !hides() {
		t.Error("not known after the call")
	}
	r.Keep(false)
	if hides() {
		t.Error("known although it keeps nothing")
	}
	first, second := r.Use(secrets), r.Use(secrets)
	first()
	if !hides() {
		t.Error("not known while a call has it")
	}
	second()
	if hides() {
		t.Error("known after the last call")
	}
}
