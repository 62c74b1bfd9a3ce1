package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
)

// liveTimeout bounds all requests of the command adopt.
const liveTimeout = 30 * time.Second

// adoptLive reads workloads of the cluster.
type adoptLive struct {
	client clientFlags
	api    adopt.API // nil if no workload of the cluster is asked for
}

func (l *adoptLive) add(set *pflag.FlagSet) { l.client.addAccess(set, ", for KIND/NAME") }

// splitInputs splits the inputs into files and workloads of the cluster. A file that exists is never a workload.
func splitInputs(inputs []string) (files []string, live []adopt.LiveName) {
	for _, input := range inputs {
		_, err := os.Lstat(input)
		if name, ok := adopt.ParseLiveName(input); ok && errors.Is(err, os.ErrNotExist) {
			live = append(live, name)
		} else {
			files = append(files, input)
		}
	}
	return files, live
}

// read reads workloads of the cluster. It blocks for up to liveTimeout.
func (l *adoptLive) read(c *cobra.Command, names []adopt.LiveName) ([]adopt.Object, error) {
	if len(names) == 0 {
		return nil, nil
	}
	if flag := c.Flags().Lookup("namespace"); flag.Changed { // its default is for files
		l.client.namespace = flag.Value.String()
	}
	namespace, err := l.client.askedNamespace()
	if err != nil {
		return nil, err
	}
	config, err := l.client.kube()
	if err != nil {
		return nil, err
	}
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	l.api = restAPI{client}
	ctx, cancel := context.WithTimeout(c.Context(), liveTimeout)
	defer cancel()
	var objects []adopt.Object
	var problems []error
	for _, name := range names {
		o, err := adopt.ReadLive(ctx, l.api, name, namespace)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		objects = append(objects, o)
	}
	return objects, errors.Join(problems...)
}

// decide makes the plans, also by what the cluster says about the attachers that were read from it. It writes a warning
// for what it may not or cannot read there. It blocks for up to liveTimeout.
func (l *adoptLive) decide(c *cobra.Command, attachers []adopt.Attacher, objects []adopt.Object, o adopt.Options) ([]adopt.Plan, error) {
	if err := o.Check(attachers); err != nil {
		return nil, err
	}
	if l.api != nil {
		ctx, cancel := context.WithTimeout(c.Context(), liveTimeout)
		defer cancel()
		about, warnings := adopt.ReadAbout(ctx, l.api, attachers)
		for _, warning := range warnings {
			fmt.Fprintln(c.ErrOrStderr(), "Warning:", terminal.Line(warning))
		}
		objects = append(slices.Clip(objects), about...)
	}
	plans := adopt.NewPlans(attachers, objects, o)
	return plans, adopt.CheckTogether(plans)
}

// restAPI is the adopt.API of a cluster. It needs no types of the API: those of the group apps would make the program
// larger.
type restAPI struct{ client *rest.RESTClient }

func (a restAPI) Get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	request := a.client.Get().AbsPath(path)
	for key := range query {
		request.Param(key, query.Get(key))
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil { // says more than the error of Raw
		return nil, err
	}
	return result.Raw()
}
