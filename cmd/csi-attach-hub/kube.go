package main

import (
	"fmt"

	authenticationv1 "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationv1 "k8s.io/client-go/kubernetes/typed/authorization/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	storagev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
)

// kubeClient is a client for the groups of the Kubernetes API that this program uses.
// A kubernetes.Clientset, which has all groups, would be a third of the program and
// 12 MB of its memory: html/template finds methods by their names, so that the linker
// keeps every method of every type.
type kubeClient struct {
	authentication *authenticationv1.AuthenticationV1Client
	authorization  *authorizationv1.AuthorizationV1Client
	coordination   *coordinationv1.CoordinationV1Client
	core           *corev1.CoreV1Client
	storage        *storagev1.StorageV1Client
}

func newKubeClient(config *rest.Config) (*kubeClient, error) {
	c, err := connectKube(config)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	return c, nil
}

func connectKube(config *rest.Config) (*kubeClient, error) {
	// One for all, so that they share connections also where the config has a dialer.
	http, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	var c kubeClient
	if c.authentication, err = authenticationv1.NewForConfigAndClient(config, http); err != nil {
		return nil, err
	}
	if c.authorization, err = authorizationv1.NewForConfigAndClient(config, http); err != nil {
		return nil, err
	}
	if c.coordination, err = coordinationv1.NewForConfigAndClient(config, http); err != nil {
		return nil, err
	}
	if c.core, err = corev1.NewForConfigAndClient(config, http); err != nil {
		return nil, err
	}
	c.storage, err = storagev1.NewForConfigAndClient(config, http)
	return &c, err
}

// The methods are those of kubernetes.Interface.

func (c *kubeClient) AuthenticationV1() authenticationv1.AuthenticationV1Interface {
	return c.authentication
}
func (c *kubeClient) AuthorizationV1() authorizationv1.AuthorizationV1Interface {
	return c.authorization
}
func (c *kubeClient) CoordinationV1() coordinationv1.CoordinationV1Interface { return c.coordination }
func (c *kubeClient) CoreV1() corev1.CoreV1Interface                         { return c.core }
func (c *kubeClient) StorageV1() storagev1.StorageV1Interface                { return c.storage }
