package view

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/csi-attach-hub/csi-attach-hub/hub/attach"
	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

// heldByOthers returns a VolumeAttachment that needs nothing from its driver, and that the finalizer of another holds after its
// deletion, as one that is being detached.
func (a attachment) heldByOthers(s status.Attachment) status.Attachment {
	if a.DeletionTimestamp == nil || len(a.Finalizers) == 0 || slices.Contains(a.Finalizers, attach.Finalizer(s.Driver)) {
		return s
	}
	s.State, s.Operation, s.Since = status.Waiting, status.Detach, a.DeletionTimestamp.Time
	s.Fault = diagnosis.New(diagnosis.FinalizerOfAnother, "VolumeAttachment "+s.Name, "deleted, and held by a foreign finalizer", strings.Join(a.Finalizers, ", ")+", which no attacher sets",
		"Ask the owner of that finalizer to remove it: the object stays until then.").From(s.Since)
	return s
}

// attachedFault says why a volume that is attached could not be attached again: its PersistentVolume or the node ID of its
// node is not the one that it was attached with.
func (v *View) attachedFault(a attachment, s status.Attachment) diagnosis.Diagnosis {
	noted := a.Annotations[attach.AnnotationVolumeHandle]
	says := func(verdict diagnosis.Verdict, fact, detail, action string) diagnosis.Diagnosis {
		return diagnosis.New(verdict, "PersistentVolume "+s.PersistentVolume, fact, detail+"its volume is still attached", action)
	}
	restore := func() string {
		return fmt.Sprintf("Restore it with the same handle, %s, before the Pod restarts: without it the volume cannot be attached again.", cmp.Or(s.VolumeHandle, "which the storage system knows"))
	}
	switch volume := v.Cluster.VolumeOrDeleted(s.PersistentVolume); {
	case s.PersistentVolume == "":
	case volume == nil || v.Cluster.Volume(s.PersistentVolume) == nil: // volume.Deleted says when its deletion was requested
		return says(diagnosis.VolumeMissing, "does not exist", "", restore())
	case noted != "" && noted != volume.Handle:
		d := says(diagnosis.VolumeRecreated, "was recreated with another handle", volume.Handle+"; ", restore())
		d.Last = volume.Created.Time
		return d
	case volume.Deleted != nil:
		return says(diagnosis.VolumeBeingDeleted, "being deleted", "", "Back up its data before the Pod restarts: a PersistentVolume that is being deleted cannot be attached again. Its persistentVolumeReclaimPolicy decides whether the storage is deleted too: Retain keeps it.").From(volume.Deleted.Time)
	}
	was := a.Annotations[attach.AnnotationNodeID]
	if now, ok := attach.NodeID(v.Cluster.CSINode(s.Node), s.Driver); ok && was != "" && now != was {
		return diagnosis.New(diagnosis.NodeIDChanged, "CSINode "+s.Node, "has a new node ID", fmt.Sprintf("%s; the volume was attached to node ID %s", now, was),
			fmt.Sprintf("Delete the Pod if the machine of node %s was replaced: the volume is then detached from the old machine, and attached to the new one.", s.Node))
	}
	return diagnosis.Diagnosis{}
}

// socketFault says that the socket of a driver is gone while the connection to it lives.
func (d Driver) socketFault() diagnosis.Diagnosis {
	socket, isSocket := strings.CutPrefix(d.Endpoint, "unix://")
	if !d.Up || !isSocket {
		return diagnosis.Diagnosis{}
	}
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		return diagnosis.Diagnosis{}
	}
	return diagnosis.New(diagnosis.SocketMissing, "driver "+d.Name, "its socket "+socket+" is gone, and only the open connection still works", "",
		"Restart the driver's controller, so that it creates the socket again: the hub cannot connect again when this connection ends.")
}
