package explain

import (
	"reflect"
	"strings"
	"testing"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
)

func TestFlagsFollowEachProgramThatReachesTheCluster(t *testing.T) {
	const flags = "--context=prod"
	for line, want := range map[string]string{
		"kubectl -n storage scale deployment/csi --replicas=1":   "kubectl --context=prod -n storage scale deployment/csi --replicas=1",
		"csi-attach-hub explain driver/d":                        "csi-attach-hub explain --context=prod driver/d",
		`printf %s '{"a": "x | kubectl y"}' | kubectl create -f`: `printf %s '{"a": "x | kubectl y"}' | kubectl --context=prod create -f`,
		"kubectl get x -o json | kubectl replace -f - && kubectl wait kubectl": "kubectl --context=prod get x -o json | kubectl --context=prod replace -f - && " +
			"kubectl --context=prod wait kubectl",
		`kubectl delete pod 'it'\''s' "; kubectl \" x"`: `kubectl --context=prod delete pod 'it'\''s' "; kubectl \" x"`,
		"echo kubectl": "echo kubectl",
	} {
		if got := withFlags(line, flags); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
	}
	for _, line := range diagnosis.DetachCommands("d | kubectl", "n; kubectl '", "v") {
		if got := withFlags(line, flags); strings.Count(got, flags) != 1 {
			t.Errorf("got %s", got)
		}
	}
}

// fill makes a value in which every pointer leads somewhere and every list has one element.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if v.Type().Elem().PkgPath() == reflect.TypeFor[Report]().PkgPath() {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[Finding]() {
			v.FieldByName("Commands").Set(reflect.ValueOf([]string{"kubectl get pods"}))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	}
}

// commandsIn returns the commands of all findings in a value.
func commandsIn(v reflect.Value) []string {
	var all []string
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			all = commandsIn(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			all = append(all, commandsIn(v.Index(i))...)
		}
	case reflect.Struct:
		if f, is := v.Interface().(Finding); is {
			return f.Commands
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				all = append(all, commandsIn(v.Field(i))...)
			}
		}
	}
	return all
}

func TestAllCommandsOfAReportReachTheClusterThatWasAsked(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		want  string // empty: no command
	}{
		{[]string{"--context=my prod", "--kubeconfig=/k"}, "kubectl '--context=my prod' --kubeconfig=/k get pods"},
		{nil, "kubectl get pods"},
		{[]string{"--context=a\u202eb"}, ""},
	} {
		var r Report
		fill(reflect.ValueOf(&r).Elem())
		before := len(commandsIn(reflect.ValueOf(r)))
		r.throughAccess(tt.flags)
		got := commandsIn(reflect.ValueOf(r))
		if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != before || before < 6) {
			t.Errorf("%q: %d commands of %d are left", tt.flags, len(got), before)
		}
		for _, line := range got {
			if line != tt.want {
				t.Errorf("%q: got %s, want %s", tt.flags, line, tt.want)
			}
		}
	}
}
