// Package status is what people and Prometheus see of a running hub: a model of plain
// values (Driver, Attachment, Overview), the metrics, and the HTTP server.
//
// The flow: the hub implements Source, and counts into Metrics. At each request and
// each scrape the Source is asked; nothing is kept here of what it answers, so a driver
// that is retired is gone from every answer with it. What accumulates (calls,
// operations, retries) is kept per driver, from Metrics.Driver to Metrics.Forget.
//
// The package decides nothing, knows neither the cluster nor a driver, and changes
// nothing: it has no request that does.
package status
