// Package hubclient asks running hubs what they know, for the commands that people
// type.
//
// The flow: Find makes a Hub, either of one URL or of the Pods of the cluster; Hub.View asks
// all replicas at once and merges what they say, so that each driver is there once, as
// the replica sees it that works for it: only that one has the live queue.
//
// Pods are reached by port-forward and not by the API server's Pod proxy. The proxy
// takes the Authorization header for itself, so that a hub that wants to know who asks
// would hear from nobody; it speaks TLS without checking whom it talks to; and it connects
// over the Pod's network, where a NetworkPolicy may forbid it. A port-forward is a byte
// stream to the Pod's loopback: whatever holds on the port, holds here too.
//
// A token goes only to where a flag says that it should: the one of the kubeconfig would
// be given away to whoever can make a Pod with the hub's label.
package hubclient
