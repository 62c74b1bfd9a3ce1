// Package pods finds the Pods that use a claim on a node, for people who ask whose volume waits.
//
// The flow: PodsOf returns what is known about a node and notes that somebody asked. Run lists the Pods of the
// nodes that were asked for, one request after the other, and keeps which Pod uses which claim. Without a
// question there is no request.
//
// Nothing depends on the answers. The requests are few (requestsPerSecond), come from the API server's watch
// cache, and need the right to list Pods, which the chart's value pods.list grants. If the API server refuses, the
// Finder asks again after 5 minutes.
//
// The package knows neither VolumeAttachments nor drivers.
package pods
