// Package status shows a running hub to people, programs and Prometheus: a model of plain
// values (Driver, Attachment, Overview), their diagnosis (package diagnosis has its texts),
// the metrics, and the HTTP server with its pages.
//
// site.go has the routes; overview.go asks the Source (hub/view, with cmd/csi-attach-hub/status_source.go) and pages.go makes the rows of
// a page from it: page/volumes.html is the table of volumes. api.go has the same in JSON.
//
// The flow: the hub implements Source and counts into Metrics. Each request and each scrape
// asks the Source for a view, what it says at one moment, and the package keeps nothing of its
// answers: a retired driver is gone from every answer. The counters (calls, operations, retries) of a driver exist from Metrics.Driver
// to Metrics.Forget.
//
// Health is computed here, once: HealthOfDriver and HealthOfAttachment are pure functions of a Driver and an
// Attachment. They return a state, since when, and the reasons with what to do. API, pages, metrics and the
// subcommands show these values and compute no health of their own. A fact has no age in its text, and a time
// beside it.
//
// The package decides nothing, and has no request that changes anything or calls the cluster or a driver.
//
// # HTTP
//
// Only GET and HEAD are served: pages for people, and the rest for programs. On loopback without TLS, the Host of a request
// must be this machine's or an allowed one, or the answer is 421.
//
//	/                           all drivers, the worst first, and the volumes in trouble;
//	                            ?q= searches the drivers
//	/drivers/{name}             everything about a driver, and what to do
//	/attachments                VolumeAttachments, the worst first; ?q= searches them, and links add
//	                            the filters of the API: driver=, node=, name=, state= and health=
//	/attachments/{name}         one of them: its diagnosis, what to do
//
// The pages compute no health: state, time and reasons are Driver.Health and Attachment.Health, as
// in the API. Volumes have the names that people know: the claim first, then PersistentVolume
// and VolumeAttachment. Rows of a driver with the same operation, state and reason are one row, "×10",
// with the age of the oldest; /attachments has a row for each. q= searches names, states, health and
// reasons.
//
// The server renders whole pages. A script replaces their parts every 1.5 s, so that a failure
// is visible within two seconds; the policy of the pages allows only the hub's own files. Without
// an answer the script says since when the connection is lost and how old the page is, and tries
// again, at last every 15 s. Times are UTC, and ages are written as kubectl does. No page scrolls
// sideways in a window of 390 pixels or more.
//
// Latencies and failed tries are those of the last quarter of an hour, which DriverMetrics
// counts in slots of 15 s.
//
// For programs, times are RFC 3339, and errors {"error": "why"} with a status of 400 and above.
// Objects omit what is empty or unknown; a requested list is there, if only as []. Texts may
// come from a driver: a client must escape them.
//
//	/metrics                    metrics for Prometheus
//	/livez, /readyz             200 "ok", or 500 with a line for each check, which ?verbose
//	                            always asks for: "[+]caches ok", "[-]config failed: why".
//	                            Ready: caches filled and configuration loaded. Live: the loops
//	                            of the hub make progress. A broken driver changes neither.
//	/healthz/leader-election    200 "ok", or 500 if a lease was not renewed in time
//
// On connections to a loopback address, which kubectl port-forward makes, also:
//
//	/debug/pprof/               profiles, only with --profiling
//	/api/v1/overview            version, identity, started, config, replicas (identities), and unserved:
//	                            VolumeAttachments of drivers not served here, by attacher,
//	                            without those that need no driver (attachRequired: false);
//	                            unservedSince: those for which one waits, since when
//	/api/v1/drivers             {"drivers": [...]}, by name
//	/api/v1/drivers/{name}      one of them, or 404
//	/api/v1/attachments         {"attachments": [...], "total": n, "continue": "..."}, by name
//
// The types Driver, Attachment and Overview describe the fields. Programs go by state, by waiting.kind
// (WaitKind) and by lastCause (package diagnosis). reason and lastError are texts for people.
//
// /api/v1/attachments takes driver, node and name, which must match as a whole; state and health, of
// which several are separated by commas; limit, from 1 to 5000, by default 500; and continue, the value of the previous page, to get
// the next page. VolumeAttachments may come and go between pages: each that stays is on exactly
// one page. Other parameters are errors.
//
// # Metrics
//
// The series of a driver exist while the hub serves it; counters begin at zero. Their number does
// not grow with volumes and nodes. Histograms of failures, and drift with its kind, begin with
// the first event. operation is attach or detach: repairs of
// drift are attaches. result is one of success, unavailable (the driver cannot be reached or is busy),
// timeout, refused (it will not do it as asked), kubernetes (the API server) and error.
//
//	csi_sidecar_operations_seconds{driver_name,method_name,grpc_status_code}  calls, as csi-attacher's
//	attach_hub_operation_seconds{driver,operation,result}   from the event to the written result
//	attach_hub_operations_total{driver,operation,result}    tries
//	attach_hub_retries_total{driver,operation}              tries after a failed one
//	attach_hub_drift_total{driver,kind,action}              confirmed differences with the storage system
//	attach_hub_observed_total{driver,agreement}             agreed, would_have_failed or differs
//	attach_hub_foreign_writer_total{driver}                 writes of another attacher
//	attach_hub_driver_health{driver,health}                 1 for the health that holds
//	attach_hub_driver_up{driver}, attach_hub_driver_leader{driver}
//	attach_hub_driver_info{driver,mode,endpoint,version,source}
//	attach_hub_queue_depth{driver,operation}                waiting for a turn or for the next try
//	attach_hub_queue_oldest_seconds{driver,operation}       0 if nothing waits
//	attach_hub_workers_busy{driver,operation}, attach_hub_workers{driver,operation}
//	attach_hub_call_oldest_seconds{driver,operation}        of calls in flight; 0 if there is none
//	attach_hub_stuck{driver,operation}
//	attach_hub_dangling_publications{driver}                attached without a VolumeAttachment
//	attach_hub_waiting_for_capacity{driver}                 attaches whose node is full
//	attach_hub_unserved_volumeattachments{attacher}        100 attachers, the rest as "other"
//	attach_hub_unserved_oldest_seconds{attacher}           since one of them waits without a sign of an attacher
//	attach_hub_registry_conflicts{driver}
//	attach_hub_config_last_reload_successful{file}          of drivers.yaml, or of each file of a folder
//	attach_hub_config_last_reload_success_timestamp_seconds
//	attach_hub_config_hash                                  equal for equal configurations
//
// Two alerts sound alike. AttachHubNobodyServes: the hub serves the driver, and no replica leads it. AttachHubUnserved: the hub does not
// serve the driver, and no other attacher does.
//
// Beside them are those of client-go (rest_client_*), of Go and of the process.
package status
