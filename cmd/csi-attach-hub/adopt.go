package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

const adoptHelp = `Read the manifests of CSI drivers, and print whether and how each driver moves from its csi-attacher to the hub: the
verdict, what was found, and the driver's file for the hub. Nothing is changed in a cluster.

INPUT is a file with what "helm template", "helm get manifest" or "kubectl kustomize" prints; "-" reads stdin.
"-o kustomize=DIR" writes a folder with a kustomization for each step. DIR/README.md has the steps. Files that adopt has
not written are never overwritten.

The exit code is 0 if every csi-attacher can be adopted, else 1.`

const adoptExamples = `  helm get manifest ebs -n kube-system | csi-attach-hub adopt - -n kube-system
  csi-attach-hub adopt controller.yaml --image registry.example.com/csi-attach-proxy:v1 -o kustomize=ebs`

func newAdoptCommand() *cobra.Command {
	var o adopt.Options
	var output string
	var user int64
	c := newCommand("adopt INPUT...", "Print what moves a driver from its csi-attacher to the hub", nil)
	c.Long, c.Example, c.Args = adoptHelp, adoptExamples, cobra.MinimumNArgs(1)
	flags := c.Flags()
	flags.StringVarP(&output, "output", "o", "text", "output `format`: text or kustomize=DIR")
	flags.StringVar((*string)(&o.Mode), "mode", string(adopt.ModeProxy), "`way` of the hub to the driver: proxy or drop-in")
	flags.StringVar(&o.Image, "image", "", "`image` of csi-attach-proxy, or of csi-attach-hub in mode drop-in, with registry and tag or digest")
	flags.StringVarP(&o.Namespace, "namespace", "n", "", "`namespace` of objects that name none")
	flags.StringVar(&o.HubNamespace, "hub-namespace", adopt.DefaultHubNamespace, "`namespace` of the hub, in mode proxy")
	flags.StringArrayVar(&o.Drivers, "driver", nil, "`name` of the driver where the manifests do not say it; CONTAINER=NAME if there are several csi-attachers; may be repeated")
	flags.Int32Var(&o.Port, "port", 0, "`port` of the proxy, the next one is for its health; without it 9443, or on the host network one that follows from the driver's name")
	flags.BoolVar(&o.OwnSecrets, "own-certificates", false, "the proxy's certificate is in a Secret of your own, and not made by cert-manager")
	flags.StringArrayVar(&o.Secrets, "secret", nil, "`name` of a Secret that attaching needs: NAME, NAMESPACE/NAME or NAMESPACE/*; may be repeated")
	flags.Int64Var(&user, "run-as-user", 0, "user `ID` of the driver's socket where the manifest does not say it")
	flags.BoolVar(&o.Unmanaged, "unmanaged", false, "the driver is installed by yourself, and not managed by the provider whose marks are in its manifest")
	flags.BoolVar(&o.OpenShift, "openshift", false, "let the cluster choose the user of containers where the manifest does not say it")
	c.RunE = withExitCode(func(c *cobra.Command, inputs []string) error {
		if flags.Changed("run-as-user") {
			o.RunAsUser = &user
		}
		if !flags.Changed("image") {
			o.Image = adopt.DefaultImage(o.Mode)
		}
		dir, isFolder := strings.CutPrefix(output, "kustomize=")
		if !isFolder && output != "text" || isFolder && dir == "" {
			return exitError{exitUsage, fmt.Errorf("--output %q: write text or kustomize=DIR", output)}
		}
		plans, err := adoptPlans(c.InOrStdin(), inputs, o)
		if err != nil {
			return err
		}
		refused, text := adopt.Refusals(plans), ""
		switch {
		case !isFolder:
			text, err = adopt.Text(plans)
			if refused != nil {
				refused = exitError{code: exitTrouble} // the text says why
			}
		case slices.ContainsFunc(plans, adopt.Plan.Adoptable):
			text, err = writeAdopted(dir, plans)
		default:
			err = fmt.Errorf("nothing is written to %s", dir)
		}
		_, failed := io.WriteString(c.OutOrStdout(), text)
		return errors.Join(refused, err, failed)
	})
	return c
}

