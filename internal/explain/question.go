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

// kinds are the kinds by prefix, with the prefixes of kubectl.
var kinds = map[string]Kind{
	"va": VolumeAttachment, "volumeattachment": VolumeAttachment, "volumeattachments": VolumeAttachment,
	"pv": PersistentVolume, "persistentvolume": PersistentVolume, "persistentvolumes": PersistentVolume,
	"pvc": PersistentVolumeClaim, "persistentvolumeclaim": PersistentVolumeClaim, "persistentvolumeclaims": PersistentVolumeClaim,
	"po": Pod, "pod": Pod, "pods": Pod,
	"driver": Driver, "drivers": Driver, "csidriver": Driver, "csidrivers": Driver,
	"no": Node, "node": Node, "nodes": Node,
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
	prefix, rest, prefixed := strings.Cut(text, "/")
	if !prefixed {
		if text == "" {
			return Question{}, fmt.Errorf("no object given: %s", forms)
		}
		return Question{Kind: VolumeAttachment, Name: text}, nil
	}
	kind, known := kinds[strings.ToLower(prefix)]
	if !known {
		return Question{}, fmt.Errorf("unknown kind %q: %s", prefix, forms)
	}
	q := Question{Kind: kind, Name: rest}
	if kind == Pod || kind == PersistentVolumeClaim {
		q.Namespace = namespace
		if before, after, both := strings.Cut(rest, "/"); both {
			q.Namespace, q.Name = before, after
		}
		if q.Namespace == "" || q.Name == "" {
			return Question{}, fmt.Errorf("%q has no namespace or no name: write %[2]s/NAMESPACE/NAME or %[2]s/NAME", text, strings.ToLower(prefix))
		}
	}
	if q.Name == "" || strings.Contains(q.Name, "/") {
		return Question{}, fmt.Errorf("%q is not a name: %s", text, forms)
	}
	return q, nil
}

// String returns "Kind namespace/name", or "Kind name".
func (q Question) String() string {
	return ref(q.Kind, q.Namespace, q.Name)
}

// ref returns the name of an object for people.
func ref(kind Kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return string(kind) + " " + name
}
