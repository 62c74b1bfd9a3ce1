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

const adoptHelp = `Read the manifests of CSI drivers, and print what moves each driver from its csi-attacher to the hub: the verdict, the
entry of drivers.yaml, and each step with its commands. Nothing is changed in a cluster.

INPUT is a file or a folder with what "helm template" or "kubectl kustomize" prints; "-" reads stdin.
KIND/NAME is a workload of the cluster, as deploy/ebs-csi-controller; a file of that name takes precedence.

Outputs:
  text                 explain each csi-attacher and each step
  json                 the same as data: {"attachers": [...]}
  kustomize=DIR        write kustomizations: DIR/observe, DIR/active, DIR/original, DIR/hub
  flux=DIR             write patches for a HelmRelease, and objects for a Kustomization
  helm-post-renderer   filter: read the manifests of a chart from stdin, and print them as they are at --step
  helm-plugin=DIR      write a plugin with this post-renderer, for Helm 4

DIR can also be the last argument: adopt INPUT... -o kustomize DIR. Then it must be absent, empty, or written by adopt.

A folder gets an output again at any time: files of the earlier run are replaced or removed. Files that adopt has not
written are never overwritten. A folder with the output for another driver is left alone. An output needs the manifest
from before adopt: a workload that has the proxy or the hub already is an error.

Exit codes:
  0  every csi-attacher can be adopted
  1  a csi-attacher cannot be adopted; the other outputs are written for the others, helm-post-renderer prints nothing
  2  there is no answer: the command line or the input has a mistake, the input has no csi-attacher, or a file
     cannot be written`

const adoptExamples = `  helm template ebs aws-ebs-csi-driver/aws-ebs-csi-driver -n kube-system | csi-attach-hub adopt -
  csi-attach-hub adopt controller.yaml --image registry.example.com/csi-attach-hub:v1 -o kustomize=ebs
  csi-attach-hub adopt controller.yaml -o json | jq '.attachers[] | select(.adoptable | not) | .reasons'
  helm template ebs aws-ebs-csi-driver/aws-ebs-csi-driver -n kube-system \
    | csi-attach-hub adopt - -n kube-system --image registry.example.com/csi-attach-hub:v1 -o helm-post-renderer --step observe`

// adoptFlags are the flags of the command adopt.
type adoptFlags struct {
	options adopt.Options
	mode    string
	output  string
	step    string
	certs   string
	user    int64
	set     *pflag.FlagSet // knows which flags were given
	live    adoptLive
}

func newAdoptCommand() *cobra.Command {
	var f adoptFlags
	c := newCommand("adopt INPUT...", "Print what moves a driver from its csi-attacher to the hub", nil)
	c.Long, c.Example = adoptHelp, adoptExamples
	flags, o := c.Flags(), &f.options
	f.set = flags
	flags.StringVarP(&f.output, "output", "o", "text", "output `format`: text, json, kustomize=DIR, flux=DIR, helm-post-renderer or helm-plugin=DIR")
	flags.StringVar(&f.mode, "mode", string(adopt.ModeProxy), "`way` of the hub to the driver: proxy, drop-in or sidecar-hub")
	flags.StringVar(&f.step, "step", "", "`state` of the manifests with helm-post-renderer: observe keeps csi-attacher, active removes it")
	flags.StringVar(&o.Image, "image", "csi-attach-hub", "`image` of the hub, with registry and tag or digest")
	flags.StringVarP(&o.Namespace, "namespace", "n", "default", "`namespace` of objects that name none, and of KIND/NAME; there the default is the current one of the kubeconfig")
	flags.StringVar(&o.HubNamespace, "hub-namespace", adopt.DefaultHubNamespace, "`namespace` of the hub, in mode proxy")
	f.live.add(flags)
	flags.StringArrayVar(&o.Drivers, "driver", nil, "`name` of the driver where the manifests do not say it; CONTAINER=NAME or WORKLOAD/CONTAINER=NAME if there are several csi-attachers; may be repeated")
	flags.Int32Var(&o.Port, "port", 0, "`port` of the proxy, the next one is for its health; without it 9443, or on the host network one that follows from the driver's name")
	flags.StringArrayVar(&o.NodeCIDRs, "node-cidr", nil, "address `range` of nodes, for drivers on the host network; may be repeated; without it all addresses")
	flags.StringVar(&f.certs, "certificates", string(adopt.CertManager), "`maker` of the proxy's certificates: cert-manager, or existing for a Secret of your own")
	flags.StringArrayVar(&o.Secrets, "secret", nil, "`name` of a Secret that attaching needs, NAME or NAMESPACE/NAME; may be repeated")
	flags.Int64Var(&f.user, "run-as-user", 0, "user `ID` of the driver's socket where the manifest does not say it")
	flags.BoolVar(&o.OpenShift, "openshift", false, "let the cluster choose the user of containers where the manifest does not say it")
	flags.BoolVar(&o.WithoutLeaderElection, "without-leader-election", false, "adopt a csi-attacher that takes no Lease: only the order of the steps keeps it apart from the hub")
	flags.BoolVar(&o.OtherPolicies, "other-policies", false, "another network policy selects the driver's Pods for Ingress: the driver's policy opens only the port of the proxy")
	// A mistake in the command line must not have the exit code of an answer.
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return unadopted(err) })
	c.RunE = func(c *cobra.Command, inputs []string) error {
		if flags.Changed("run-as-user") {
			o.RunAsUser = &f.user
		}
		o.Mode, o.Certificates = adopt.Mode(f.mode), adopt.Certificates(f.certs)
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

func runAdopt(c *cobra.Command, inputs []string, f adoptFlags) error {
	out, inputs, err := f.parseOutput(inputs)
	if err != nil {
		return err
	}
	if out.kind == outputPostRenderer {
		return postRender(c, inputs, f)
	}
	plans, err := f.plans(c, inputs)
	if err != nil {
		return err
	}
	return out.write(c, inputs, f, plans)
}

// plans reads the inputs and decides. There is a plan at least.
func (f adoptFlags) plans(c *cobra.Command, inputs []string) ([]adopt.Plan, error) {
	files, names := splitInputs(inputs)
	objects, err := readInputs(c.InOrStdin(), files)
	if err != nil {
		return nil, err
	}
	live, err := f.live.read(c, names)
	if err != nil {
		return nil, err
	}
	return f.plansOf(c, append(objects, live...), inputs)
}

// plansOf decides about the csi-attachers of objects.
func (f adoptFlags) plansOf(c *cobra.Command, objects []adopt.Object, inputs []string) ([]adopt.Plan, error) {
	attachers, err := adopt.Find(objects, f.options.Namespace, sidecarFlags)
	if err != nil {
		return nil, err
	}
	attachers = append(attachers, adopt.FindDeployers(objects, f.options.Namespace, attachers)...)
	if len(attachers) == 0 {
		return nil, fmt.Errorf("no csi-attacher in the Deployments, StatefulSets and DaemonSets of %s", strings.Join(inputs, ", "))
	}
	plans, err := f.live.decide(c, attachers, objects, f.options)
	if err != nil {
		return nil, err
	}
	return plans, adopt.Check(plans)
}

// manifestEndings are those of the files that are read in folders.
var manifestEndings = []string{".yaml", ".yml", ".json"}

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
			isManifest := path == input || slices.Contains(manifestEndings, filepath.Ext(path))
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
