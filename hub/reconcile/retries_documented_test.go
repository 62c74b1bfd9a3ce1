package reconcile

import (
	"errors"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/lease"
	"github.com/csi-attach-hub/csi-attach-hub/hub/queue"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const configureFile = "../../deploy/CONFIGURE.md"

// documentedRetries returns the table of deploy/CONFIGURE.md: the longest wait by error.
func documentedRetries(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(configureFile)
	must(t, err)
	_, below, found := strings.Cut(string(text), "\n### Retries\n")
	if !found {
		t.Fatalf("%s has no heading Retries", configureFile)
	}
	below, _, _ = strings.Cut(below, "\n#")
	waits := map[string]string{}
	for line := range strings.Lines(below) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && !strings.Contains(cells[1], "---") {
			waits[strings.TrimSpace(cells[1])] = strings.TrimSpace(cells[2])
		}
	}
	delete(waits, "error of a try")
	return waits
}

func TestLongestWaitAfterEachErrorIsAsDocumented(t *testing.T) {
	answer := func(code codes.Code) error { return &attach.CallError{Err: status.Error(code, "no")} }
	volumes := schema.GroupResource{Resource: "persistentvolumes"}
	missing := func(in attach.Inputs) error {
		_, err := attach.Driver{Name: "d", Capabilities: csiclient.Capabilities{PublishUnpublish: true}}.Decide(in)
		return err
	}
	pv := "missing"
	va := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: "d", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv}}}
	// By the beginning of the row.
	errs := map[string][]error{
		"driver answers": nil, // two rows, below
		"Kubernetes API cannot be reached": {&url.Error{Op: "Get", Err: errors.New("refused")}, apierrors.NewTooManyRequests("busy", 1),
			apierrors.NewInternalError(errors.New("no")), apierrors.NewServiceUnavailable("no"), apierrors.NewTimeoutError("no", 1)},
		"Kubernetes API refuses": {apierrors.NewForbidden(volumes, "v", errors.New("no")), apierrors.NewRequestEntityTooLargeError("no"),
			&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonUnauthorized, Code: 401}}},
		"object changed or vanished": {attach.ErrStale},
		"PersistentVolume, CSINode, Secret": {missing(attach.Inputs{VolumeAttachment: va}),
			apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "s")},
		"connection to the driver was lost": nil, // below
		"lease of the driver":               nil, // below
	}
	waits := documentedRetries(t)
	codesOf := map[string][]string{}
	for row := range waits {
		key := ""
		for k := range errs {
			if strings.HasPrefix(row, k) {
				key = k
			}
		}
		if key == "" {
			t.Errorf("no error is known for the row %q", row)
		}
		all := errs[key]
		if key == "driver answers" {
			for code := codes.Canceled; code <= codes.Code(17); code++ { // 17 is not a code of gRPC
				name := code.String()
				if code == 17 {
					name = "an unknown code"
				}
				if regexp.MustCompile(`\b` + name + `\b`).MatchString(row) {
					all = append(all, answer(code))
					codesOf[name] = append(codesOf[name], row)
				}
			}
		}
		for _, err := range all {
			checkLongestWait(t, row, waits[row], err)
		}
	}
	if want := 9; len(waits) != want {
		t.Errorf("%d rows, want %d", len(waits), want)
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if rows := codesOf[code.String()]; len(rows) != 1 {
			t.Errorf("%s is in %d rows, want 1: %q", code, len(rows), rows)
		}
	}
}

func checkLongestWait(t *testing.T, row, documented string, err error) {
	t.Helper()
	retry := registry.Retry{Initial: time.Second, Max: time.Hour}
	longest := time.Hour
	if strings.HasPrefix(documented, "a quarter of `retry.max`") {
		longest /= 4
	} else if !strings.HasPrefix(documented, "`retry.max`") {
		t.Errorf("%s: cannot read %q", row, documented)
	}
	first := time.Second
	if strings.Contains(documented, "first retry follows at once") {
		first = 0
	}
	none := func() float64 { return 0 }
	if got := backoff(retry, 1000, err, none); err == nil || got != longest {
		t.Errorf("%s: after %v the hub waits for %v, documented is %q", row, err, got, documented)
	}
	if got := backoff(retry, 1, err, none); got != first {
		t.Errorf("%s: after the first %v the hub waits for %v, documented is %v", row, err, got, first)
	}
	// At least the initial wait.
	if got := backoff(registry.Retry{Initial: time.Hour, Max: time.Hour}, 1000, err, none); got != time.Hour {
		t.Errorf("%s: after %v the hub waits for %v, which is below retry.initial", row, err, got)
	}
}

func TestWaitsWithoutBackoffAreAsDocumented(t *testing.T) {
	waits := documentedRetries(t)
	row := func(beginning string) string {
		for r, wait := range waits {
			if strings.HasPrefix(r, beginning) {
				return wait
			}
		}
		t.Fatalf("no row begins with %q", beginning)
		return ""
	}
	ordinals := []string{"", "first", "second", "third", "fourth", "fifth"}
	gone := &attach.CallError{Err: errors.Join(ErrDisconnected, status.Error(codes.Unavailable, "gone"))}
	i := 1
	for waitsForDriver(&queue.Item{Retries: queue.Retries{Disconnects: i}}, gone) {
		i++
	}
	if want := "From the " + ordinals[i] + " lost connection in a row"; !strings.Contains(row("connection to the driver"), want) {
		t.Errorf("%q does not say %q", row("connection to the driver"), want)
	}
	if want := fencePause.String(); !isFenced(lease.ErrFenced) || !strings.HasPrefix(row("lease of the driver"), want+",") {
		t.Errorf("%q does not say %s", row("lease of the driver"), want)
	}
}
