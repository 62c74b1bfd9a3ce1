package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
)

// The outputs of adopt. Those that are folders are written as KIND=DIR.
const (
	outputText         = "text"
	outputJSON         = "json"
	outputKustomize    = "kustomize"
	outputFlux         = "flux"
	outputPostRenderer = "helm-post-renderer"
	outputHelmPlugin   = "helm-plugin"
)

// adoptOutput is what --output says.
type adoptOutput struct {
	kind string
	dir  string // of outputs that are folders
}

// parseOutput checks the flags that depend on each other. It returns the inputs without the folder: as kubectl users
// write it, that of -o kustomize DIR is the last argument.
func (f adoptFlags) parseOutput(inputs []string) (adoptOutput, []string, error) {
	var problems []error
	fail := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !slices.Contains(adopt.Modes, f.options.Mode) {
		fail("--mode %q: write proxy, drop-in or sidecar-hub", f.mode)
	}
	if !slices.Contains(adopt.AllCertificates, f.options.Certificates) {
		fail("--certificates %q: write cert-manager or existing", f.certs)
	}
	kind, dir, hasDir := strings.Cut(f.output, "=")
	isFolder := slices.Contains([]string{outputKustomize, outputFlux, outputHelmPlugin}, kind)
	switch {
	case !isFolder && (hasDir || !slices.Contains([]string{outputText, outputJSON, outputPostRenderer}, kind)):
		fail("--output %q: write text, json, kustomize=DIR, flux=DIR, helm-post-renderer or helm-plugin=DIR", f.output)
	case isFolder && !hasDir && len(inputs) > 1:
		dir, inputs = inputs[len(inputs)-1], inputs[:len(inputs)-1]
		if err := checkFolder(dir); err != nil {
			fail("--output %s: the last argument, %s, is taken as the folder, and it %w: write -o %[1]s=DIR", kind, dir, err)
		}
	case isFolder && dir == "":
		fail("--output %s: the folder is missing: write -o %s=DIR", f.output, kind)
	}
	steps := f.options.Mode.Steps()
	switch {
	case kind != outputPostRenderer && f.step != "":
		fail("--step is only for -o helm-post-renderer: the other outputs have all steps")
	case kind == outputPostRenderer && !slices.Contains(steps, adopt.Step(f.step)):
		names := make([]string, len(steps))
		for i, s := range steps {
			names[i] = "--step " + string(s)
		}
		fail("--step %q: write %s", f.step, strings.Join(names, " or "))
	}
	if (kind == outputPostRenderer || kind == outputHelmPlugin) && !strings.Contains(f.options.Image, "/") {
		fail("--image %q names no registry, and %s changes a release without another look: write --image with the image that the nodes can pull, as in --image registry.example.com/csi-attach-hub:v1", f.options.Image, kind)
	}
	switch {
	case kind == outputPostRenderer && len(inputs) > 0 && !slices.Equal(inputs, []string{"-"}):
		fail("INPUT %s: helm-post-renderer reads stdin only: write - or nothing", strings.Join(inputs, " "))
	case kind != outputPostRenderer && len(inputs) == 0:
		fail("INPUT is missing: name a file or a folder with the driver's manifests, or - for stdin")
	}
	return adoptOutput{kind, dir}, inputs, errors.Join(problems...)
}

// write writes an output that is no filter. Its error is an exitError if some csi-attacher cannot be adopted.
func (o adoptOutput) write(c *cobra.Command, inputs []string, f adoptFlags, plans []adopt.Plan) error {
	refused := adopt.Refusals(plans)
	flags := f.repeated()
	var content []byte
	var files adopt.Files
	var err error
	switch o.kind {
	case outputText:
		content = adopt.Text(plans, adopt.Arguments{Inputs: inputs, Flags: flags})
	case outputJSON:
		content, err = adopt.JSON(plans)
	default:
		if !slices.ContainsFunc(plans, adopt.Plan.Adoptable) {
			return exitError{exitRefused, fmt.Errorf("%w\nnothing is written to %s", refused, o.dir)}
		}
		if err = adopt.CheckOriginal(plans); err == nil {
			files, err = o.files(plans, flags)
		}
	}
	if err != nil {
		return err
	}
	if files != nil {
		if err := o.checkDrivers(plans); err != nil {
			return errors.Join(refused, err)
		}
		result, err := writeFiles(o.dir, files)
		if err != nil {
			return err
		}
		content = []byte(result)
	}
	if _, err := c.OutOrStdout().Write(content); err != nil {
		return err
	}
	switch {
	case refused == nil:
		return nil
	case files == nil:
		return exitError{code: exitRefused} // the output says why
	}
	return exitError{exitRefused, refused}
}

func (o adoptOutput) files(plans []adopt.Plan, flags []string) (adopt.Files, error) {
	switch o.kind {
	case outputKustomize:
		return adopt.Kustomize(plans, o.dir)
	case outputFlux:
		return adopt.Flux(plans)
	}
	return adopt.HelmPlugin(plans, flags)
}

// repeated returns the given flags of adopt, but those of its output.
func (f adoptFlags) repeated() []string {
	var all []string
	f.set.Visit(func(flag *pflag.Flag) {
		if slices.Contains([]string{"output", "step"}, flag.Name) {
			return
		}
		values := []string{flag.Value.String()}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, value := range values {
			all = append(all, "--"+flag.Name+"="+value)
		}
	})
	return all
}

// postRender filters the manifests of a chart. It prints nothing if it fails.
func postRender(c *cobra.Command, inputs []string, f adoptFlags) error {
	input, err := io.ReadAll(c.InOrStdin())
	if err != nil {
		return fmt.Errorf("stdin: %w", err)
	}
	objects, err := readInputs(bytes.NewReader(input), []string{"-"})
	if err != nil {
		return err
	}
	if adopt.OnlyHooks(objects) {
		_, err = c.OutOrStdout().Write(input)
		return err
	}
	if adopt.HasProxies(objects) {
		return errors.New("stdin: the manifests have a proxy of csi-attach-hub already: pass them as the chart renders them, and run the post-renderer once")
	}
	plans, err := f.plansOf(c, objects, []string{"stdin; leave csi-attacher in the values of the chart, because the step active removes it"})
	if err != nil {
		return err
	}
	for _, p := range plans {
		if p.Workload.GetNamespace() == "" && !f.set.Changed("namespace") {
			return fmt.Errorf("%s: metadata.namespace is missing: name the namespace of the release with --namespace", p.Workload.Object)
		}
	}
	if err := adopt.Refusals(plans); err != nil {
		return exitError{exitRefused, err}
	}
	out, err := adopt.PostRender(input, objects, plans, adopt.Step(f.step))
	if err != nil {
		return err
	}
	_, err = c.OutOrStdout().Write(out)
	return err
}
