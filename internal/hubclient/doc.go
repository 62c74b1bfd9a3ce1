// Package hubclient asks running hubs for their state, for the subcommands status and explain.
//
// Find returns a Hub, either of one URL or of the Pods of the cluster. Hub.View asks all
// replicas at once and merges their answers. Each driver is in the View once, as seen by the
// replica that works for it: only that replica has the live queue.
//
// Pods are reached by port-forward and not by the API server's Pod proxy: the proxy connects over the Pod's network, where the
// hub serves metrics and probes only. A port-forward is a byte stream to the Pod's loopback. The token of the kubeconfig is never
// sent: anybody who can create a Pod with the hub's label would get it.
package hubclient
