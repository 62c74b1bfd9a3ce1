package adopt

import (
	"cmp"
	"fmt"
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
		"apiVersion": "v1", "type": "postrenderer/v1", "name": folderName(plans), "version": "1.0.0",
		"runtime": "subprocess", "runtimeConfig": map[string]any{"platformCommand": []any{command}},
	})
	if err != nil {
		return nil, err
	}
	files := Files{}
	files.add("plugin.yaml", "# Install it with: helm plugin install FOLDER. Then: helm upgrade ... --post-renderer ", folderName(plans),
		" --post-renderer-args=--step=", string(plans[0].Options.Mode.Steps()[0]), "\n", string(content))
	return files, nil
}
