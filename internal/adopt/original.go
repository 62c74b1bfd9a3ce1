package adopt

import (
	"errors"
	"fmt"
	"path"
	"strings"
)

// CheckOriginal returns an error with every workload that an earlier run of adopt has changed. An output has the workload
// as it was read, as the way back: from a changed one nothing would lead back to the driver without the hub.
func CheckOriginal(plans []Plan) error {
	var problems []error
	seen := map[*Workload]bool{}
	for _, p := range plans {
		if has := p.changedBefore(); has != "" && !seen[p.Workload] {
			seen[p.Workload] = true
			problems = append(problems, fmt.Errorf("%s: has %s already: pass the manifest from before adopt, as the chart or the vendor makes it, or original/manifest.yaml of the earlier output",
				p.Workload.Object, has))
		}
	}
	return errors.Join(problems...)
}

// changedBefore returns what a step has put into the workload, "" for nothing.
func (p Plan) changedBefore() string {
	for _, c := range p.Workload.containers() {
		if strings.HasPrefix(c.Name, basePrefix) {
			return "the container " + c.Name + " of csi-attach-hub"
		}
		for _, e := range c.Env {
			if c.Name == p.deployer && e.Name == p.imageVariable && p.isHub(e.Value) {
				return "the image of csi-attach-hub in the variable " + e.Name
			}
		}
	}
	if c := p.Container.Command; p.isHub(p.Container.Image) || len(c) > 0 && c[0] == hubProgram {
		return "the image of csi-attach-hub in the container " + p.Container.Name
	}
	return ""
}

// isHub reports whether an image is the hub's, of any version.
func (p Plan) isHub(image string) bool {
	name := repository(image)
	return path.Base(name) == hubName || name == repository(p.Options.Image)
}

// repository returns the name of an image without its tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if colon := strings.LastIndex(image, ":"); colon > strings.LastIndex(image, "/") {
		return image[:colon]
	}
	return image
}
