package adopt

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// keep writes how the change stays where a tool makes the manifest again and again.
func (b *page) keep(plans []Plan, a Arguments) {
	step := "--step=" + string(plans[0].Options.Mode.Steps()[0])
	b.heading(1, keepTitle)
	text := "Change the manifest where it is made: the next upgrade or sync undoes a change that is made only in the cluster. " +
		"The steps stay the same. In place of kubectl apply -k, use one of these. Leave csi-attacher in the values of the chart: "
	if plans[0].Options.Mode == ModeDropIn {
		text += "the image is replaced in its container."
	} else {
		text += "the step active removes it, and a chart without csi-attacher is an error, because the change would be lost."
	}
	b.say(text)
	b.say("Helm and Argo CD run the program as csi-attach-hub: it must be in their PATH under this name.")
	own := a
	a.Flags = withImage(a.Flags, plans[0].Options.Image)
	first := plans[slices.IndexFunc(plans, Plan.Adoptable)]
	release, namespace := first.release()
	flags := slices.Clone(a.Flags)
	given := slices.ContainsFunc(flags, func(flag string) bool { return strings.HasPrefix(flag, "--namespace=") })
	if !given {
		flags = append(flags, "--namespace="+namespace)
	}
	review := shellLine(slices.Concat([]string{"csi-attach-hub", "adopt", "-"}, flags))
	flags = append(flags, "--output=helm-post-renderer", step)
	plugin := folderName(plans) + "-plugin"
	b.heading(2, "Helm 4")
	b.code("sh", false, append([]string{a.command("helm-plugin=" + plugin), "helm plugin install ./" + plugin},
		helmUpgrade(first, folderName(plans), plans[0].Options.Mode.Steps()[0])...)...)
	b.say("VERSION is that of the installed chart, which helm list prints. The next command explains what Helm has installed, and why a post-renderer has failed, which Helm 4 does not print:")
	b.code("sh", false, fmt.Sprintf("helm get manifest %s -n %s | %s", release, namespace, review))
	b.heading(2, "Helm 3")
	lines := []string{helmCommand(first) + ` --post-renderer csi-attach-hub --post-renderer-args=adopt \`}
	for _, flag := range flags {
		lines = append(lines, "  --post-renderer-args="+quoted(flag)+` \`)
	}
	lines[len(lines)-1] = strings.TrimSuffix(lines[len(lines)-1], ` \`)
	b.code("sh", false, lines...)
	if plans[0].Options.Mode == ModeProxy {
		b.say("Helm changes the driver's release only. The folders of the plugin and of -o kustomize have hub and drivers.yaml for the overlay of the hub. If the hub is a release of its chart, add the entry to its value drivers, and add these values, beside the ports of other drivers:")
		b.code("yaml", false, chartValues(plans)...)
	}
	b.heading(2, "Argo CD")
	argo := shellLine(append([]string{"csi-attach-hub", "adopt"}, flags...))
	if !given {
		argo = strings.Replace(argo, "--namespace="+namespace, `--namespace="$ARGOCD_APP_NAMESPACE"`, 1)
	}
	b.say("With the folder of -o kustomize: name the chart under helmCharts in " + OriginalKustomization + ". Or with a config management plugin:")
	called := b.asCalled
	b.asCalled = nil // Argo CD finds the program in the PATH of its container
	b.code("yaml", false, "generate:", "  command: [sh, -c]", "  args:",
		`    - helm template "$ARGOCD_APP_NAME" . -n "$ARGOCD_APP_NAMESPACE" --include-crds |`,
		"      "+argo)
	b.asCalled = called
	b.heading(2, "Flux")
	b.say("This writes patches for HelmRelease.spec.postRenderers, and the objects for a Kustomization:")
	b.code("sh", false, own.command("flux="+folderName(plans)+"-flux"))
}

var shellWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// quoted returns a word as a shell takes it.
func quoted(word string) string {
	if shellWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// shellLine returns words as a shell takes them.
func shellLine(words []string) string {
	var all []string
	for _, word := range words {
		all = append(all, quoted(word))
	}
	return strings.Join(all, " ")
}
