package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/explain"
)

const (
	// mostPodNodes bounds the nodes whose Pods are listed: those of the worst volumes.
	mostPodNodes = 20
	// podRequests is how many nodes are requested at once, and podTimeout bounds all requests together.
	podRequests = 4
	podTimeout  = 5 * time.Second
)

// claimNode is a claim, "namespace/name", that Pods on a node may use.
type claimNode struct{ claim, node string }

// addPods fills in the Pods of VolumeAttachments, with the user's own rights: it lists the Pods on the nodes of the first
// of them whose claims are known. Without a config it does nothing. The error says what could not be listed.
func addPods(ctx context.Context, config *rest.Config, all []status.Attachment) error {
	nodes := map[string]bool{}
	for _, a := range all {
		if a.Claim != "" && a.Node != "" && len(nodes) < mostPodNodes {
			nodes[a.Node] = true
		}
	}
	if config == nil || len(nodes) == 0 {
		return nil
	}
	kube, err := newKubeClient(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, podTimeout)
	defer cancel()
	var mu sync.Mutex
	pods := map[claimNode][]string{} // "namespace/name", guarded by mu
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(podRequests)
	for node := range nodes {
		group.Go(func() error {
			list, err := kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
				FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node).String(),
				ResourceVersion: "0", // from the API server's cache
			})
			if err != nil {
				return fmt.Errorf("list the Pods of node %s: %w", node, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for i := range list.Items {
				for _, claim := range claimsOf(&list.Items[i]) {
					key := claimNode{claim, node}
					pods[key] = append(pods[key], list.Items[i].Namespace+"/"+list.Items[i].Name)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	for i := range all {
		all[i].Pods = pods[claimNode{all[i].Claim, all[i].Node}]
	}
	return err
}

// claimsOf returns the claims that a Pod uses, as "namespace/name": none if it has ended.
func claimsOf(pod *corev1.Pod) []string {
	var claims []string
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	for i := range pod.Spec.Volumes {
		if claim := explain.ClaimOf(pod, &pod.Spec.Volumes[i]); claim != "" && !ended {
			claims = append(claims, pod.Namespace+"/"+claim)
		}
	}
	return claims
}
