package adopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// folderName returns the name of the folder with the files of the drivers, after the first of them: the files of another
// driver do not replace its way back. The plugin of Helm has it too: letters, digits and '-'.
func folderName(plans []Plan) string {
	for _, p := range plans {
		if p.Adoptable() {
			return Base(cmp.Or(p.Driver, p.Workload.GetName()))
		}
	}
	return hubName
}

// HelmPlugin returns the folder of a plugin for Helm 4, which takes no other post-renderer, with what the hub needs beside
// the plugin. flags are those of adopt without its output. The plugin finds csi-attach-hub in $PATH.
func HelmPlugin(plans []Plan, flags []string) (Files, error) {
	args := append([]string{"adopt", "-", "--output=helm-post-renderer"}, flags...)
	for _, arg := range args {
		// Helm replaces variables in arguments, and has no way to write a dollar sign.
		if strings.Contains(arg, "$") {
			return nil, fmt.Errorf("%q: a plugin of Helm cannot pass a dollar sign", arg)
		}
	}
	command := map[string]any{"command": "csi-attach-hub", "args": args}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "type": "postrenderer/v1", "name": folderName(plans), "version": "1.0.0",
		"runtime": "subprocess", "runtimeConfig": map[string]any{"platformCommand": []any{command}},
	})
	if err != nil {
		return nil, err
	}
	files := Files{}
	files.add("plugin.yaml", "# Install it with: helm plugin install FOLDER. Then: helm upgrade ... --post-renderer ", folderName(plans),
		" --post-renderer-args=--step=", string(plans[0].Options.Mode.Steps()[0]), "\n", string(content))
	return files, files.addHub(plans)
}

// withImage returns flags of adopt with an image that a post-renderer takes: a word to replace if there is none.
func withImage(flags []string, image string) []string {
	if strings.Contains(image, "/") {
		return flags
	}
	flags = slices.DeleteFunc(slices.Clone(flags), func(flag string) bool { return strings.HasPrefix(flag, "--image=") })
	return append(flags, "--image=REGISTRY/csi-attach-hub:TAG")
}

// chartValues returns the values by which the chart of the hub lets it reach the proxies, in YAML.
func chartValues(plans []Plan) []string {
	ports := []int32{podPorts(0).Listen} // that of the chart, for other drivers
	var onNodes []int32
	for _, p := range plans {
		switch {
		case !p.Adoptable():
		case p.HostNetwork():
			onNodes = append(onNodes, p.Ports.Listen)
		case !slices.Contains(ports, p.Ports.Listen):
			ports = append(ports, p.Ports.Listen)
		}
	}
	list := func(ports []int32) string { return strings.ReplaceAll(fmt.Sprint(ports), " ", ", ") }
	values := []string{"proxies:", "  enabled: true", "  ports: " + list(ports)}
	if len(onNodes) > 0 {
		values = append(values, "  hostNetwork:")
		for _, cidr := range plans[0].NodeCIDRs() {
			values = append(values, fmt.Sprintf("    - {cidr: %q, ports: %s}", cidr, list(onNodes)))
		}
	}
	return values
}
