// Package mutants proves that the tests find the faults that would hurt: each mutant is a deliberate fault in the code of the
// product, and names the tests that fail with it. A mutant that no test kills is a missing test.
//
// A mutant replaces a text in the body of one function (rows_*_test.go). No file in the tree changes: the tests are built
// with `go test -c -overlay`, and with all mutants at once. A function with mutants has a copy for each, and the environment
// variable MUTANT has the number of the mutant whose copy runs. Without it the program is that of the product.
//
// In each run of the tests the package checks that each mutant fits into the code and compiles, and that its killers exist.
// `make mutants` runs each mutant against its killers, after these have passed without one. Each killer of a mutant must fail by
// itself, and not because it runs into a timeout.
//
// A new mutant is a new row. `go test ./internal/mutants -update` writes the table.
//
// # Who kills which
//
// hub/lease/term.go:
//
//   - no fence. A process that was paused calls and writes while its successor does.
//     Killed by hub/lease.TestFenceClosesWithoutRenewalAndOpensWithOne, hub/reconcile.TestWorkerWhoseLeaseIsOverNeitherCallsNorWrites.
//   - calls are not confirmed when they are sent. A process that was paused between the fence and the send calls beside its successor.
//     Killed by hub/lease.TestWhatBeginHasAllowedMayTakeAMomentToGoOut, hub/reconcile.TestCallIsNotSentWhenTheLeaseEndsBeforeItLeavesTheProcess.
//
// hub/reconcile/call.go:
//
//   - no fence before calls and writes. A process that was paused calls and writes while its successor does.
//     Killed by hub/reconcile.TestWorkerWhoseLeaseIsOverNeitherCallsNorWrites, hub/reconcile.TestExploreVolumes.
//   - calls are sent without a last check. A process that was paused between the fence and the send calls beside its successor.
//     Killed by hub/reconcile.TestCallIsNotSentWhenTheLeaseEndsBeforeItLeavesTheProcess.
//
// hub/attach/writer.go:
//
//   - writes pass no fence. A process that was paused writes the status of a VolumeAttachment that its successor has detached.
//     Killed by hub/attach.TestRefusedWriteIsNeitherSentNorRecordedNorTakenForAnAnswerOfTheAPIServer, hub/reconcile.TestWorkerWhoseLeaseIsOverNeitherCallsNorWrites, hub/reconcile.TestExploreVolumes.
//   - attached is written beside any note. A late write gives the publish context of one node ID to the VolumeAttachment of another.
//     Killed by hub/attach.TestLateWriteOfAttachedDoesNotAddAPublishContextToTheNoteOfAnotherNodeID.
//
// hub/lease/lock.go:
//
//   - renewal counts from its answer. After a renewal that is answered late the lease seems to last longer than others think: two processes work.
//     Killed by hub/lease.TestALeaseCountsFromWhenItsWriteWasSent.
//   - acquisition counts from its answer. After a first write that is answered late the lease seems to last longer than others think: two processes work.
//     Killed by hub/lease.TestALeaseCountsFromWhenItsWriteWasSent.
//   - lease is taken without resourceVersion. Two processes take one lease, and both work.
//     Killed by hub/lease.TestALeaseThatAnotherHasTakenSinceItWasSeenIsNotTaken.
//   - term always continues. A hub that gets a lease back believes what it knew before another process worked.
//     Killed by hub/lease.TestALockKnowsWhetherAnotherHeldTheLease.
//
// hub/lease/fence.go:
//
//   - only the monotonic clock counts. A process on a machine that was suspended believes that its lease still lasts.
//     Killed by hub/lease.TestAgeIsThatOfTheMorePessimisticClock.
//   - no time for the call. A call begins that ends after the lease does.
//     Killed by hub/lease.TestFenceLeavesTimeForTheCall.
//
// hub/lease/decision.go:
//
//   - lease is taken from a holder that renews it. Two processes work, and a csi-attacher loses its lease.
//     Killed by hub/lease.TestWhenALeaseIsTried.
//   - lease that is not renewed is kept. Work goes on after the lease has expired, without a cancel of calls in flight.
//     Killed by hub/lease.TestALeaseIsGivenUpWhenTheRenewDeadlineHasPassed.
//   - lease that another has taken is kept. Work goes on beside the new holder.
//     Killed by hub/lease.TestALeaseThatIsTakenAwayIsLostAtOnce.
//
// hub/driver/lifecycle.go:
//
//   - lease is released before the work has ended. The next holder attaches a volume while a call for it is in flight here.
//     Killed by hub/tests.TestLeaseIsReleasedOnlyWhenTheCallsInFlightHaveEnded.
//   - nothing is detached at the end of a term. What only this process knows to be attached stays attached after it has ended.
//     Killed by hub/tests.TestVolumeOfAnAttachmentThatVanishedIsDetachedBeforeTheDriverIsLetGo.
//
// hub/reconcile/takeover.go:
//
//   - no takeover read. The new holder calls the driver again for what the former one has just done, and detaches by an old note.
//     Killed by hub/tests.TestTakeoverReadsAnewWhatIsOlder, hub/tests.TestReadThatIsForbiddenAfterATakeoverIsSaidAndKeepsNoVolumeWaiting, hub/reconcile.TestExploreVolumes.
//   - no read after a write that had no answer. When attachRequired is true again the volume is published while no finalizer holds its VolumeAttachment.
//     Killed by hub/reconcile.TestExploredPublishAfterALostRemovalOfTheFinalizerPutsItBackFirst, hub/reconcile.TestExploredDetachAfterALostWriteOfAttachedBeginsWithTheStatus.
//   - no takeover read of the other VolumeAttachments. A single-node volume is attached to a second node while its detach elsewhere is due.
//     Killed by hub/tests.TestAttachAfterATakeoverWaitsForADetachThatTheCacheDoesNotShowYet.
//   - no wait for the cache after a takeover. The finalizer of a PersistentVolume goes while a VolumeAttachment has the volume attached.
//     Killed by hub/tests.TestPersistentVolumeKeepsItsFinalizerUntilATakeoverKnowsAllVolumeAttachments.
//   - no state is from before the term. As no takeover read; and a VolumeAttachment that the former holder has detached is detached again.
//     Killed by hub/tests.TestTakeoverReadsAnewWhatIsOlder, hub/reconcile.TestExploreVolumes.
//
// hub/reconcile/watch.go:
//
//   - vanished VolumeAttachment of the former holder is ignored. A volume whose VolumeAttachment vanished in the takeover stays attached for ever.
//     Killed by hub/tests.TestVolumeOfAnAttachmentThatVanishedBeforeATakeoverIsDetached.
//   - attach elsewhere by another holder is not noticed. The hub detaches the volume where it was before, although another process must have done so.
//     Killed by hub/tests.TestVolumeLeftAttachedIsNotDetachedOnceAnotherAttacherHasSeenToIt.
//   - unowned publication without an entry is not asked for again. The volume stays attached until the next term.
//     Killed by hub/reconcile.TestResyncFindsWorkThatNoEventHasLedTo.
//   - own error ends the own backoff. A driver that fails gets calls without a pause.
//     Killed by hub/reconcile.TestOnlyWhatDecidesIsAReasonToLookAgain.
//
// hub/volume/unowned.go:
//
//   - claims outlive a gap in the lease. The hub acts on what it knew before another process worked.
//     Killed by hub/volume.TestWhatVanishedJustBeforeTheLeaseWasLostIsNotForgotten.
//   - detach by another holder is not noticed. The hub detaches a volume that another process has attached there again.
//     Killed by hub/tests.TestVolumeLeftAttachedIsNotDetachedOnceAnotherAttacherHasSeenToIt.
//   - unowned publication is given up at the first refusal. A driver that has just started answers NotFound, and the volume stays attached.
//     Killed by hub/volume.TestDetachOfAnUnownedPublicationIsGivenUpOnlyAfterDefinitiveAnswersForLong.
//   - attach does not try again after the detach of an unowned publication. It waits out a backoff of up to a minute although the volume is free.
//     Killed by hub/volume.TestAttachThatBacksOffIsTriedAgainOnceItsVolumeWasDetachedElsewhere.
//   - what only a listing has shown outlives the term. After a gap in the lease a volume is detached that another process has attached.
//     Killed by hub/volume.TestWhatOnlyAListingHasShownEndsWithTheTermAndWithTheListing.
//   - listing counts in spite of work since it began. A volume that is being attached is taken for dangling, and detached.
//     Killed by hub/volume.TestListingIsOutOfDateWhereAnEntryWasOrIs.
//   - absence in a listing ends an unowned publication that was never tried. A storage system whose list is late has a volume left attached for ever.
//     Killed by hub/tests.TestVolumeLeftAttachedEndsWhenTheDriverListsItElsewhere.
//
// hub/queue/volume.go:
//
//   - publish does not wait for the detach elsewhere. A single-node volume is attached to two nodes.
//     Killed by hub/queue.TestNextFollowsTheRules, hub/reconcile.TestExploreVolumes.
//   - two calls for one volume at once. The driver gets calls that the CSI spec forbids.
//     Killed by hub/queue.TestNextFollowsTheRules.
//   - multi-node volumes go side by side in spite of the setting. parallelMultiNode: false has no effect: the driver gets calls that it cannot take.
//     Killed by hub/queue.TestNextFollowsTheRules.
//   - detaches always go first. An attach waits for ever while detaches of the volume are tried again.
//     Killed by hub/queue.TestNextFollowsTheRules.
//   - call that needs the volume for itself is overtaken. It waits as long as others come.
//     Killed by hub/queue.TestNextFollowsTheRules.
//   - attach that waits for a place counts as due. A volume cannot be attached elsewhere while its attach to a full node waits.
//     Killed by hub/queue.TestHeldAttachDoesNotWithholdItsVolume.
//   - detach waits for a detach that backs off. A volume whose old node is broken is never attached elsewhere.
//     Killed by hub/queue.TestNextFollowsTheRules.
//
// hub/queue/work.go:
//
//   - MayCall lets every call go. A single-node volume is attached while the detach elsewhere that came meanwhile is in flight.
//     Killed by hub/queue.TestWorkerThatFindsADetachLeavesItsItemAndTheItemRunsAnewWhenThatEnds.
//   - failures of the attach delay the detach. A Pod that was deleted keeps its volume for minutes.
//     Killed by hub/queue.TestFailuresOfAnAttachAreNotThoseOfTheDetach.
//   - work is repeated without a pause. One VolumeAttachment keeps a processor busy.
//     Killed by hub/queue.TestAWorkerCannotRepeatItsWorkWithoutAPause.
//
// hub/queue/lanes.go:
//
//   - a lane takes all workers. Slow attaches keep all detaches waiting, so that no volume can move.
//     Killed by hub/queue.TestBurstOfSlowAttachesDoesNotDelayDetaches.
//   - a driver that is back gets all calls at once. It goes down again.
//     Killed by hub/queue.TestRetriesAfterAnOutageAreSpread.
//
// hub/queue/node.go:
//
//   - maxPerNode is ignored. A driver that takes few calls for a node fails under many.
//     Killed by hub/queue.TestSlotOfANodeGoesToADetachFirst.
//
// hub/volume/effects.go:
//
//   - finalizer goes before the unpublish. A crash in between leaves the volume attached, and nobody knows of it.
//     Killed by hub/volume.TestEffectsOfARunComeInOrderAndNoneIsNeedless.
//   - finalizers come after the publish. A crash in between leaves a volume attached whose VolumeAttachment can vanish.
//     Killed by hub/volume.TestEffectsOfARunComeInOrderAndNoneIsNeedless.
//   - no unpublish at the previous target. The volume stays attached to a node ID that nobody has any more.
//     Killed by hub/volume.TestEffectsOfARunComeInOrderAndNoneIsNeedless.
//   - note is overwritten before the previous target is unpublished. A crash in between leaves the volume attached where no object names it.
//     Killed by hub/volume.TestEffectsOfARunComeInOrderAndNoneIsNeedless.
//   - owner of the volume is ignored. The detach of an old VolumeAttachment takes the volume from the one that owns it now.
//     Killed by hub/volume.TestNoSequenceOfOutcomesLosesAVolumeOrCallsForNothing, hub/tests.TestDetachDoesNotHitALivingAttachmentAtAReusedNodeID.
//   - unclear owner is taken for none. The detach of an old VolumeAttachment takes the volume from the one that owns it now.
//     Killed by hub/volume.TestNoSequenceOfOutcomesLosesAVolumeOrCallsForNothing.
//   - secret is not read. The driver refuses the attach, or attaches with no credentials.
//     Killed by hub/volume.TestEffectsOfARunComeInOrderAndNoneIsNeedless.
//   - publish counts as recorded before it is written. After a failed write of the status the driver is called again, or the context is lost.
//     Killed by hub/volume.TestNoSequenceOfOutcomesLosesAVolumeOrCallsForNothing.
//   - status says detached before the finalizer goes. kube-controller-manager attaches the volume elsewhere while the object still exists.
//     Killed by hub/volume.TestEffectsOfARunComeInOrderAndNoneIsNeedless.
//   - detach of what stays comes before its status. After a failed write a VolumeAttachment says attached for ever, and its volume is published nowhere.
//     Killed by hub/volume.TestNoSequenceOfOutcomesLosesAVolumeOrCallsForNothing.
//   - publish without an answer counts as not made. A volume that was attached after the deadline stays attached when its VolumeAttachment is deleted.
//     Killed by hub/volume.TestNoSequenceOfOutcomesLosesAVolumeOrCallsForNothing.
//   - previous target is forgotten. The volume stays attached there for ever.
//     Killed by hub/volume.TestVolumeAttachmentThatMovesOnLeavesItsPublicationUnowned.
//   - publish does not take an unowned publication over. The volume that was just attached is detached again.
//     Killed by hub/volume.TestPublishAtTheTargetTakesAnUnownedPublicationOver.
//   - object that is released counts as vanished. Each detach is made twice.
//     Killed by hub/volume.TestVolumeThatWasDetachedAndReleasedIsNotTakenForAttached.
//   - attach does not try again after the detach elsewhere. It waits out a backoff of up to a minute although the volume is free.
//     Killed by hub/volume.TestAttachThatBacksOffIsTriedAgainOnceItsVolumeWasDetachedElsewhere.
//
// hub/reconcile/owners.go:
//
//   - owners are not read. The detach of an old VolumeAttachment takes the volume from the one that owns it now.
//     Killed by hub/tests.TestDetachDoesNotHitALivingAttachmentAtAReusedNodeID, hub/tests.TestDetachDoesNotHitWhatASidecarHasAttachedWhereItIsNoted.
//
// hub/attach/plan.go:
//
//   - node ID is not compared before the status. A node that registered anew during the call gets a volume that is attached to its old node ID.
//     Killed by hub/tests.TestNodeThatGetsAnotherIDWhileItsVolumeIsAttachedHasItUnderTheNewIDOnly.
//   - noted node ID is ignored. A volume cannot be detached from a node that is gone.
//     Killed by hub/attach.TestDetachWithoutWhatIsGone.
//   - lost capability counts as detached. A driver that was upgraded wrongly loses all its finalizers, and its volumes stay attached.
//     Killed by hub/attach.TestDriverThatLostItsCapabilityIsNotTakenForDetached.
//
// hub/reconcile/execute.go:
//
//   - publish context is dropped. The kubelet cannot find the device.
//     Killed by hub/tests.TestPublishContextThatIsTooLargeIsAClearErrorAndLosesNothing.
//   - volume that is used once the status is written is detached. A CSIDriver that was created again by mistake takes the volume of a Pod that has just started.
//     Killed by hub/tests.TestVolumeThatIsUsedOnceTheStatusIsWrittenIsNotDetachedBecauseAttachRequiredIsFalse.
//   - lost connection counts as an answer. The volume is left attached at its previous target because the driver restarted.
//     Killed by hub/reconcile.TestOnlyTheDriversOwnErrorIsAnAnswer.
//   - write by another than the worker counts as seen. A deletion that the answer to the write of an error shows is missed: the volume stays attached.
//     Killed by hub/tests.TestDeletionThatComesWithTheAnswerToAWriteIsNotMissed.
//   - volume in use is detached when attachRequired is false. A CSIDriver that was recreated wrongly takes the volumes from running Pods.
//     Killed by hub/tests.TestVolumeInUseIsNotDetachedBecauseTheDriverNoLongerRequiresAttach.
//
// hub/reconcile/worker.go:
//
//   - lost capability is ignored. While the endpoint is that of the node plugin, volumes are marked attached without a call.
//     Killed by hub/tests.TestNothingIsMarkedAttachedForADriverThatHasLostItsCapability.
//   - lost connection counts as a failure of the volume. All volumes of a driver back off because the driver restarted.
//     Killed by hub/reconcile.TestWaitsWithoutBackoffAreAsDocumented.
//
// hub/cache/overlay.go:
//
//   - own writes are not laid over the cache. Each attach calls the driver a second time when the watch lags.
//     Killed by hub/reconcile.TestAnswerToTheStatusThatIsCutOffLeadsToNoSecondCall.
//   - own deletion is not laid over the cache. The driver is called again for a VolumeAttachment that is gone.
//     Killed by hub/cache.TestDeletionByAnOwnWriteIsRememberedUntilTheWatchReportsIt.
//
// hub/volume/attachment.go:
//
//   - publication of a vanished VolumeAttachment is forgotten. The volume stays attached for ever.
//     Killed by hub/volume.TestVanishedObjectLeavesItsPublicationUnownedAndHasItDetached, hub/reconcile.TestExploreVolumes.
//   - last state of a vanished VolumeAttachment is ignored. The volume stays attached for ever.
//     Killed by hub/reconcile.TestWhatTheLastStateTellsIsNotLostOnAClaimThatKnowsNothing, hub/reconcile.TestLastStateOfAPersistentVolumeThatIsGoneTellsWhatToDetach.
//
// hub/reconcile/unowned.go:
//
//   - unowned publication is detached without a look at its owners. The volume of a running Pod is detached.
//     Killed by hub/reconcile.TestUnownedPublicationIsResolvedOnlyForAVolumeAttachmentThatHasTheVolumeThere, hub/tests.TestAttachElsewhereWaitsWhileItIsNotClearWhoHasWhatWasLeftAttached.
//
// hub/reconcile/finalizers.go:
//
//   - finalizer of a PersistentVolume does not wait for a claim. The PersistentVolume goes while the volume is being detached: handle and Secret are lost.
//     Killed by hub/reconcile.TestFinalizerOfAPersistentVolumeWaitsForAClaimWhoseObjectIsGone, hub/reconcile.TestExploreVolumes.
//   - finalizer of a PersistentVolume does not wait for an unowned publication. The storage of a volume is deleted while the volume is attached.
//     Killed by hub/tests.TestPersistentVolumeDoesNotWaitForEverForADriverThatIsAway.
//   - finalizer of a PersistentVolume does not wait for VolumeAttachments. The storage of a volume is deleted while the volume is attached.
//     Killed by hub/tests.TestPersistentVolumeThatWasAttachedBeforeARestartKeepsItsFinalizer.
//
// hub/volume/table.go:
//
//   - finalizer of a PersistentVolume waits for ever. A PersistentVolume whose driver is gone cannot be deleted.
//     Killed by hub/volume.TestFinalizerOfAPersistentVolumeIsWithheldAsLongAsSomethingMayBeLeftButNotForEver.
//
// hub/attach/patch.go:
//
//   - patches do not test the uid. A new VolumeAttachment of the same name gets the status of the old one: the kubelet mounts a volume that is not attached.
//     Killed by hub/attach.TestPlanToAttachGuardsBothObjectsAndPublishes, hub/reconcile.TestExploreVolumes.
//   - patches do not test the finalizers. A finalizer is there twice, and the object can never be deleted.
//     Killed by hub/attach.TestPlanToAttachGuardsBothObjectsAndPublishes.
//   - finalizers are removed by place alone. The finalizer of another controller goes.
//     Killed by hub/attach.TestDetachTakesOnlyTheOwnFinalizer.
//
// hub/attach/handle.go:
//
//   - noted volume handle is ignored. After a PersistentVolume was recreated under its name, the new volume is detached in place of the old one.
//     Killed by hub/attach.TestRecordedHandleIsTheNotedOneAndNotThatOfANamesake.
//
// hub/attach/inputs.go:
//
//   - stripped finalizer is not restored. The VolumeAttachment vanishes when it is deleted, and its volume stays attached.
//     Killed by hub/attach.TestWantedFollowsDeletionStatusAndFinalizer.
//
// hub/attach/redactor.go:
//
//   - errors are not redacted. A secret that a driver repeats in an error gets into the status, Events and logs.
//     Killed by hub/attach.TestSecretsThatADriverRepeatsAreTakenOutOfItsError.
//
// hub/driver/connection.go:
//
//   - errors of Probe and ListVolumes are not redacted. A secret that a driver repeats there gets into the page and the logs.
//     Killed by hub/tests.TestASecretOfAPublishIsTakenOutOfErrorsOfProbeAndListVolumes.
//
// hub/reconcile/backoff.go:
//
//   - backoff is zero. A driver that fails gets thousands of calls per second.
//     Killed by hub/reconcile.TestBackoffDoublesUpToItsLimit.
//   - full backoff after errors that pass soon. Attaches wait for a minute after a driver has restarted.
//     Killed by hub/reconcile.TestLongestWaitAfterEachErrorIsAsDocumented.
//
// hub/drift/missing.go:
//
//   - one listing confirms a difference. A storage system whose list is late has volumes attached again that were never lost.
//     Killed by hub/drift.TestMissingVolumeIsAttachedAgainAfterTwoMoreListingsAndReportedAfterItWasThere.
//   - difference at a VolumeAttachment that has changed counts. A volume is attached again that is being detached.
//     Killed by hub/tests.TestDriftLeavesWhatChangedMeanwhileAlone.
//   - drift.action is ignored. The hub attaches volumes again although it is told to report only.
//     Killed by hub/tests.TestDriftIsOnlyReportedWhenAskedTo.
//
// hub/drift/dangling.go:
//
//   - dangling volume in use is detached. The volume of a running Pod whose VolumeAttachment was lost is detached.
//     Killed by hub/tests.TestVolumeInUseOnItsNodeIsReportedAndNotDetached.
//   - VolumeAttachments of other attachers are ignored for a dangling volume. A volume that another attacher has attached is detached.
//     Killed by hub/tests.TestDanglingVolumeIsLeftAloneWhereAVolumeAttachmentOfAnotherAttacherNamesIt.
//   - dangling volume that gets used is detached. The volume of a Pod that has started since the listing is detached.
//     Killed by hub/tests.TestVolumeThatBecomesUsedIsNotDetachedByALaterTry.
//   - drift.unexpected is ignored for a dangling volume. The hub detaches volumes although it is told to report only.
//     Killed by hub/tests.TestDanglingVolumeIsReportedOnceAndLeftAlone.
//   - dangling volumes are looked for before the cache is complete. The volume of a VolumeAttachment that the cache lacks is detached.
//     Killed by hub/tests.TestDanglingVolumeIsLookedForOnlyWhenATakeoverKnowsAllVolumeAttachments.
//
// hub/reconcile/unused.go:
//
//   - volume in use is detached when its VolumeAttachment vanishes. A restore of etcd takes the volumes of running Pods.
//     Killed by hub/tests.TestVolumeInUseIsNotDetachedWhenItsVolumeAttachmentVanishes.
//
// hub/drift/watch.go:
//
//   - change of drift.unexpected does not end detaches. After a change to report the hub still detaches what a listing has shown.
//     Killed by hub/tests.TestChangeToReportEndsTheDetachOfWhatOnlyAListingHasShown.
package mutants
