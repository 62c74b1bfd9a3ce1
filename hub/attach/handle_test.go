package attach

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestVolumeIsInUseByEachNameThatAKubeletGivesIt(t *testing.T) {
	const disk = "projects/UNSPECIFIED/zones/z/disks/d"
	for name, c := range map[string]struct {
		driver, handle string
		used           corev1.UniqueVolumeName
		want           bool
	}{
		"CSI":                   {"a.example.com", "v", "kubernetes.io/csi/a.example.com^v", true},
		"another volume":        {"a.example.com", "v", "kubernetes.io/csi/a.example.com^vv", false},
		"another driver":        {"a.example.com", "v", "kubernetes.io/csi/b.example.com^v", false},
		"migrated":              {gcePD, disk, "kubernetes.io/csi/" + gcePD + "^" + disk, true},
		"in-tree":               {gcePD, disk, "kubernetes.io/gce-pd/d", true},
		"in-tree, another disk": {gcePD, disk, "kubernetes.io/gce-pd/dd", false},
		"in-tree, with a path":  {"ebs.csi.aws.com", "vol-1", "kubernetes.io/aws-ebs/aws://z/vol-1", true},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{Status: corev1.NodeStatus{VolumesInUse: []corev1.UniqueVolumeName{"kubernetes.io/x", c.used}}}
			if got := (Driver{Name: c.driver}).InUse(node, c.handle); got != c.want {
				t.Errorf("in use: %v, want %v", got, c.want)
			}
		})
	}
}
