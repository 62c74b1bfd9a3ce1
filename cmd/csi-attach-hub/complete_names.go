package main

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csi-attach-hub/csi-attach-hub/internal/adopt"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
	"github.com/csi-attach-hub/csi-attach-hub/internal/terminal"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// completionTimeout bounds the time for which a shell waits for names.
const completionTimeout = 2 * time.Second

// namePaths are where the Kubernetes API lists the objects of a question; NAMESPACE stands for the namespace.
var namePaths = map[explain.Kind]string{
	explain.VolumeAttachment:      "/apis/storage.k8s.io/v1/volumeattachments",
	explain.Driver:                "/apis/storage.k8s.io/v1/csidrivers",
	explain.Node:                  "/api/v1/nodes",
	explain.PersistentVolume:      "/api/v1/persistentvolumes",
	explain.PersistentVolumeClaim: "/api/v1/namespaces/NAMESPACE/persistentvolumeclaims",
	explain.Pod:                   "/api/v1/namespaces/NAMESPACE/pods",
}

// questionKinds are offered for the argument of explain.
var questionKinds = []string{"pod/\tvolumes of a Pod", "pvc/\tvolume of a claim", "pv/\tPersistentVolume", "driver/\tCSI driver", "node/\tnode with its drivers and volumes"}

// completeQuestion completes the argument of explain: a kind, a name behind it, or the name of a VolumeAttachment. Without a
// first letter it offers kinds only, because a cluster has thousands of VolumeAttachments.
func completeQuestion(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || c.Flags().Changed("all-stuck") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	f := clientFlagsOf(c)
	if !strings.Contains(typed, "/") {
		found := startingWith(typed, questionKinds)
		if len(found) > 0 {
			return found, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		return startingWith(typed, f.names(c.Context(), namePaths[explain.VolumeAttachment])), cobra.ShellCompDirectiveNoFileComp
	}
	prefix := typed[:strings.LastIndex(typed, "/")+1]
	namespace, err := f.askedNamespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	question, err := explain.ParseQuestion(prefix+"x", namespace) // knows the short names of kinds too
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := f.names(c.Context(), strings.ReplaceAll(namePaths[question.Kind], "NAMESPACE", question.Namespace))
	for i, name := range names {
		names[i] = prefix + name
	}
	return startingWith(typed, names), cobra.ShellCompDirectiveNoFileComp
}

// completeInput completes an input of adopt: a workload of the cluster behind its kind, else a file. As for the command, a file
// takes precedence.
func completeInput(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	kind, _, found := strings.Cut(typed, "/")
	asked, isLive := adopt.ParseLiveName(kind + "/x") // knows the short names of kinds too
	if _, err := os.Lstat(kind); !found || !isLive || err == nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	f := clientFlagsOf(c)
	namespace, err := f.askedNamespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	names := f.names(c.Context(), "/apis/apps/v1/namespaces/"+namespace+"/"+asked.Resource)
	for i, name := range names {
		names[i] = kind + "/" + name
	}
	return startingWith(typed, names), cobra.ShellCompDirectiveNoFileComp
}

// completeSet completes the arguments of set: a file, a driver, then keys. A ConfigMap is completed behind its namespace.
func completeSet(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	f := clientFlagsOf(c)
	switch len(args) {
	case 0:
		parts := strings.Split(typed, "/")
		if len(parts) != 3 || parts[0] != configMapKind {
			return nil, cobra.ShellCompDirectiveDefault
		}
		prefix := parts[0] + "/" + parts[1] + "/"
		names := f.names(c.Context(), "/api/v1/namespaces/"+parts[1]+"/configmaps")
		for i, name := range names {
			names[i] = prefix + name
		}
		return startingWith(typed, names), cobra.ShellCompDirectiveNoFileComp
	case 1:
		return startingWith(typed, f.names(c.Context(), namePaths[explain.Driver])), cobra.ShellCompDirectiveNoFileComp
	}
	keys := registry.Keys()
	for i, key := range keys {
		keys[i] = key + "="
	}
	return startingWith(typed, keys), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// startingWith returns the values that start with a text.
func startingWith(text string, values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return !strings.HasPrefix(v, text) })
}

// namesAt completes the name of an object at a path of the Kubernetes API.
func namesAt(path string) cobra.CompletionFunc {
	return func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return startingWith(typed, clientFlagsOf(c).names(c.Context(), path)), cobra.ShellCompDirectiveNoFileComp
	}
}

// contexts completes the name of a context of the kubeconfig.
func contexts(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	config, err := clientFlagsOf(c).access().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return startingWith(typed, slices.Sorted(maps.Keys(config.Contexts))), cobra.ShellCompDirectiveNoFileComp
}

// clientFlagsOf returns those flags of a command that say where the Kubernetes API is.
func clientFlagsOf(c *cobra.Command) *clientFlags {
	value := func(flag string) string {
		if f := c.Flags().Lookup(flag); f != nil && f.Changed { // the default of adopt's --namespace is for files
			return f.Value.String()
		}
		return ""
	}
	return &clientFlags{kubeconfig: value("kubeconfig"), kubeContext: value("context"), namespace: value("namespace")}
}

// names returns the names of the objects at a path of the Kubernetes API, or none if it does not answer within
// completionTimeout. Errors are dropped: a shell has no place for them.
func (f *clientFlags) names(ctx context.Context, path string) []string {
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	answer := make(chan []string, 1)
	go func() { // a credential plugin of the kubeconfig obeys no context
		names, _ := f.listNames(ctx, path)
		answer <- names
	}()
	select {
	case names := <-answer:
		return names
	case <-ctx.Done():
		return nil
	}
}

// listNames asks for a table without the objects: names of 10,000 Pods are then a megabyte. The version 0 lets the API
// server answer from its cache.
func (f *clientFlags) listNames(ctx context.Context, path string) ([]string, error) {
	config, err := f.kube()
	if err != nil {
		return nil, err
	}
	kube, err := newKubeClient(config)
	if err != nil {
		return nil, err
	}
	body, err := kube.core.RESTClient().Get().AbsPath(path).
		Param("includeObject", "None").Param("resourceVersion", "0").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var table struct {
		Rows []struct{ Cells []any }
	}
	if err := json.Unmarshal(body, &table); err != nil {
		return nil, err
	}
	var names []string
	for _, row := range table.Rows {
		if len(row.Cells) == 0 {
			continue
		}
		// The first column is the name. What would act on a terminal is no name.
		if name, ok := row.Cells[0].(string); ok && terminal.Line(name) == name {
			names = append(names, name)
		}
	}
	return names, nil
}
