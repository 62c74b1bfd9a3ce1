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
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const (
	// mostPodNodes bounds the nodes whose Pods are listed: those of the worst volumes.
	mostPodNodes = 20
	// podRequests is how many nodes are asked for at once, and podTimeout bounds all requests together.
	podRequests = 4
	podTimeout  = 5 * time.Second
)

// claimNode is a claim, "namespace/name", that Pods on a node may use.
type claimNode struct{ claim, node string }

// addPods fills in the Pods of VolumeAttachments, with the user's own rights: it lists the Pods of the nodes. Without a config it does nothing. The error says what could not be listed.
func addPods(ctx context.Context, config *rest.Config, all []status.Attachment) error {
	nodes := nodesToAsk(all)
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
	pods := map[claimNode][]string{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(podRequests)
	for _, node := range nodes {
		group.Go(func() error {
			found, err := podsOnNode(ctx, kube.CoreV1(), node)
			mu.Lock()
			defer mu.Unlock()
			for claim, names := range found {
				pods[claimNode{claim, node}] = names
			}
			return err
		})
	}
	err = group.Wait()
	for i := range all {
		all[i].Pods = pods[claimNode{all[i].Claim, all[i].Node}]
	}
	return err
}

// nodesToAsk returns the nodes of the first VolumeAttachments whose claims are known.
func nodesToAsk(all []status.Attachment) []string {
	var nodes []string
	known := map[string]bool{}
	for _, a := range all {
		if len(nodes) == mostPodNodes {
			break
		}
		if a.Claim != "" && a.Node != "" && !known[a.Node] {
			known[a.Node] = true
			nodes = append(nodes, a.Node)
		}
	}
	return nodes
}

// podsOnNode returns the Pods of a node that have not ended, as "namespace/name", by the claims that they use.
func podsOnNode(ctx context.Context, kube corev1client.PodsGetter, node string) (map[string][]string, error) {
	list, err := kube.Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector("spec.nodeName", node).String(),
		ResourceVersion: "0", // from the API server's cache
	})
	if err != nil {
		return nil, fmt.Errorf("list the Pods of node %s: %w", node, err)
	}
	found := map[string][]string{}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, v := range pod.Spec.Volumes {
			claim := ""
			switch {
			case v.PersistentVolumeClaim != nil:
				claim = v.PersistentVolumeClaim.ClaimName
			case v.Ephemeral != nil:
				claim = pod.Name + "-" + v.Name
			default:
				continue
			}
			key := pod.Namespace + "/" + claim
			found[key] = append(found[key], pod.Namespace+"/"+pod.Name)
		}
	}
	return found, nil
}
