package main

import (
	"errors"
	"fmt"
	"net"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"
)

// kubeConfig returns the client configuration of a kubeconfig file, or of the Pod if that
// is "". It has no rate limit: the API server has priority and fairness, and with one limit
// for all a driver would delay the others.
func kubeConfig(kubeconfig string) (*rest.Config, error) {
	var config *rest.Config
	var err error
	if kubeconfig != "" {
		config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	} else if config, err = rest.InClusterConfig(); errors.Is(err, rest.ErrNotInCluster) {
		err = fmt.Errorf("%w; outside of a cluster, set --kubeconfig", err)
	}
	if err != nil {
		return nil, fmt.Errorf("find the Kubernetes API: %w", err)
	}
	config.DisableCompression = true // as in kube-controller-manager: the API server is near, and compression costs CPU on both sides
	return forProtobuf(config), nil
}

// forProtobuf sets the options of all clients: no rate limit, and protobuf where the API has it.
func forProtobuf(config *rest.Config) *rest.Config {
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "csi-attach-hub/" + version
	return config
}

// withOwnConnection returns the configuration of a client that shares no connection with other clients, and has a
// user agent that ends in use.
func withOwnConnection(config *rest.Config, use string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{}).DialContext // client-go shares connections of equal configs
	config.UserAgent += " " + use
	return config
}

// kubeClient is a client for the groups of the Kubernetes API that this program uses. It
// implements that part of kubernetes.Interface. A kubernetes.Clientset has all groups. It
// would be a third of the program and 12 MB of its memory: html/template finds methods by
// their names, so the linker keeps every method of every type.
type kubeClient struct {
	authorization *authorizationv1.AuthorizationV1Client
	coordination  *coordinationv1.CoordinationV1Client
	core          *corev1.CoreV1Client
	storage       *storagev1.StorageV1Client
}

func newKubeClient(config *rest.Config) (*kubeClient, error) {
	// One HTTP client: the groups share its connections, also if the config has a dialer.
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	var c kubeClient
	var errs [4]error
	c.authorization, errs[0] = authorizationv1.NewForConfigAndClient(config, http)
	c.coordination, errs[1] = coordinationv1.NewForConfigAndClient(config, http)
	c.core, errs[2] = corev1.NewForConfigAndClient(config, http)
	c.storage, errs[3] = storagev1.NewForConfigAndClient(config, http)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	return &c, nil
}

func (c *kubeClient) AuthorizationV1() authorizationv1.AuthorizationV1Interface {
	return c.authorization
}
func (c *kubeClient) CoordinationV1() coordinationv1.CoordinationV1Interface { return c.coordination }
func (c *kubeClient) CoreV1() corev1.CoreV1Interface                         { return c.core }
func (c *kubeClient) StorageV1() storagev1.StorageV1Interface                { return c.storage }

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
	client, err := corev1.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make the client for events: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: eventsPerKeyBurst, QPS: eventsPerKeyPerSecond, SpamKeyFunc: spamKey}))
	broadcaster.StartRecordingToSink(&corev1.EventSinkImpl{Interface: client.Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, apiv1.EventSource{Component: "csi-attach-hub"}), broadcaster.Shutdown, nil
}

// spamKey returns a key with the reason, so that many AttachFailed Events of a volume do not
// use up the limit of its AttachStuck Event.
func spamKey(e *apiv1.Event) string { return string(e.InvolvedObject.UID) + "/" + e.Reason }
