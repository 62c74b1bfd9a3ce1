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
	// Limits of Events for all drivers together: if a storage system is down, the hub must
	// not flood etcd. The recorder drops Events above them.
	eventsPerSecond, eventsBurst = 10, 50
	// Limits for one VolumeAttachment and reason: five at once, then one in five minutes.
	eventsPerKeyPerSecond, eventsPerKeyBurst = 1.0 / 300, 5
)

// newRecorder returns an EventRecorder that bounds the rate of Events, and a function that
// stops it.
func newRecorder(config *rest.Config) (record.EventRecorder, func(), error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = eventsPerSecond, eventsBurst
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: eventsPerKeyBurst, QPS: eventsPerKeyPerSecond, SpamKeyFunc: spamKey}))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "csi-attach-hub"}), broadcaster.Shutdown, nil
}

// spamKey returns a key with the reason, so that many AttachFailed Events of a volume do not
// use up the limit of its AttachStuck Event.
func spamKey(e *corev1.Event) string { return string(e.InvolvedObject.UID) + "/" + e.Reason }
