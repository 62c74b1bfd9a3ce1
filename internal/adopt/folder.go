package adopt

import (
	"bytes"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// folder is what the templates say about the output. It is for one workload.
type folder struct {
	Plan           // the first
	Plans   []Plan // that can be adopted
	Dir     string // path of the folder, as a shell takes it
	Finding string // what Text says
}

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
//	original          the workload as it was read: the way back
//	objects           what the proxies need beside the workload
//	observe           original with the proxy beside csi-attacher
//	active            observe, without csi-attacher
//	hub/NAME.yaml     the driver of that name, for the hub's folder of drivers
//	prepare.sh        applies objects, and exchanges the CA certificates
//	post-renderer.sh  for Helm; plugin.yaml makes the folder a plugin of Helm 4 with it
//	README.md         the steps
//
// dir is the path of the folder, for the commands in README.md. The plans must have passed Check.
func Kustomize(plans []Plan, dir string) (Files, error) {
	finding, err := execute("finding.txt", plans)
	f := folder{Dir: quoted(terminal.Line(dir)), Finding: strings.ReplaceAll(finding, "```", "'''")} // it is in a block of code
	for _, p := range plans {
		if p.Adoptable() {
			f.Plans = append(f.Plans, p)
		}
		if p.Workload.Source != plans[0].Workload.Source {
			return nil, fmt.Errorf("%s and %s: a folder is for one workload, so that its way back brings no other csi-attacher back: pass the manifest of one of them", plans[0].Workload.Object, p.Workload.Object)
		}
	}
	f.Plan = f.Plans[0]
	files := Files{}
	add := func(path string, parts ...string) { files[path] = []byte(written + strings.Join(parts, "")) }
	render := func(name string, data any) string {
		text, failed := execute(name, data)
		if err == nil {
			err = failed
		}
		return text
	}
	original := f.Workload.DeepCopy()
	original.SetNamespace(f.Workload.Namespace) // the way back leads there too
	original.SetResourceVersion("")             // of a manifest from the cluster: no step could be applied after another change
	manifest, failed := yaml.Marshal(original.Object)
	if failed != nil {
		return nil, fmt.Errorf("%s: %w", f.Workload.Object, failed)
	}
	add("original/manifest.yaml", string(manifest))
	add(OriginalKustomization, "# The workload as it was read. To use your own base, name it here, and delete the first line:\n",
		"# then adopt leaves this file alone.\n", kustomization, "resources:\n  - manifest.yaml\n")
	before := "original"
	for _, step := range f.Options.Mode.Steps() {
		add(step+"/patch.yaml", render(step+".yaml", f))
		// Without the namespace: a base of the user may set it later, or name none.
		target := fmt.Sprintf("{kind: %s, name: %s}", f.Workload.GetKind(), strconv.Quote(regexp.QuoteMeta(f.Workload.GetName())))
		add(step+"/kustomization.yaml", kustomization, "resources:\n  - ../", before, "\npatches:\n  - path: patch.yaml\n    target: ", target, "\n")
		before = step
	}
	scripts := []string{"README.md", "post-renderer.sh", "plugin.yaml"}
	if f.Proxy() {
		scripts = append(scripts, "prepare.sh")
		for _, p := range f.Plans {
			add("hub/"+p.Driver+".yaml", render("driver.yaml", p))
		}
		add("objects/objects.yaml", render("objects.yaml", f))
		add("objects/kustomization.yaml", kustomization, "resources:\n  - objects.yaml\n")
	}
	for _, name := range scripts {
		files[name] = []byte(render(strings.ToLower(name), f))
	}
	return files, err
}

// Containers returns the plans of csi-attachers that are in initContainers, or of the others.
func (f folder) Containers(init bool) []Plan {
	return slices.DeleteFunc(slices.Clone(f.Plans), func(p Plan) bool { return p.Init != init })
}

// Settings returns the lines of the driver's entry for the flags of csi-attacher.
func (p Plan) Settings() (lines []string) {
	settings := slices.Clone(p.Flags.Settings)
	slices.SortStableFunc(settings, func(a, b Setting) int { return strings.Compare(a.Key, b.Key) })
	before := ""
	for _, s := range settings {
		key, name, nested := strings.Cut(s.Key, ".")
		if nested && key != before {
			lines = append(lines, key+":")
		}
		if nested {
			key, name = "  "+name, key
		}
		lines = append(lines, fmt.Sprintf("%s: %s # %s", key, terminal.Line(s.Value), s.Flag))
		before = name
	}
	return lines
}

// portRange are ports of a network policy.
type portRange struct {
	First, Last int32
	Protocol    string
}

// OtherPorts returns all ports of the Pod but those of proxies. It returns none if another network policy says which are
// open: this one must not open what the other closes.
func (f folder) OtherPorts() (others []portRange) {
	if len(f.policies) > 0 {
		return nil
	}
	var closed []int32
	for _, p := range f.Plans {
		closed = append(closed, p.Port, p.Health())
	}
	slices.Sort(closed)
	first := int32(1)
	for _, port := range append(closed, 65536) {
		if first < port {
			others = append(others, portRange{first, port - 1, "TCP"})
		}
		first = port + 1
	}
	return append(others, portRange{1, 65535, "UDP"})
}

// AtHub is the flag of commands that look for the hub, if it is not where they look by themselves.
func (f folder) AtHub() string {
	if f.Options.HubNamespace != DefaultHubNamespace {
		return " --hub-namespace=" + f.Options.HubNamespace
	}
	return ""
}

// Overlaps reports whether a rollout would run csi-attacher in the old Pod and the hub in the new one at the same time,
// with no Lease that keeps them apart. A proxy beside csi-attacher makes no calls of its own.
func (f folder) Overlaps() bool {
	return !f.Proxy() && f.WithoutLease() && f.Workload.GetKind() == "Deployment" && f.Workload.spec.Strategy.Type != "Recreate"
}

// WithoutLease reports whether only the order of the steps keeps some csi-attacher apart from the hub.
func (f folder) WithoutLease() bool {
	return slices.ContainsFunc(f.Plans, func(p Plan) bool { return !p.Flags.LeaderElection })
}

// LeaseWait returns how long the slowest Lease can take until it is free.
func (f folder) LeaseWait() string {
	return slices.MaxFunc(f.Plans, func(x, y Plan) int { return int(x.Flags.LeaseDuration - y.Flags.LeaseDuration) }).LeaseWait()
}

//go:embed templates
var templateFiles embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"yaml": yamlString, "fields": yamlFields, "wrap": wrap,
}).ParseFS(templateFiles, "templates/*"))

func execute(name string, data any) (string, error) {
	var b strings.Builder
	err := templates.ExecuteTemplate(&b, name, data)
	return b.String(), err
}

// yamlFields returns a value as YAML, indented by some spaces.
func yamlFields(indent int, value any) (string, error) {
	text, err := yaml.Marshal(value)
	return strings.ReplaceAll(strings.TrimSuffix(string(text), "\n"), "\n", "\n"+strings.Repeat(" ", indent)), err
}
