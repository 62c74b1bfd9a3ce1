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
const forms = "give the name of a VolumeAttachment, or pod/NAME, pod/NAMESPACE/NAME, pvc/NAME, pv/NAME, driver/NAME or node/NAME"

// Question names the object to explain.
type Question struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// ParseQuestion parses NAME of a VolumeAttachment or KIND/NAME. Pods and claims may be given as
// KIND/NAMESPACE/NAME; namespace is the one of those without.
func ParseQuestion(text, namespace string) (Question, error) {
	prefix, name, prefixed := strings.Cut(text, "/")
	if !prefixed {
		prefix, name = "va", text
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
	return string(kind) + " " + name
}
