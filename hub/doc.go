// Package hub serves the drivers that the registry lists: it attaches and detaches their volumes. This file is the map of the core.
//
// # The way of a VolumeAttachment
//
// Seven stations. At most one worker has the item of a VolumeAttachment.
//
//	1 watch   hub/cache/informers.go        the caches take the object, without what nobody needs (hub/cache/transform.go)
//	2 route   hub/reconcile/router.go       Router hands the event to the Worker of the driver that spec.attacher names
//	3 queue   hub/reconcile/enqueue.go      if the object requires something new, the Worker adds an item
//	          hub/queue/next.go             next says which items of a volume may start; hub/queue/lanes.go:pick takes one of the attach or the detach lane
//	4 read    hub/reconcile/execute.go      look reads the object with the own writes laid over it, and makes the plan (hub/attach/plan.go)
//	5 next    hub/volume/effects.go         next says which effect comes now, from the plan and what is believed of the volume
//	6 do      hub/reconcile/execute.go      do makes the effect: a call (hub/reconcile/call.go, hub/attach/attacher.go) or a write (hub/attach/writer.go)
//	7 end     hub/reconcile/run.go          succeeded and failed end the run: nothing more to do, again, or after a pause
//
// Stations 4 to 6 repeat until next says that the run is finished. Each call and write passes the fence of the lease, and each
// write the write budget of the driver.
//
// # Folders
//
//	hub            the Hub: it follows the registry's snapshots, and has one Manager for each driver
//	hub/driver     the life of one driver: its state, role, connection, and the work of a term (hub/driver/lifecycle.go)
//	hub/reconcile  the way of a VolumeAttachment; what no event leads to (below)
//	hub/queue      what may start now: volume, lane, node, backoff
//	hub/volume     what is believed of each volume, and what comes next
//	hub/attach     decisions, patches, the Writer and the calls of one VolumeAttachment; errors of the API server; redaction
//	hub/cache      informers, with the own writes laid over them; what is kept of a PersistentVolume
//	hub/drift      the driver's own list of volumes, compared
//	hub/observe    what another attacher does, compared
//	hub/view       what the status shows; the checklist of a driver
//	hub/lease      who works for a driver; hub/csiclient: the connection to it
//	hub/status     the model of the status, its health and its words; the page, the API, metrics
//	hub/diagnosis  verdicts, and what an error means
//	hub/tests      tests of the behaviour of the whole, on a real API server or in virtual time
//
// Arrows go one way: hub, driver, {reconcile, drift, observe, view, lease}, {queue, volume, attach, cache, csiclient}, registry.
//
// # What no event leads to
//
// hub/reconcile/dangling.go detaches a volume that no VolumeAttachment owns any more, after hub/reconcile/owners.go has read who may own it,
// and hub/reconcile/unused.go whether its node uses it. hub/reconcile/drain.go does that at the end of a term. hub/reconcile/takeover.go says
// what a new leader reads again. hub/reconcile/finalizers.go removes the finalizer from a PersistentVolume that is being deleted.
// hub/reconcile/overdue.go reports what has had no success for long. hub/reconcile/enqueue.go:Resync finds work that events have missed.
//
// # Where is it decided
//
//	a VolumeAttachment is deleted during its attach call  after a success hub/reconcile/execute.go:look moves the item to the detach lane; after an error hub/reconcile/run.go:failed does, without a pause
//	one call for a volume at a time                       hub/queue/next.go:next
//	which of several volumes is next                      hub/queue/lanes.go:pick, mayStart
//	an attach waits for a detach elsewhere                hub/queue/next.go:detachFirst; hub/queue/work.go:MayCall, right before the call
//	the CSINode has no node ID of the driver              hub/attach/plan.go:nodeID, an error without a call
//	the volume handle of a deleted PersistentVolume       hub/attach/handle.go:attached, from the annotation; else its last state: hub/cache/lookups.go:KeepDeleted
//	an in-tree volume becomes a CSI volume                hub/attach/volume.go:VolumeOf, when hub/cache/transform.go:Transform takes the PersistentVolume into the cache
//	the text of attachError and detachError               hub/attach/writer.go:Text
//	a VolumeAttachment is stuck                           hub/attach/inputs.go:IsStuck, stuckAfter after its creation or deletion; retries go on: hub/reconcile/run.go:failed
//	a VolumeAttachment has vanished                       hub/reconcile/enqueue.go:attachmentGone; hub/volume/attachment.go:Gone decides whether its volume is dangling; hub/reconcile/dangling.go:workOnDangling detaches it
//	which gRPC errors are final                           none is: the volume stays Uncertain, hub/volume/effects.go:Apply
//	how long a failed operation pauses                    hub/reconcile/run.go:retryIn, backoff, passesSoon, by the code of the error; an attach to a full node waits in hub/queue/node.go:offer
//	a dangling volume is given up                         hub/volume/dangling.go:Hopeless
//	`workers: 50` becomes a limit of the queue            hub/reconcile/worker.go:SetLimits; hub/queue/lanes.go:mayStart
//	a replica that was frozen does not call or write      hub/lease/term.go:check; asked by hub/reconcile/call.go:mayCall and hub/attach/writer.go:send
//	the lease is lost during a call                       hub/driver/lifecycle.go:run cancels it at once; hub/lease/term.go:lose closes the fence
//	a message does not leave after its lease              hub/csiclient/connection.go:Write asks hub/csiclient/sendguard.go:check, which asks the term that hub/reconcile/call.go passes with the call
//	who serves a driver                                   hub/lease/assignment.go:assign, hub/lease/decision.go:decide
//	whether this process competes for a driver            hub/driver/role.go:takeRole; hub/lease/candidate.go
//	a volume may name a Secret                            registry/secret.go:CheckSecret; hub/driver/manager.go:readSecret
//	the Secret of a detach                                hub/attach/attacher.go:UnpublishSecrets
//	a Secret leaves the text of an error                  hub/attach/redactor.go; hub/attach/attacher.go:call; hub/driver/live_session.go for Probe and ListVolumes
//	how many listings confirm that a volume is missing    hub/drift/missing.go:compare
//	how many confirm that it is attached too much         hub/drift/dangling.go:checkDangling
//	how long a listing may be, and take                   hub/csiclient/listing.go; hub/drift/watch.go:Check
//	a panic restarts its driver alone                     hub/driver/role.go:run ends the run, hub/driver/manager.go:Serve begins the next one
//	a driver is gone and comes back                       hub/driver/live_session.go:stayConnected; behind a proxy, internal/proxy/proxy.go
//	what a full node is                                   hub/reconcile/run.go:isNodeFull; hub/queue/node.go:AnsweredLocked, hub/queue/node.go:offer
//	drivers.yaml is read again; one bad file of several   registry/file.go:Run; registry/load.go:load
//	a change of drivers.yaml reaches a driver             registry/file.go:Run reads it, registry/registry.go:publish sends a snapshot, hub/hub.go:apply starts and retires Managers and calls
//	                                                      hub/driver/manager.go:SetSpec, which wakes attend (hub/driver/lifecycle.go: limits, on to hub/reconcile/worker.go:SetLimits), takeRole (mode, lease) and stayConnected (endpoint, TLS); all else is read at each use
//	which methods the proxy refuses                       internal/proxy/calls.go:ServeHTTP
//	a client's certificate expires at the proxy           internal/proxy/proxy.go:verify
//	a driver is listed no longer                          hub/driver/lifecycle.go:run lets its calls end, and cancels them after the grace; then hub/lease/candidate.go:attempt releases its lease
//	the order of a stop                                   calls hub/driver/lifecycle.go:run, lease hub/lease/candidate.go:attempt, then the services cmd/csi-attach-hub/hub.go:runWithServices
//
// # Around the core
//
//	the health of a driver                         hub/status/driver_health.go:HealthOfDriver; of a VolumeAttachment, hub/status/attachment_health.go
//	the first line of `status` and of the page     hub/status/headline.go:Headline; `status` has problems with replicas before it: internal/statustable/report.go:NewReport
//	the replica whose line `status` shows          internal/hubclient/view.go:Merge
//	the data of the page                           hub/status/overview.go asks hub/view/view.go:Drivers, hub/view/attachments.go:Attachments and, for the rest,
//	                                               cmd/csi-attach-hub/status_source.go:Overview; hub/status/pages.go makes the rows
//	a Secret does not reach the page               no field is there for one: hub/view/doc.go
//	a metric; an alert                             the list in hub/status/doc.go, its values hub/status/gauges.go:addDriver; deploy/chart/files/alerts.yaml
//	the advice for an error of a call              hub/diagnosis/cause.go:Action; of connecting, hub/diagnosis/cause.go:ParseRefusal
//	the order in which `explain` asks              internal/explain/doc.go. First the hub: internal/explain/explain.go:askHub; then the objects: internal/explain/walk.go:explain, from the VolumeAttachment on internal/explain/attach.go:operation
//	what `adopt` takes for a csi-attacher          internal/adopt/attacher.go:IsAttacher
//	the rights on Secrets                          deploy/chart/templates/secrets.yaml: one Role in each namespace that the values name, made by hub.role of _names.tpl
//	the rights on Leases; on all else              deploy/chart/templates/leases.yaml; deploy/chart/templates/rights.yaml
//	a volume is not detached from a node in use    hub/reconcile/unused.go:checkDanglingUnused; of a listed one, hub/drift/dangling.go:whyKept
//	a rule of safety                               internal/test/safety/doc.go: its files, and who checks by them
//	how to write a test, and see a seed again      internal/test/doc.go
//
// # How to add
//
// A setting: its field in settingTable of registry/settings.go and in the types of registry/driver.go; its use, read through Settings() at each use; its row in
// deploy/CONFIGURE.md and in drivers.yaml (registry's tests name what is missing); `make manifests` writes the chart's schema.
//
// A verdict: its constant in hub/diagnosis/verdict.go, and its row in deploy/OPERATE.md: without it
// TestEveryPathStateAndVerdictIsDocumented of internal/test/deploy fails. Its advice stands where the Diagnosis is made; all views show it:
//
//	of the text of an error of the hub    hub/diagnosis/cause.go: a row in texts (no test misses it), and a row in advice (TestEveryCauseHasAnActionThatNamesItsObjects does)
//	of an answer of the driver            none: its verdict is BackendError, its advice the row of its gRPC code in hub/diagnosis/cause.go
//	of an error of connecting             hub/diagnosis/cause.go: a row in refusals
//	of a VolumeAttachment                 hub/status/diagnose.go; the health of a VolumeAttachment does not depend on its verdict
//	of a driver                           hub/status/diagnose_driver.go; its health in hub/status/driver_health.go:serviceState: without a case there, that of a driver that cannot be called
//	of the objects of an attached volume  hub/view/faults.go
//	of objects that only explain reads    internal/explain
//
// Optional: commands in internal/explain/cure.go; in sameCause of internal/explain/attach.go what says the same as another verdict.
//
// A CSI call: its method in hub/csiclient/session.go and in Session of hub/driver/live_session.go, with redacted texts
// (TestEachMethodOfASessionIsRedacted fails without); its name and largest answer in internal/proxy/calls.go; its answer and books in
// internal/test/fakecsi; a rule in internal/test/safety if it changes what is published.
//
// # Isolation
//
// Drivers share the caches of the cluster, which they only read, and nothing else. What this process knows of a driver's volumes, and its
// writes that the caches do not show yet, outlive the Manager (reconcile.Memory).
package hub