// adoptPlans reads the inputs and decides. There is a plan at least.
func adoptPlans(stdin io.Reader, inputs []string, o adopt.Options) ([]adopt.Plan, error) {
	var objects []adopt.Object
	var problems []error
	for _, input := range inputs {
		read, err := readInput(stdin, input)
		objects, problems = append(objects, read...), append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	attachers, err := adopt.Find(objects, o.Namespace, sidecarFlags)
	if err == nil {
		err = withCode(exitUsage, o.Check(attachers))
	}
	if err == nil && len(attachers) == 0 {
		text := "no csi-attacher in the Deployments, StatefulSets and DaemonSets (apps/v1) of " + strings.Join(inputs, ", ")
		err = errors.New(strings.Join(append([]string{text}, adopt.MadeElsewhere(objects, o)...), "\n"))
	}
	return adopt.NewPlans(attachers, objects, o), err
}

// buildCommands print the manifests of a folder that has the file.
var buildCommands = map[string]string{
	"Chart.yaml":         "helm template RELEASE %s -n NAMESPACE",
	"kustomization.yaml": "kubectl kustomize %s",
	"kustomization.yml":  "kubectl kustomize %s",
	"Kustomization":      "kubectl kustomize %s",
}

// readInput reads the objects of a file, or of stdin ("-").
func readInput(stdin io.Reader, input string) ([]adopt.Object, error) {
	if input == "-" {
		return adopt.Read("stdin", stdin)
	}
	dir := input
	if buildCommands[filepath.Base(input)] != "" {
		dir = filepath.Dir(input)
	}
	if info, err := os.Stat(input); err == nil && (info.IsDir() || dir != input) {
		for name, command := range buildCommands {
			if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
				return nil, fmt.Errorf("%s: is no manifest: pass what `"+command+"` prints", input, dir)
			}
		}
		return nil, fmt.Errorf("%s: is a folder: pass the files in it", input)
	}
	file, err := os.Open(input)
	if err != nil {
		return nil, ofFile(input, err)
	}
	defer file.Close()
	return adopt.Read(input, file)
}

// writeAdopted writes what adopt has for the plans below a folder, which it makes. It writes nothing if a file is in the
// way. It returns what it has done, a line for the user.
func writeAdopted(dir string, plans []adopt.Plan) (string, error) {
	files, err := adopt.Kustomize(plans, dir)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("%s is written; the steps are in %s\n", dir, filepath.Join(dir, "README.md"))
	if o := plans[0].Options; !o.HasRegistry() {
		text = fmt.Sprintf("The image in it is %s, without a registry: add --image to name the image that the nodes can pull\n", o.Image) + text
	}
	if own, err := os.ReadFile(filepath.Join(dir, adopt.OriginalKustomization)); err == nil && !adopt.IsWritten(own) {
		// It names the user's own base.
		maps.DeleteFunc(files, func(name string, _ []byte) bool { return filepath.Dir(name) == "original" })
		text = "original is yours and stays as it is; " + text
	}
	var problems []error
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if content, err := os.ReadFile(filepath.Join(dir, name)); err == nil && !adopt.IsWritten(content) {
			problems = append(problems, fmt.Errorf("%s: was not written by adopt, so it is not overwritten: move it, or write to another folder", filepath.Join(dir, name)))
		}
	}
	earlier, _ := filepath.Glob(filepath.Join(dir, "hub", "*.yaml")) // no error: it is a correct pattern
	for _, path := range earlier {
		if files["hub/"+filepath.Base(path)] == nil {
			problems = append(problems, fmt.Errorf("%s: the folder is for this driver: write to another folder, or delete this one to replace it", path))
		}
	}
	if len(problems) > 0 {
		return "", fmt.Errorf("%w\nnothing is written", errors.Join(problems...))
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(content, []byte("#!")) {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, content, mode); err != nil {
			return "", err
		}
	}
	return text, nil
}
