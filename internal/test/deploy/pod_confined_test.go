package deploy_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestTheHubIsConfinedAndHasTimeToDrain(t *testing.T) {
	for _, values := range installations {
		pod := hubOf(t, values).Spec.Template.Spec
		c := pod.Containers[0]
		s := c.SecurityContext
		switch {
		case len(pod.Containers) != 1 || len(pod.InitContainers) > 0:
			t.Errorf("%s: it has %d containers", values, len(pod.Containers))
		case s == nil || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
			t.Errorf("%s: it may gain privileges", values)
		case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
			t.Errorf("%s: it may write its root file system", values)
		case s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0:
			t.Errorf("%s: it has capabilities", values)
		case seccomp(pod, c) != corev1.SeccompProfileTypeRuntimeDefault:
			t.Errorf("%s: it has no seccomp profile", values)
		case c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero():
			t.Errorf("%s: it has no request or no limit of memory", values)
		case *pod.SecurityContext.RunAsNonRoot == (values == withHostSockets): // sockets of drivers belong to root
			t.Errorf("%s: the security context is %v", values, pod.SecurityContext)
		}
		drain, err := time.ParseDuration(argument(t, c.Args, "--shutdown-grace"))
		if err != nil {
			t.Fatal(err)
		}
		// Beyond the calls in flight: leases, the HTTP server, and the watches.
		if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < drain+10*time.Second {
			t.Errorf("%s: killed after %v, with a grace of %v for calls", values, grace, drain)
		}
	}
}

// A Pod that asks for a user, or for more than restricted-v2 gives, is refused: its ServiceAccount may use no other constraint.
func TestRestrictedV2OfOpenShiftAdmitsTheHub(t *testing.T) {
	template := hubOf(t, withOpenShift).Spec.Template
	if scc := template.Annotations["openshift.io/required-scc"]; scc != "restricted-v2" {
		t.Errorf("the required constraint is %q", scc)
	}
	pod := template.Spec
	if s, c := pod.SecurityContext, pod.Containers[0].SecurityContext; s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil || s.SELinuxOptions != nil ||
		c.RunAsUser != nil || c.RunAsGroup != nil || c.Privileged != nil {
		t.Errorf("the Pod asks for a user: %+v, %+v", s, c)
	}
	for _, v := range pod.Volumes {
		if s := v.VolumeSource; s.ConfigMap == nil && s.Projected == nil && s.Secret == nil && s.EmptyDir == nil {
			t.Errorf("volume %s is of a kind that the constraint does not allow: %+v", v.Name, s)
		}
	}
}

// asAdmittedByRestrictedV2 sets what the security context constraint restricted-v2 of OpenShift gives a Pod that asks for nothing else.
func asAdmittedByRestrictedV2(pod *corev1.PodSpec) {
	user := int64(1000650000) // the first of the namespace's range
	pod.SecurityContext.FSGroup = &user
	pod.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0:c26,c5"}
	for i := range pod.Containers {
		pod.Containers[i].SecurityContext.RunAsUser = &user
	}
}

func seccomp(pod corev1.PodSpec, c corev1.Container) corev1.SeccompProfileType {
	if p := c.SecurityContext.SeccompProfile; p != nil {
		return p.Type
	}
	if s := pod.SecurityContext; s != nil && s.SeccompProfile != nil {
		return s.SeccompProfile.Type
	}
	return ""
}

// argument returns the value of a flag.
func argument(t *testing.T, args []string, flag string) string {
	t.Helper()
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, flag+"="); ok {
			return value
		}
	}
	t.Fatalf("%v has no %s", args, flag)
	return ""
}

func hubOf(t *testing.T, values string) *appsv1.Deployment {
	t.Helper()
	return as[appsv1.Deployment](t, find(t, objectsOf(t, values), "Deployment", "csi-attach-hub"))
}
