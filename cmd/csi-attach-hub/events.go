package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
)

const (
	// Events per second, all drivers together: a storage system that is down must not
	// have the hub flood etcd with the news. What is too much is dropped by the recorder.
	eventsPerSecond, eventsAtOnce = 10, 50
	// Of one VolumeAttachment and one reason: a few at once, then one every five minutes.
	eventsOfOne, eventsOfOnePerSecond = 5, 1.0 / 300
)

// newRecorder returns what writes Events, with a client of its own that is limited, and
// what ends it.
func newRecorder(config *rest.Config) (record.EventRecorder, func(), error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = eventsPerSecond, eventsAtOnce
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: eventsOfOne, QPS: eventsOfOnePerSecond, SpamKeyFunc: spamKey}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "csi-attach-hub"}), broadcaster.Shutdown, nil
}

// spamKey is what the limit of one VolumeAttachment is about. Many failures are not to
// hide that it is stuck.
func spamKey(e *corev1.Event) string { return string(e.InvolvedObject.UID) + "/" + e.Reason }
