package explain

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// flagValue returns the value of a flag of a container, "" if it has none.
func flagValue(c corev1.Container, flag string) string {
	args := slices.Concat(c.Command, c.Args)
	for i, arg := range args {
		name, value, set := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || name != flag {
			continue
		}
		if !set && i+1 < len(args) {
			return args[i+1]
		}
		return value
	}
	return ""
}

// mountedVolume returns the volume of a Pod with a file of a container, nil if there is none.
func mountedVolume(pod *corev1.PodSpec, c corev1.Container, file string) *corev1.Volume {
	for _, m := range c.VolumeMounts {
		if file == "" || m.MountPath != file && path.Clean(m.MountPath) != path.Dir(file) {
			continue
		}
		if i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name }); i >= 0 {
			return &pod.Volumes[i]
		}
	}
	return nil
}
