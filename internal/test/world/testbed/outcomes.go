package testbed

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// AllAttached holds when there are n VolumeAttachments or more and all are
// attached and none is being deleted.
func AllAttached(n int) func([]*storagev1.VolumeAttachment) bool {
	return func(all []*storagev1.VolumeAttachment) bool {
		return len(all) >= n && !slices.ContainsFunc(all, func(va *storagev1.VolumeAttachment) bool {
			return !va.Status.Attached || va.DeletionTimestamp != nil
		})
	}
}

// NoneLeft holds when there are no objects.
func NoneLeft[T runtime.Object](all []T) bool { return len(all) == 0 }

// VolumesAttached counts the volumes in status.volumesAttached of all nodes.
func VolumesAttached(nodes []*corev1.Node) int {
	n := 0
	for _, node := range nodes {
		n += len(node.Status.VolumesAttached)
	}
	return n
}

func summarizeVolumeAttachments(all []*storagev1.VolumeAttachment) string {
	var attached, deleting int
	var waiting []string
	errs := map[string]string{}
	for _, va := range all {
		switch {
		case va.DeletionTimestamp != nil:
			deleting++
			waiting = append(waiting, va.Name)
			if e := va.Status.DetachError; e != nil {
				errs[va.Name] = e.Message
			}
		case va.Status.Attached:
			attached++
		default:
			waiting = append(waiting, va.Name)
			if e := va.Status.AttachError; e != nil {
				errs[va.Name] = e.Message
			}
		}
	}
	text := fmt.Sprintf("%d VolumeAttachments: %d attached, %d being deleted, %d with an error", len(all), attached, deleting, len(errs))
	if len(waiting) > 0 {
		slices.Sort(waiting)
		text += "; not there yet: " + firstFew(waiting)
	}
	for _, name := range waiting {
		if message := errs[name]; message != "" {
			return text + "; error of " + name + ": " + message
		}
	}
	return text
}

// summarize says how many objects there are.
func summarize[T runtime.Object](all []T) string { return fmt.Sprintf("%d of %T", len(all), *new(T)) }

func firstFew(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
