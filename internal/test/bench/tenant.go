package main

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
)

const (
	tenantName = "noisy-tenant" // of its namespace, ServiceAccount and all else
	// tenantLevel is the priority level of all ServiceAccounts without a FlowSchema of their own.
	tenantLevel = "workload-low"
	// tenantRequests are more than the 245 seats of tenantLevel and the 123 that it can borrow, and fewer than those seats
	// and its queues for one user take (300): a refused request costs CPU time, one that waits does not.
	tenantRequests = 500
	// tenantWaiting is how many of them wait in queues when the level is saturated.
	tenantWaiting = 100
	// webhookTimeout is the longest that Kubernetes allows.
	webhookTimeout = 30 * time.Second
	tenantPause    = 500 * time.Millisecond
	tenantPatience = time.Minute
)

// tenant is a ServiceAccount that saturates a priority level of the API server: a webhook that hangs holds each of
// its requests. They take all seats and next to no CPU time, which the hub would miss on the same machine.
type tenant struct {
	plane   *testbed.ControlPlane
	client  kubernetes.Interface // of the ServiceAccount
	webhook *httptest.Server
}

// newTenant makes all that the tenant needs. The caller must close it, also after an error.
func newTenant(ctx context.Context, s *stage) (*tenant, error) {
	t := &tenant{plane: s.Plane}
	t.webhook = httptest.NewUnstartedServer(http.HandlerFunc(answerLate))
	t.webhook.Config.ErrorLog = log.New(io.Discard, "", 0) // of requests that were given up
	t.webhook.EnableHTTP2 = true
	t.webhook.StartTLS()
	meta := metav1.ObjectMeta{Name: tenantName}
	admin := s.client()
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
	if err == nil {
		_, err = admin.CoreV1().ServiceAccounts(tenantName).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = admin.RbacV1().RoleBindings(tenantName).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenantName, Name: tenantName}}}, metav1.CreateOptions{})
	}
	if err == nil {
		_, err = admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, t.webhookConfiguration(), metav1.CreateOptions{})
	}
	if err != nil {
		return t, fmt.Errorf("make a noisy tenant: %w", err)
	}
	return t, t.connect(ctx, filepath.Join(s.dir, tenantName+".kubeconfig"))
}

func (t *tenant) webhookConfiguration() *admissionregistrationv1.ValidatingWebhookConfiguration {
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: tenantName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "hangs.bench.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &t.webhook.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: t.webhook.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: tenantName}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
			FailurePolicy:           new(admissionregistrationv1.Ignore),
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			TimeoutSeconds:          new(int32(webhookTimeout / time.Second)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
}

func (t *tenant) connect(ctx context.Context, kubeconfig string) error {
	if err := t.plane.WriteAccountKubeconfig(ctx, kubeconfig, tenantName, tenantName); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig of the noisy tenant: %w", err)
	}
	config.QPS = -1 // no client-side limit
	t.client, err = kubernetes.NewForConfig(config)
	return err
}

// answerLate answers an admission review when the API server has given up, or a little before.
func answerLate(w http.ResponseWriter, r *http.Request) {
	var review admissionv1.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "no admission review", http.StatusBadRequest)
		return
	}
	select {
	case <-r.Context().Done():
	case <-time.After(webhookTimeout - time.Second):
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	_ = json.NewEncoder(w).Encode(review) // it may not wait any more
}

// saturate blocks until requests of the tenant wait in queues, because others of them hold all seats of the priority
// level; waiting is their number. It goes on until the caller calls stop, which blocks until none of the requests is
// left. stop fails if none waits any more.
func (t *tenant) saturate(ctx context.Context) (stop func() error, waiting int, err error) {
	asks, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	for range tenantRequests {
		asking.Go(func() {
			for asks.Err() == nil {
				if err := t.ask(asks); err != nil { // after a while in a queue it is refused
					pause(asks, tenantPause+rand.N(tenantPause))
				}
			}
		})
	}
	end := func() error {
		cancel()
		asking.Wait()
		_, err := t.wait(ctx, "none of its requests is left", func(l testbed.PriorityLevel) bool { return l.Executing+l.Waiting == 0 })
		return err
	}
	level, err := t.wait(ctx, "its requests wait in queues", func(l testbed.PriorityLevel) bool { return l.Waiting >= tenantWaiting })
	if err != nil {
		return nil, 0, errors.Join(err, end())
	}
	return func() error {
		// Not at any moment: requests that were refused together come back a little later.
		_, err := t.wait(ctx, "its requests wait in queues again", func(l testbed.PriorityLevel) bool { return l.Waiting > 0 })
		return errors.Join(err, end())
	}, level.Waiting, nil
}

func (t *tenant) ask(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "noise-"}}
	return t.client.CoreV1().RESTClient().Post().Namespace(tenantName).Resource("configmaps").
		Param("dryRun", metav1.DryRunAll).Body(object).
		MaxRetries(0). // client-go would wait as long as a refusal asks for, up to half a minute
		Do(ctx).Error()
}

func (t *tenant) wait(ctx context.Context, what string, holds func(testbed.PriorityLevel) bool) (testbed.PriorityLevel, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tenantPatience, fmt.Errorf("not after %v", tenantPatience))
	defer cancel()
	for {
		level, err := t.plane.PriorityLevel(ctx, tenantLevel)
		if err == nil && holds(level) {
			return level, nil
		}
		if pause(ctx, tenantPause); ctx.Err() != nil {
			return level, fmt.Errorf("wait for the noisy tenant until %s: %+v: %w", what, level, errors.Join(context.Cause(ctx), err))
		}
	}
}

func (t *tenant) close() {
	t.webhook.CloseClientConnections()
	t.webhook.Close()
}

// pause blocks for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
