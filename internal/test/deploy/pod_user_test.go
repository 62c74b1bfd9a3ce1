package deploy_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// containerUser is as whom a container runs.
type containerUser struct {
	uid, gid int64
	groups   []int64 // further ones
	confined bool    // no capability can be gained
	noNew    bool    // no_new_privs
}

// userOf returns the user of a container, or the reason for which the kubelet does not start it. Images of this
// project have the user 65532, the variant -root and all others have root.
func userOf(pod corev1.PodSpec, c corev1.Container) (containerUser, error) {
	var u containerUser
	if name := imageName(c.Image); strings.HasPrefix(name, "csi-attach-") && !strings.HasSuffix(c.Image, "-root") {
		u.uid, u.gid = 65532, 65532
	}
	nonRoot := false
	setUser := func(uid *int64) {
		if uid != nil {
			u.uid, u.gid = *uid, 0 // the image does not have the user, so the group is root's
		}
	}
	setGroup := func(gid *int64) {
		if gid != nil {
			u.gid = *gid
		}
	}
	var podGroup, ownGroup *int64
	if s := pod.SecurityContext; s != nil {
		setUser(s.RunAsUser)
		podGroup = s.RunAsGroup
		nonRoot = s.RunAsNonRoot != nil && *s.RunAsNonRoot
		u.groups = slices.Clone(s.SupplementalGroups)
		if s.FSGroup != nil {
			u.groups = append(u.groups, *s.FSGroup)
		}
	}
	if s := c.SecurityContext; s != nil {
		setUser(s.RunAsUser)
		ownGroup = s.RunAsGroup
		if s.RunAsNonRoot != nil {
			nonRoot = *s.RunAsNonRoot
		}
		u.confined = s.Capabilities != nil && slices.Contains(s.Capabilities.Drop, "ALL") && (s.Privileged == nil || !*s.Privileged)
		u.noNew = s.AllowPrivilegeEscalation != nil && !*s.AllowPrivilegeEscalation
	}
	setGroup(podGroup)
	setGroup(ownGroup)
	if nonRoot && u.uid == 0 {
		return u, errors.New("CreateContainerConfigError: container has runAsNonRoot and runs as root")
	}
	return u, nil
}

// setpriv returns the arguments of the program setpriv that make it run a program as this user. The program ends with
// the test.
func (u containerUser) setpriv() []string {
	groups := "--clear-groups"
	if len(u.groups) > 0 {
		groups = "--groups=" + strings.Trim(strings.ReplaceAll(fmt.Sprint(u.groups), " ", ","), "[]")
	}
	args := []string{fmt.Sprintf("--reuid=%d", u.uid), fmt.Sprintf("--regid=%d", u.gid), groups, "--pdeathsig=KILL"}
	if u.confined { // root without capabilities is no more than the owner of its files
		args = append(args, "--bounding-set=-all", "--inh-caps=-all")
	}
	if u.noNew {
		args = append(args, "--no-new-privs")
	}
	return args
}
