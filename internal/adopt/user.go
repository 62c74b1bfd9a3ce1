package adopt

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// User is as whom a container opens the socket.
type User struct {
	UID     *int64 // nil: that of the image
	GID     *int64 // nil: that of the image
	NonRoot bool   // the kubelet refuses to start the container as root
	FSGroup *int64 // of the Pod's volumes
	SELinux *corev1.SELinuxOptions
	// Assigned: the cluster chooses user and fsGroup when it admits the Pod, as OpenShift does.
	Assigned   bool
	Privileged bool
}

// userOf returns the effective user of a container: its own security context counts before the Pod's.
func userOf(pod corev1.PodSpec, c corev1.Container) User {
	var u User
	if p := pod.SecurityContext; p != nil {
		u = User{UID: p.RunAsUser, GID: p.RunAsGroup, FSGroup: p.FSGroup, NonRoot: p.RunAsNonRoot != nil && *p.RunAsNonRoot}
	}
	if own := c.SecurityContext; own != nil {
		if own.RunAsUser != nil {
			u.UID = own.RunAsUser
		}
		if own.RunAsGroup != nil {
			u.GID = own.RunAsGroup
		}
		if own.RunAsNonRoot != nil {
			u.NonRoot = *own.RunAsNonRoot
		}
		u.SELinux = own.SELinuxOptions
		u.Privileged = own.Privileged != nil && *own.Privileged
	}
	return u
}

// RunsAs returns as whom the proxy runs.
func (p Plan) RunsAs() User {
	u := p.User
	u.Assigned = p.Options.OpenShift
	if u.UID == nil {
		u.UID = p.Options.RunAsUser
	}
	return u
}

// takesRoot reports whether root is taken because the manifest names no user.
func (p Plan) takesRoot() bool {
	return p.RunsAs().UID == nil && !p.User.NonRoot && !p.Options.OpenShift
}

// AsUser describes as whom the proxy runs.
func (p Plan) AsUser() string {
	text := p.RunsAs().String()
	if p.takesRoot() && !strings.HasPrefix(p.Container.Image, "registry.k8s.io/sig-storage/") {
		text += ", the user of csi-attacher's image; if this image has another, add --run-as-user"
	}
	return text
}

// Known reports whether the manifest says the user. Without any setting it is root: csi-attacher's image has no
// other user.
func (u User) Known() bool { return u.UID != nil || !u.NonRoot || u.Assigned }

// ID returns the user ID, root if the manifest has none.
func (u User) ID() int64 { return ptr.Deref(u.UID, 0) }

// String describes a user.
func (u User) String() string {
	switch {
	case u.UID != nil:
		return fmt.Sprint(*u.UID)
	case u.Known():
		return "not set, which is root"
	}
	return "that of the image, not root"
}

// KeyMode returns the file mode of a mounted key. The kubelet makes the files of a Secret as root, and as the
// fsGroup's if the Pod has one. Another user without an fsGroup can read them only if everybody may: no other container
// mounts the volume.
func (u User) KeyMode() int32 {
	switch {
	case u.Assigned && u.UID == nil:
		return 0o440
	case u.ID() == 0:
		return 0o400
	case u.FSGroup != nil:
		return 0o440
	default:
		return 0o444
	}
}
