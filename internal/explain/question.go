package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
)

// Question names the object to explain.
type Question struct {
	Kind      Kind   `json:"kind"` // empty in a question until the one object of the name is found
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Kind is the kind of the object of a question.
type Kind string

// The kinds of a question.
const (
	VolumeAttachment      Kind = "VolumeAttachment"
	PersistentVolume      Kind = "PersistentVolume"
	PersistentVolumeClaim Kind = "PersistentVolumeClaim"
	Pod                   Kind = "Pod"
	Driver                Kind = "driver"
	Node                  Kind = "Node"
)

// kinds are the kinds by prefix, with the prefixes of kubectl in the singular.
var kinds = map[string]Kind{
	"va": VolumeAttachment, "volumeattachment": VolumeAttachment, "pv": PersistentVolume, "persistentvolume": PersistentVolume,
	"pvc": PersistentVolumeClaim, "persistentvolumeclaim": PersistentVolumeClaim, "po": Pod, "pod": Pod,
	"driver": Driver, "csidriver": Driver, "no": Node, "node": Node,
}

// forms are the questions that can be asked.
const forms = "give pod NAME, pod NAMESPACE/NAME, pvc NAME, pv NAME, driver NAME, node NAME, or a name that only one of these or a VolumeAttachment has"

// mostNames is how many objects a bad question names.
const mostNames = 5

// ParseQuestion parses KIND/NAME, or NAME of an object of any kind. Pods and claims may be given as
// KIND/NAMESPACE/NAME; namespace is the one of those without.
func ParseQuestion(text, namespace string) (Question, error) {
	prefix, name, prefixed := strings.Cut(text, "/")
	if !prefixed && text != "" {
		return Question{Namespace: namespace, Name: text}, nil
	}
	kind, known := kinds[strings.TrimSuffix(strings.ToLower(prefix), "s")]
	if !known {
		return Question{}, fmt.Errorf("unknown kind %q: %s", prefix, forms)
	}
	q := Question{Kind: kind, Name: name}
	namespaced := kind == Pod || kind == PersistentVolumeClaim
	if namespaced {
		q.Namespace = namespace
		if before, after, both := strings.Cut(name, "/"); both {
			q.Namespace, q.Name = before, after
		}
	}
	if q.Name == "" || strings.Contains(q.Name, "/") || namespaced && q.Namespace == "" {
		return Question{}, fmt.Errorf("%q is not a name: %s", text, forms)
	}
	return q, nil
}

// String returns "Kind namespace/name", or "Kind name".
func (q Question) String() string { return ref(q.Kind, q.Namespace, q.Name) }

// ref returns the name of an object for people.
func ref(kind Kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(string(kind) + " " + name)
}

// resolve finds the object that a name without a kind means, or that the beginning of a VolumeAttachment's name means. If
// several could be meant, it returns them.
func (e *explainer) resolve(ctx context.Context) (several []string) {
	q := e.question
	if q.Kind != "" && q.Kind != VolumeAttachment {
		return nil
	}
	storage := e.Kube.StorageV1()
	exact := one(ctx, &e.reader, VolumeAttachment, "", q.Name, storage.VolumeAttachments().Get)
	if exact.value != nil {
		e.question.Kind, e.question.Namespace = VolumeAttachment, ""
		return nil
	}
	e.question.Namespace = ""
	var meant []Question
	if q.Kind == "" {
		for other, exists := range map[Question]bool{
			{Pod, q.Namespace, q.Name}:                   e.podNamed(ctx, q.Namespace, q.Name).value != nil,
			{PersistentVolumeClaim, q.Namespace, q.Name}: e.persistentVolumeClaim(ctx, q.Namespace, q.Name).value != nil,
			{PersistentVolume, "", q.Name}:               e.persistentVolume(ctx, q.Name).value != nil || len(items(e.ofVolume(ctx, q.Name))) > 0, // it may have been deleted by force
			{Node, "", q.Name}:                           e.nodeNamed(ctx, q.Name).value != nil,
			{Driver, "", q.Name}:                         e.view.Driver(q.Name) != nil || e.view.Unserved[q.Name] > 0 || one(ctx, &e.reader, "CSIDriver", "", q.Name, storage.CSIDrivers().Get).value != nil,
		} {
			if exists {
				meant = append(meant, other)
			}
		}
	}
	if len(meant) == 0 && exact.missing {
		for _, begun := range items(e.attachments(ctx, func(va *storagev1.VolumeAttachment) bool { return strings.HasPrefix(va.Name, q.Name) })) {
			meant = append(meant, Question{VolumeAttachment, "", begun.Name})
		}
	}
	if len(meant) == 1 {
		e.question = meant[0]
		return nil
	}
	for _, m := range meant {
		several = append(several, m.String())
	}
	slices.Sort(several)
	return several
}
