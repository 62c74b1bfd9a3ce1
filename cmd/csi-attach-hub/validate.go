package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const validateHelp = `Check drivers.yaml files without contacting anything: print every mistake and warning with its line.

A DIR is a folder as --config takes it: all its *.yaml together are one configuration. A FILE is a drivers.yaml, or Kubernetes manifests
with a ConfigMap that holds one, or the files of a folder, under its keys *.yaml. Other objects are ignored. "-" reads stdin:

  kubectl -n csi-attach-hub get configmap csi-attach-hub-drivers -o yaml | csi-attach-hub validate -
  helm template csi-attach-hub deploy/chart -f mine.yaml | csi-attach-hub validate -

The exit code is 1 if a file has a mistake. Warnings do not change it.

With -o json, stdout has one object:

  {"files": [{"file": "drivers.yaml", "valid": false, "drivers": [],
    "errors": [{"file": "drivers.yaml", "line": 14, "path": "drivers[1].timeout", "message": "..."}],
    "warnings": []}]}

"drivers" has the names of the listed drivers; it is empty if the file is not valid. "line" is
missing if the whole file is meant, "path" if no value is meant. If a ConfigMap has the text in
quotes, "file" of a mistake is "MANIFEST:LINE: KEY", and "line" counts within the text.`

func newValidateCommand() *cobra.Command {
	var output string
	c := newCommand("validate FILE|DIR...", "Check drivers.yaml files, folders or ConfigMaps with them (- for stdin)", nil)
	c.RunE = withExitCode(func(c *cobra.Command, files []string) error {
		if err := oneOf("output", output, "text", "json"); err != nil {
			return err
		}
		return validate(c, files, output == "json")
	})
	c.Long = validateHelp
	c.Args = cobra.MinimumNArgs(1)
	c.Flags().StringVarP(&output, "output", "o", "text", "output `format`, text or json")
	return c
}

// validated is the result for one file in JSON. Its lists are never null.
type validated struct {
	File     string    `json:"file"`
	Valid    bool      `json:"valid"`
	Errors   []mistake `json:"errors"`
	Warnings []mistake `json:"warnings"`
	Drivers  []string  `json:"drivers"`
}

type mistake struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

func validate(c *cobra.Command, files []string, asJSON bool) error {
	var results struct {
		Files []validated `json:"files"`
	}
	var problems []error
	for _, file := range files {
		v, err := validateFile(c, file, asJSON)
		results.Files = append(results.Files, v)
		problems = append(problems, err)
	}
	err := errors.Join(problems...)
	if !asJSON {
		return err
	}
	if failed := printJSON(c.OutOrStdout(), results); failed != nil || err == nil {
		return failed
	}
	exit := exitError{code: exitTrouble}
	errors.As(err, &exit)
	return exitError{code: exit.code}
}

// validateFile checks a file. It prints the result, except the error, unless it is printed as JSON.
func validateFile(c *cobra.Command, file string, asJSON bool) (validated, error) {
	var configs []*registry.Config
	var err error
	if file == "-" {
		file = "stdin"
		data, failed := io.ReadAll(c.InOrStdin())
		if configs, err = registry.ParseManifest(file, data); failed != nil {
			configs, err = nil, registry.Errors{{File: file, Message: "cannot be read: " + failed.Error()}}
		}
	} else {
		configs, err = registry.ParseManifestFile(file)
		err = ofFile(file, err)
	}
	v := validated{File: file, Valid: err == nil, Errors: []mistake{}, Warnings: []mistake{}, Drivers: []string{}}
	all, _ := errors.AsType[registry.Errors](err)
	for _, e := range all {
		v.Errors = append(v.Errors, mistake(e))
	}
	for _, config := range configs {
		for _, w := range config.Warnings() {
			v.Warnings = append(v.Warnings, mistake(w))
			if !asJSON {
				fmt.Fprintln(c.ErrOrStderr(), w)
			}
		}
		v.Drivers = slices.AppendSeq(v.Drivers, maps.Keys(config.Drivers()))
	}
	slices.Sort(v.Drivers)
	if v.Valid && !asJSON {
		noun := "drivers"
		if len(v.Drivers) == 1 {
			noun = "driver"
		}
		fmt.Fprintf(c.OutOrStdout(), "%s: ok, %d %s\n", file, len(v.Drivers), noun)
	}
	return v, err
}
