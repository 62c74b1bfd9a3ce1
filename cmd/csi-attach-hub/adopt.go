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
	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

const adoptHelp = `Read the manifests of CSI drivers, and print whether and how each driver moves from its csi-attacher to the hub: the
verdict, what was found, and the driver's file for the hub. Nothing is changed in a cluster.

INPUT is a file or a folder with what "helm template" or "kubectl kustomize" prints; "-" reads stdin.

Outputs:
  text           explain each csi-attacher
  kustomize=DIR  write a folder with a kustomization for each step; DIR/README.md has the steps

A folder gets an output again at any time: files of the earlier run are replaced or removed. Files that adopt has not
written are never overwritten. A folder with the output for another driver is left alone. An output needs the manifest
from before adopt: a workload that has the proxy or the hub already is an error.

Exit codes:
  0  every csi-attacher can be adopted
  1  a csi-attacher cannot be adopted; the folder is written for the others
  2  there is no answer: the command line or the input has a mistake, the input has no csi-attacher, or a file
     cannot be written`

const adoptExamples = `  helm get manifest ebs -n kube-system | csi-attach-hub adopt - -n kube-system
  csi-attach-hub adopt controller.yaml --image registry.example.com/csi-attach-proxy:v1 -o kustomize=ebs`

// adoptFlags are the flags of the command adopt.
type adoptFlags struct {
	options adopt.Options
	output  string
	user    int64
}

func newAdoptCommand() *cobra.Command {
	var f adoptFlags
	c := newCommand("adopt INPUT...", "Print what moves a driver from its csi-attacher to the hub", nil)
	c.Long, c.Example = adoptHelp, adoptExamples
	flags, o := c.Flags(), &f.options
	flags.StringVarP(&f.output, "output", "o", "text", "output `format`: text or kustomize=DIR")
	flags.StringVar((*string)(&o.Mode), "mode", string(adopt.ModeProxy), "`way` of the hub to the driver: proxy or drop-in")
	flags.StringVar(&o.Image, "image", "", "`image` of csi-attach-proxy, or of csi-attach-hub in mode drop-in, with registry and tag or digest")
	flags.StringVarP(&o.Namespace, "namespace", "n", "default", "`namespace` of objects that name none")
	flags.StringVar(&o.HubNamespace, "hub-namespace", adopt.DefaultHubNamespace, "`namespace` of the hub, in mode proxy")
	flags.StringArrayVar(&o.Drivers, "driver", nil, "`name` of the driver where the manifests do not say it; CONTAINER=NAME or WORKLOAD/CONTAINER=NAME if there are several csi-attachers; may be repeated")
	flags.Int32Var(&o.Port, "port", 0, "`port` of the proxy, the next one is for its health; without it 9443, or on the host network one that follows from the driver's name")
	flags.StringVar((*string)(&o.Certificates), "certificates", string(adopt.CertManager), "`maker` of the proxy's certificates: cert-manager, or existing for a Secret of your own")
	flags.StringArrayVar(&o.Secrets, "secret", nil, "`name` of a Secret that attaching needs: NAME, NAMESPACE/NAME or NAMESPACE/*; may be repeated")
	flags.Int64Var(&f.user, "run-as-user", 0, "user `ID` of the driver's socket where the manifest does not say it")
	flags.BoolVar(&o.OpenShift, "openshift", false, "let the cluster choose the user of containers where the manifest does not say it")
	// A mistake in the command line must not have the exit code of an answer.
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unadopted(err) })
	c.RunE = func(c *cobra.Command, inputs []string) error {
		if flags.Changed("run-as-user") {
			o.RunAsUser = &f.user
		}
		if !flags.Changed("image") {
			o.Image = adopt.DefaultImage(o.Mode)
		}
		return unadopted(runAdopt(c, inputs, f))
	}
	return c
}

// exitRefused is the exit code of adopt if a csi-attacher cannot be adopted, exitUnadopted if there is no answer.
const (
	exitRefused   = 1
	exitUnadopted = 2
)

// unadopted gives an error the exit code exitUnadopted, unless it has an exit code.
func unadopted(err error) error {
	if _, has := errors.AsType[exitError](err); err == nil || has {
		return err
	}
	return exitError{exitUnadopted, err}
}

// runAdopt prints or writes the output. Its error is an exitError if some csi-attacher cannot be adopted.
func runAdopt(c *cobra.Command, inputs []string, f adoptFlags) error {
	dir, isFolder := strings.CutPrefix(f.output, "kustomize=")
	switch {
	case !isFolder && f.output != "text" || isFolder && dir == "":
		return fmt.Errorf("--output %q: write text or kustomize=DIR", f.output)
	case len(inputs) == 0:
		return errors.New("INPUT is missing: name a file or a folder with the driver's manifests, or - for stdin")
	}
	plans, err := f.plans(c.InOrStdin(), inputs)
	if err != nil {
		return err
	}
	refused := adopt.Refusals(plans)
	if !isFolder {
		_, err := c.OutOrStdout().Write(adopt.Text(plans, append(inputs, repeated(c.Flags())...)))
		if err == nil && refused != nil {
			return exitError{code: exitRefused} // the output says why
		}
		return err
	}
	if !slices.ContainsFunc(plans, adopt.Plan.Adoptable) {
		return exitError{exitRefused, fmt.Errorf("%w\nnothing is written to %s", refused, dir)}
	}
	files, err := adopt.Kustomize(plans, dir)
	if err != nil {
		return err
	}
	result, err := writeFiles(dir, files)
	if err != nil {
		return errors.Join(refused, err)
	}
	if _, err := io.WriteString(c.OutOrStdout(), result); err != nil || refused == nil {
		return err
	}
	return exitError{exitRefused, refused}
}

// plans reads the inputs and decides. There is a plan at least.
func (f adoptFlags) plans(stdin io.Reader, inputs []string) ([]adopt.Plan, error) {
	objects, err := readInputs(stdin, inputs)
	if err != nil {
		return nil, err
	}
	attachers, err := adopt.Find(objects, f.options.Namespace, sidecarFlags)
	if err == nil {
		err = f.options.Check(attachers)
	}
	if err != nil {
		return nil, err
	}
	if len(attachers) == 0 {
		text := "no csi-attacher in the Deployments, StatefulSets and DaemonSets of " + strings.Join(inputs, ", ")
		return nil, errors.New(strings.Join(append([]string{text}, adopt.MadeElsewhere(objects, f.options.Namespace, f.options.Image)...), "\n"))
	}
	plans := adopt.NewPlans(attachers, objects, f.options)
	return plans, adopt.CheckTogether(plans)
}

// repeated returns the given flags of adopt, but those of its output.
func repeated(flags *pflag.FlagSet) []string {
	var all []string
	flags.Visit(func(flag *pflag.Flag) {
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			if flag.Name != "output" {
				all = append(all, "--"+flag.Name+"="+value)
			}
		}
	})
	return all
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
