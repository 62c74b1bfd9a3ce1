package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1client "k8s.io/client-go/kubernetes/typed/storage/v1"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// HubReader asks the replicas of a hub: *hubclient.Hub.
type HubReader interface {
	// View asks all replicas. A replica that does not answer is in it with its error.
	View(context.Context) hubclient.View
	// Volumes passes the VolumeAttachments that a filter selects to take, each once. The error says what could not be
	// listed.
	Volumes(ctx context.Context, v hubclient.View, f status.AttachmentFilter, take func(status.Attachment)) error
	// Driver asks one replica about a driver, with its checklist.
	Driver(ctx context.Context, replica, name string) (*status.Driver, error)
}

// Kube is the part of the Kubernetes API that is read.
type Kube interface {
	CoordinationV1() coordinationv1client.CoordinationV1Interface
	CoreV1() corev1client.CoreV1Interface
	StorageV1() storagev1client.StorageV1Interface
}

// Sources are what is read. Nothing is written.
type Sources struct {
	Kube Kube
	Hub  HubReader // nil: HubErr says why it cannot be asked
	// HubErr is why there is no Hub.
	HubErr error
	// Namespace is the namespace of the hub, where the leases of drivers are.
	Namespace string
	// Access are the flags of kubectl and csi-attach-hub that lead to the cluster of Kube, such as "--context=prod"; none for
	// the current one. All commands of the report get them.
	Access []string
}

// explainer answers one question.
type explainer struct {
	Sources // HubErr is nil only if a replica has answered
	reader
	now      time.Time
	question Question
	view     hubclient.View
	pod      *corev1.Pod // of the question
	volumes  []*volume
}

// Explain says for each volume of a question whether it is attached, where it stops and what to do. It returns an error only
// if the object of the question could not be read.
func Explain(ctx context.Context, q Question, s Sources) (Report, error) {
	e := &explainer{Sources: s, reader: reader{objects: map[string]any{}}, now: time.Now(), question: q}
	e.askHub(ctx)
	r := Report{Question: q, Result: NotNeeded, Volumes: []VolumeReport{}, AsOf: e.now.UTC()}
	several := e.resolve(ctx)
	if r.Question = e.question; len(several) > 0 {
		shown := strings.Join(several[:min(mostNames, len(several))], ", ")
		r.Result, r.Stop = NotUnique, new(found(diagnosis.ObjectNotFound, e.question.String(), fmt.Sprintf("could be %d objects: %s", len(several), shown), "Give the kind before the name, and the whole name."))
		return r, nil
	}
	switch exists, err := e.answer(ctx, &r); {
	case err != nil:
		return Report{}, fmt.Errorf("read %s: %w", e.question, err)
	case !exists:
		r.Result, r.Stop, r.Subject = NotFound, e.notFound(), nil
	}
	r.Unknown = e.unknown
	return r, nil
}

func (e *explainer) askHub(ctx context.Context) {
	if e.Hub != nil {
		e.view = e.Hub.View(ctx)
		var errs []error
		for _, r := range e.view.Replicas {
			if r.Error != "" {
				errs = append(errs, fmt.Errorf("%s: %s", r.Replica, r.Error))
			}
		}
		if e.view.Reached() {
			for _, err := range errs {
				e.unknown = append(e.unknown, "replica "+err.Error())
			}
			return
		}
		e.HubErr = errors.Join(errs...)
	}
	e.HubErr = cmp.Or(e.HubErr, errors.New("no replica was found"))
	e.missed("the hub (which drivers it serves, whether it can call them, its queues, the next tries)", e.HubErr)
}

// worst are the results of volumes, the worst last.
var worst = []Result{NotNeeded, Attached, NotKnown, Attention, Waiting}

// answer answers the question, and reports whether its object exists.
func (e *explainer) answer(ctx context.Context, r *Report) (exists bool, err error) {
	switch e.question.Kind {
	case Driver:
		return e.explainDriver(ctx, r), nil
	case Node:
		return e.explainNode(ctx, r)
	}
	if exists, err = e.findVolumes(ctx); !exists {
		return exists, err
	}
	switch {
	case e.pod != nil && finished(e.pod):
		r.Stop = new(found(diagnosis.PodFinished, e.question.String(), fmt.Sprintf("has ended (%s): its volumes are detached unless another Pod uses them", e.pod.Status.Phase), "Do nothing."))
		return true, nil
	case len(e.volumes) == 0:
		r.Stop = new(found(diagnosis.NothingToAttach, e.question.String(), "has no volume that needs an attach", "If the Pod does not start, look at its Events: attaching is not the reason."))
		return true, nil
	}
	for i, v := range e.volumes {
		v.read(ctx)
		v.explain(e.volumes[:i])
		r.Result = slices.MaxFunc([]Result{r.Result, v.report.Result}, func(a, b Result) int { return cmp.Compare(slices.Index(worst, a), slices.Index(worst, b)) })
		r.Volumes = append(r.Volumes, v.report)
	}
	slices.SortStableFunc(r.Volumes, func(a, b VolumeReport) int { return cmp.Compare(b.Result.ExitCode(), a.Result.ExitCode()) })
	return true, nil
}

// notFound says that there is no such object, and what it left attached.
func (e *explainer) notFound() *diagnosis.Diagnosis {
	asked := func(kind Kind, name string) bool {
		return e.question.Name == name && (e.question.Kind == kind || e.question.Kind == "")
	}
	for _, d := range e.view.Drivers {
		for _, u := range d.Dangling {
			if asked(VolumeAttachment, u.VolumeAttachment) || asked(PersistentVolume, u.PersistentVolume) {
				left := u.Diagnose(d.Name)
				left.Verdict, left.Object, left.Fact = diagnosis.ObjectNotFound, e.question.String(), "does not exist any more, and "+left.Fact
				return new(e.finding(left))
			}
		}
	}
	next := "Check the spelling: csi-attach-hub status lists the drivers."
	if e.question.Kind != Driver {
		next = "Check the spelling and the namespace; a VolumeAttachment is deleted when its volume is detached. csi-attach-hub explain --help lists the kinds."
	}
	return new(found(diagnosis.ObjectNotFound, e.question.String(), "does not exist", next))
}
