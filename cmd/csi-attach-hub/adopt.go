package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

const adoptHelp = `Read the manifests of CSI drivers, and print what moves each driver from its csi-attacher to the hub.

INPUT is a file or a folder with what "helm template" or "kubectl kustomize" prints; "-" reads stdin.
KIND/NAME is a workload of the cluster, as deploy/ebs-csi-controller; a file of that name takes precedence.
Nothing is changed in a cluster.`

// adoptFlags are the flags of the command adopt.
type adoptFlags struct {
	options adopt.Options
	mode    string
	output  string
	step    string
	certs   string
	user    int64
	live    adoptLive
}

func newAdoptCommand() *cobra.Command {
	var f adoptFlags
	c := newCommand("adopt INPUT...", "Print what moves a driver from its csi-attacher to the hub", nil)
	c.Long = adoptHelp
	c.Args = cobra.MinimumNArgs(1)
	flags, o := c.Flags(), &f.options
	flags.StringVarP(&f.output, "output", "o", "text", "output `format`: text, kustomize=DIR or helm-post-renderer")
	flags.StringVar(&f.mode, "mode", string(adopt.ModeProxy), "`way` of the hub to the driver: proxy, drop-in or sidecar-hub")
	flags.StringVar(&f.step, "step", string(adopt.StepActive), "`state` of the driver's manifest with helm-post-renderer: observe keeps csi-attacher, active removes it")
	flags.StringVar(&o.Image, "image", "csi-attach-hub", "`image` of the hub, with registry and tag or digest")
	flags.StringVarP(&o.Namespace, "namespace", "n", "default", "`namespace` of objects that name none, and of KIND/NAME; there the default is the current one of the kubeconfig")
	f.live.add(flags)
	flags.StringArrayVar(&o.Drivers, "driver", nil, "`name` of the driver where the manifests do not say it; CONTAINER=NAME or WORKLOAD/CONTAINER=NAME if there are several csi-attachers; may be repeated")
	flags.Int32Var(&o.Port, "port", 0, "`port` of the proxy, the next one is for its health; without it 9443, or on the host network one that follows from the driver's name")
	flags.StringArrayVar(&o.NodeCIDRs, "node-cidr", nil, "address `range` of nodes, for drivers on the host network; may be repeated; without it all addresses")
	flags.StringVar(&f.certs, "certificates", string(adopt.CertManager), "`maker` of the proxy's certificates: cert-manager, or existing for a Secret of your own")
	flags.StringArrayVar(&o.Secrets, "secret", nil, "`name` of a Secret that attaching needs, NAME or NAMESPACE/NAME; may be repeated")
	flags.Int64Var(&f.user, "run-as-user", 0, "user `ID` of the driver's socket where the manifest does not say it")
	flags.BoolVar(&o.OpenShift, "openshift", false, "let the cluster choose the user of containers where the manifest does not say it")
	flags.BoolVar(&o.WithoutLeaderElection, "without-leader-election", false, "adopt a csi-attacher that takes no Lease: only the order of the steps keeps it apart from the hub")
	c.RunE = func(c *cobra.Command, inputs []string) error {
		if c.Flags().Changed("run-as-user") {
			o.RunAsUser = &f.user
		}
		o.Mode, o.Certificates = adopt.Mode(f.mode), adopt.Certificates(f.certs)
		return runAdopt(c, inputs, f)
	}
	return c
}

func runAdopt(c *cobra.Command, inputs []string, f adoptFlags) error {
	if !slices.Contains(adopt.Modes, f.options.Mode) {
		return fmt.Errorf("--mode %q: write proxy, drop-in or sidecar-hub", f.mode)
	}
	if !slices.Contains(adopt.AllCertificates, f.options.Certificates) {
		return fmt.Errorf("--certificates %q: write cert-manager or existing", f.certs)
	}
	files, names := splitInputs(inputs)
	objects, err := readInputs(c.InOrStdin(), files)
	if err != nil {
		return err
	}
	live, err := f.live.read(c, names)
	if err != nil {
		return err
	}
	objects = append(objects, live...)
	attachers, err := adopt.Find(objects, f.options.Namespace, sidecarFlags)
	if err != nil {
		return err
	}
	attachers = append(attachers, adopt.FindDeployers(objects, f.options.Namespace, attachers)...)
	if len(attachers) == 0 {
		return fmt.Errorf("no csi-attacher in the Deployments, StatefulSets and DaemonSets of %s", strings.Join(inputs, ", "))
	}
	plans, err := f.live.decide(c, attachers, objects, f.options)
	if err != nil {
		return err
	}
	switch kind, dir, _ := strings.Cut(f.output, "="); kind {
	case "text":
		_, err = c.OutOrStdout().Write(adopt.Text(plans))
		return err
	case "kustomize":
		files, err := adopt.Kustomize(plans)
		if err != nil {
			return err
		}
		return writeFiles(dir, files)
	case "helm-post-renderer":
		out, err := adopt.PostRender(objects, plans, adopt.Step(f.step))
		if err == nil {
			_, err = c.OutOrStdout().Write(out)
		}
		return err
	}
	return fmt.Errorf("--output %q: write text, kustomize=DIR or helm-post-renderer", f.output)
}

// readInputs reads the objects of files, of all YAML and JSON files of folders, and of stdin ("-").
func readInputs(stdin io.Reader, inputs []string) ([]adopt.Object, error) {
	var all []adopt.Object
	var problems []error
	read := func(name string, r io.Reader) {
		objects, err := adopt.Read(name, r)
		all, problems = append(all, objects...), append(problems, err)
	}
	for _, input := range inputs {
		if input == "-" {
			read("stdin", stdin)
			continue
		}
		err := filepath.WalkDir(input, func(path string, d fs.DirEntry, err error) error {
			isManifest := path == input || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
			if err != nil || d.IsDir() || !isManifest {
				return err
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			read(path, file)
			return nil
		})
		problems = append(problems, err)
	}
	return all, errors.Join(problems...)
}

// writeFiles writes files below a folder, which it makes. It overwrites only files that adopt has written.
func writeFiles(dir string, files adopt.Files) error {
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
