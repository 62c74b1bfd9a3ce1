package deploy_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// asAdmittedByRestrictedV2 sets what the security context constraint restricted-v2 of OpenShift gives a Pod that asks for nothing else.
func asAdmittedByRestrictedV2(pod *corev1.PodSpec) {
	user := int64(1000650000) // the first of the namespace's range
	pod.SecurityContext.FSGroup = &user
	pod.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c26,c5"}
	for i := range pod.Containers {
		pod.Containers[i].SecurityContext.RunAsUser = &user
	}
}

// A Pod that asks for a user or for more than restricted-v2 gives is refused: its ServiceAccount may use no other constraint.
func TestRestrictedV2OfOpenShiftAdmitsTheHub(t *testing.T) {
	deployment := as[appsv1.Deployment](t, find(t, objectsOf(t, withOpenShift), "Deployment", "csi-attach-hub"))
	if scc := deployment.Spec.Template.Annotations["openshift.io/required-scc"]; scc != "restricted-v2" {
		t.Errorf("the required constraint is %q", scc)
	}
	pod := deployment.Spec.Template.Spec
	if s := pod.SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || s.SELinuxOptions != nil {
		t.Errorf("the Pod asks for a user: %+v", s)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the Pod asks for a namespace of the host")
	}
	for _, v := range pod.Volumes {
		if s := v.VolumeSource; s.ConfigMap == nil && s.Projected == nil && s.Secret == nil && s.EmptyDir == nil {
			t.Errorf("volume %s is of a kind that the constraint does not allow: %+v", v.Name, s)
		}
	}
	for _, c := range pod.Containers {
		s := c.SecurityContext
		if s.RunAsUser != nil || s.RunAsGroup != nil || s.Privileged != nil || *s.AllowPrivilegeEscalation {
			t.Errorf("container %s asks for a user or privileges: %+v", c.Name, s)
		}
		if !slices.Contains(s.Capabilities.Drop, "ALL") || seccomp(pod, c) != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("container %s has capabilities or no seccomp profile: %+v", c.Name, s)
		}
		if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }) {
			t.Errorf("container %s asks for ports of the host", c.Name)
		}
	}
}
