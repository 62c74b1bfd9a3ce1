package adopt

import (
	"slices"
	"strings"
)

// driverName returns the name of an attacher's driver, "" if nothing says it: from the user, else from the input.
func driverName(a Attacher, all []Attacher, objects []Object, o Options) string {
	for _, given := range o.Drivers {
		container, name, named := strings.Cut(given, "=")
		if named && container == a.Container.Name {
			return name
		}
		if !named && len(all) == 1 {
			return given
		}
	}
	var names []string
	for _, object := range objects {
		if object.GetKind() == "CSIDriver" && !slices.Contains(names, object.GetName()) {
			names = append(names, object.GetName())
		}
	}
	if len(names) == 1 && len(all) == 1 {
		return names[0]
	}
	return ""
}
