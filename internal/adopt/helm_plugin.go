package adopt

import (
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// pluginName returns the name of the plugin of Helm: letters, digits and '-'.
func pluginName(plans []Plan) string {
	names := driverNames(plans)
	if len(names) == 0 || names[0] == "" { // a drop-in may have no name
		return hubName
	}
	return Base(names[0])
}

// HelmPlugin returns the folder of a plugin for Helm 4, which takes no other post-renderer. flags are those of adopt
// without its output. The plugin finds csi-attach-hub in $PATH.
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
		"apiVersion": "v1", "type": "postrenderer/v1", "name": pluginName(plans), "version": "1.0.0",
		"runtime": "subprocess", "runtimeConfig": map[string]any{"platformCommand": []any{command}},
	})
	if err != nil {
		return nil, err
	}
	files := Files{}
	files.add("plugin.yaml", "# Install it with: helm plugin install FOLDER. Then: helm upgrade ... --post-renderer ", pluginName(plans),
		" --post-renderer-args=--step=", string(plans[0].Options.Mode.Steps()[0]), "\n", string(content))
	return files, nil
}
