package pods

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// request is one that the fakeCluster has got.
type request struct {
	at      time.Time
	options metav1.ListOptions
}

// fakeCluster is an API server as far as this package sees one. It keeps books of the requests.
type fakeCluster struct {
	mu       sync.Mutex
	pods     map[string][]corev1.Pod // by node
	pageSize int                     // 0: all in one page, as from the watch cache
	refuses  bool
	fails    bool
	hangs    bool // requests end with their context
	requests []request
}

func newFakeCluster() *fakeCluster { return &fakeCluster{pods: map[string][]corev1.Pod{}} }

func (c *fakeCluster) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// add makes a Pod with volumes of claims.
func (c *fakeCluster) add(node, namespace, name string, claims ...string) {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	for i, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	c.change(func() { c.pods[node] = append(c.pods[node], pod) })
}

// List implements Lister.
func (c *fakeCluster) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, request{time.Now(), o})
	node, ok := strings.CutPrefix(o.FieldSelector, "spec.nodeName=")
	switch {
	case !ok || o.Continue != "" && o.ResourceVersion != "":
		return nil, apierrors.NewBadRequest("a request that the API server does not take")
	case c.refuses:
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no right"))
	case c.fails:
		return nil, apierrors.NewInternalError(errors.New("broken"))
	case c.hangs:
		c.mu.Unlock()
		<-ctx.Done()
		c.mu.Lock()
		return nil, ctx.Err()
	}
	from, _ := strconv.Atoi(o.Continue)
	all := c.pods[node]
	list := &corev1.PodList{Items: slices.Clone(all[from:])}
	if c.pageSize > 0 && len(list.Items) > c.pageSize {
		list.Items, list.Continue = list.Items[:c.pageSize], strconv.Itoa(from+c.pageSize)
	}
	return list, nil
}

// seen returns the requests until now. They are a copy: another may come while the test looks at them.
func (c *fakeCluster) seen() []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// count returns the number of requests until now.
func (c *fakeCluster) count() int { return len(c.seen()) }

// inBubble runs a test with its own time, a cluster and a Finder that runs. log returns what it has logged.
func inBubble(t *testing.T, test func(t *testing.T, c *fakeCluster, f *Finder, log func() string)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := newFakeCluster()
		f := New(c)
		var log lines
		logger := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&log)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		ended := make(chan error)
		go func() { ended <- f.Run(ctx) }()
		test(t, c, f, log.String)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
}

type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// ask asks once, lets the Finder do what follows, and asks again.
func ask(f *Finder, node, namespace, claim string) []string {
	f.PodsOf(node, namespace, claim)
	synctest.Wait()
	return f.PodsOf(node, namespace, claim)
}
