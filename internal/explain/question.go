package explain

import (
	"fmt"
	"strings"
)

// Kind is the kind of the object of a question.
type Kind string

// The kinds of a question.
const (
	VolumeAttachment      Kind = "VolumeAttachment"
	PersistentVolume      Kind = "PersistentVolume"
	PersistentVolumeClaim Kind = "PersistentVolumeClaim"
	Pod                   Kind = "Pod"
)

// kinds are the kinds by prefix, with the prefixes of kubectl.
var kinds = map[string]Kind{
	"va": VolumeAttachment, "volumeattachment": VolumeAttachment, "volumeattachments": VolumeAttachment,
	"pv": PersistentVolume, "persistentvolume": PersistentVolume, "persistentvolumes": PersistentVolume,
	"pvc": PersistentVolumeClaim, "persistentvolumeclaim": PersistentVolumeClaim, "persistentvolumeclaims": PersistentVolumeClaim,
	"po": Pod, "pod": Pod, "pods": Pod,
}

// Question names the object to explain.
type Question struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// ParseQuestion parses NAME of a VolumeAttachment, pv/NAME, pvc/NAMESPACE/NAME or
// pod/NAMESPACE/NAME.
func ParseQuestion(text string) (Question, error) {
	const forms = "write the name of a VolumeAttachment, pv/NAME, pvc/NAMESPACE/NAME or pod/NAMESPACE/NAME"
	prefix, rest, prefixed := strings.Cut(text, "/")
	if !prefixed {
		if text == "" {
			return Question{}, fmt.Errorf("nothing is asked for: %s", forms)
		}
		return Question{Kind: VolumeAttachment, Name: text}, nil
	}
	kind, known := kinds[strings.ToLower(prefix)]
	if !known {
		return Question{}, fmt.Errorf("%q is no kind that can be explained: %s", prefix, forms)
	}
	q := Question{Kind: kind, Name: rest}
	if kind == Pod || kind == PersistentVolumeClaim {
		q.Namespace, q.Name, _ = strings.Cut(rest, "/")
		if q.Namespace == "" || q.Name == "" {
			return Question{}, fmt.Errorf("%q has no namespace or no name: write %s/NAMESPACE/NAME", text, strings.ToLower(prefix))
		}
	}
	if q.Name == "" || strings.Contains(q.Name, "/") {
		return Question{}, fmt.Errorf("%q is no name: %s", text, forms)
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
	return string(kind) + " " + name
}
