package pods

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

const (
	// maxPods bounds the Pods of one claim that are kept.
	maxPods = 5
	// maxClaims bounds the claims of one node that are kept.
	maxClaims = 2000
	// A node has rarely more than 250 Pods; a listing ends after maxPages pages.
	pageSize, maxPages = 500, 4
	// listTimeout bounds the listing of one node.
	listTimeout = 10 * time.Second
)

// Lister is the part of the Kubernetes client for Pods that a Finder uses.
type Lister interface {
	List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error)
}

// list returns the Pods of a node by the claims that they use.
func (f *Finder) list(ctx context.Context, node string) (map[string][]string, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	found := map[string][]string{}
	// Version 0 is answered from the API server's watch cache, which has an index of nodes. It ignores the limit.
	o := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), ResourceVersion: "0", Limit: pageSize}
	for range maxPages {
		if err := f.limit.Wait(ctx); err != nil {
			return nil, fmt.Errorf("wait for the limit of requests: %w", err)
		}
		page, err := f.pods.List(ctx, o)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			addPod(found, &page.Items[i])
		}
		if page.Continue == "" {
			break
		}
		o.ResourceVersion, o.Continue = "", page.Continue // both together are an error
	}
	for claim, pods := range found {
		slices.Sort(pods)
		pods = slices.Compact(pods)
		found[claim] = slices.Clone(pods[:min(len(pods), maxPods)])
	}
	return found, nil
}

// addPod adds a Pod to those of its claims. A Pod that has ended uses no volume.
func addPod(found map[string][]string, pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	for _, v := range pod.Spec.Volumes {
		if name := claimOf(pod.Name, v); name != "" {
			claim := pod.Namespace + "/" + name
			if found[claim] != nil || len(found) < maxClaims {
				found[claim] = append(found[claim], pod.Namespace+"/"+pod.Name)
			}
		}
	}
}

// claimOf returns the name of the claim of a Pod's volume, "" if it has none.
func claimOf(pod string, v corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil: // Kubernetes makes a claim with this name
		return pod + "-" + v.Name
	}
	return ""
}
