package adopt

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Files are the content of files by their paths below a folder.
type Files map[string][]byte

// The first line of each file of an output, for scripts behind the line with their shell: only such files are
// overwritten.
const (
	written         = "# Written by csi-attach-hub adopt.\n"
	writtenMarkdown = "<!-- Written by csi-attach-hub adopt. -->\n"
	shell           = "#!/bin/sh\n"
)

// IsWritten reports whether a file begins as the files of an output do.
func IsWritten(content []byte) bool {
	content = bytes.TrimPrefix(content, []byte(shell))
	return bytes.HasPrefix(content, []byte(written)) || bytes.HasPrefix(content, []byte(writtenMarkdown))
}

const kustomization = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"

// OriginalKustomization is the file of Kustomize that users may replace by one of their own, which names their own base.
const OriginalKustomization = "original/kustomization.yaml"

// Kustomize returns a folder of kustomizations, each of which `kubectl apply -k` takes:
//
//	original          the workloads as they were read: the way back
//	objects           what the proxies need beside the workloads
//	observe           original with the proxy beside csi-attacher
//	active            observe, without csi-attacher
//	hub/NAME.yaml     the driver of that name, for the hub's folder of drivers
//	prepare.sh        applies objects, and exchanges the CA certificates
//	post-renderer.sh  for Helm
//	README.md         the steps
//
// dir is the path of the folder, for the commands in README.md. The plans must have passed Check.
func Kustomize(plans []Plan, dir string) (Files, error) {
	files := Files{}
	add := func(path string, parts ...string) { files[path] = []byte(written + strings.Join(parts, "")) }
	g := newGuide(plans, dir)
	var original, objects []string
	for _, group := range byWorkload(plans) {
		manifest, err := group[0].Workload.manifest()
		if err != nil {
			return nil, err
		}
		original = append(original, manifest)
	}
	add("original/manifest.yaml", strings.Join(original, "---\n"))
	add(OriginalKustomization, "# The workloads as they were read. To use your own base, name it here, and delete the first line:\n",
		"# then adopt leaves this file alone.\n", kustomization, "resources:\n  - manifest.yaml\n")
	before := "original"
	for _, step := range g.mode().Steps() {
		var patches strings.Builder
		for _, group := range byWorkload(plans) {
			patch, err := workloadPatch(group, step)
			if err != nil {
				return nil, err
			}
			name := group[0].Workload.fileName()
			add(string(step)+"/"+name, string(patch))
			fmt.Fprintf(&patches, "  - path: %s\n    target: %s\n", name, target(group[0].Workload, plans))
		}
		add(string(step)+"/kustomization.yaml", kustomization, "resources:\n  - ../", before, "\npatches:\n", patches.String())
		before = string(step)
	}
	scripts := []string{"README.md", "post-renderer.sh"}
	if g.Proxy() {
		scripts = append(scripts, "prepare.sh")
		for _, p := range g.Plans {
			add("hub/"+p.fileName(), p.File())
			text, err := p.objects()
			if err != nil {
				return nil, err
			}
			objects = append(objects, text)
		}
		add("objects/objects.yaml", strings.Join(objects, "---\n"))
		add("objects/kustomization.yaml", kustomization, "resources:\n  - objects.yaml\n")
	}
	for _, name := range scripts {
		text, err := execute(strings.ToLower(name), g)
		if err != nil {
			return nil, err
		}
		files[name] = []byte(text)
	}
	return files, nil
}

// fileName returns the name of a file for a workload. No two workloads have the same: a dot is in neither a kind nor
// a namespace.
func (w *Workload) fileName() string {
	return fmt.Sprintf("%s.%s.%s.yaml", strings.ToLower(w.GetKind()), w.Namespace, w.GetName())
}

// target selects a workload for its patch. The namespace is in it only where two workloads have one name: a base of the
// user may set the namespace later, or name none.
func target(w *Workload, plans []Plan) string {
	text := fmt.Sprintf("{kind: %s, name: %s", w.GetKind(), strconv.Quote(regexp.QuoteMeta(w.GetName())))
	if slices.ContainsFunc(plans, func(p Plan) bool {
		return p.Workload.GetKind() == w.GetKind() && p.Workload.GetName() == w.GetName() && p.Workload.Namespace != w.Namespace
	}) {
		text += fmt.Sprintf(", namespace: %q", w.Namespace)
	}
	return text + "}"
}

// manifest returns the workload as it was read. It names its namespace, so that the way back leads there too.
func (w *Workload) manifest() (string, error) {
	o := w.DeepCopy()
	o.SetNamespace(w.Namespace)
	text, err := yaml.Marshal(o.Object)
	if err != nil {
		return "", fmt.Errorf("%s: %w", w.Object, err)
	}
	return string(text), nil
}

// fileName returns the name of the driver's file in the hub's folder of drivers.
func (p Plan) fileName() string { return p.Driver + ".yaml" }

// File returns a DriverConfig with the driver, for the hub's folder of drivers. The driver begins in mode observe.
func (p Plan) File() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "    "+format+"\n", args...) }
	fmt.Fprintf(&b, "apiVersion: attach-hub/v1alpha1\nkind: DriverConfig\ndrivers:\n  - name: %s\n", yamlString(p.Driver))
	line("endpoint: %s", yamlString(fmt.Sprintf("tcp://%s.%s.svc:%d", p.Base(), p.Workload.Namespace, p.Ports.Listen)))
	line("tls: {caFile: /tls/%s.crt, certFile: /tls/tls.crt, keyFile: /tls/tls.key, serverName: %s}", p.Driver, p.Base())
	line("mode: observe")
	if p.Flags.LeaderElection {
		line("lease: {namespace: %s} # of csi-attacher's Lease", yamlString(p.LeaseNamespace()))
	} else { // said, because validate warns of an active entry that leaves it open
		line(`lease: {namespace: ""} # csi-attacher takes no Lease: the hub's is in its own namespace`)
	}
	if len(p.Secrets) > 0 {
		line("secrets: [%s] # that its volumes may name for attaching", strings.ReplaceAll(strings.Trim(fmt.Sprintf("%q", p.Secrets), "[]"), " ", ", "))
	}
	seen := map[string]bool{}
	for _, s := range p.Flags.Settings { // those of one mapping together, where its first is
		key, _, nested := strings.Cut(s.Key, ".")
		switch {
		case !nested:
			line("%s: %s # %s", s.Key, s.Value, s.Flag)
		case !seen[key]:
			seen[key] = true
			line("%s:", key)
			for _, other := range p.Flags.Settings {
				if name, is := strings.CutPrefix(other.Key, key+"."); is {
					line("  %s: %s # %s", name, other.Value, other.Flag)
				}
			}
		}
	}
	return b.String()
}
