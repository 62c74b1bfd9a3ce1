package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
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
	// tenantFor is the least time of a visit: longer than a lease lasts.
	tenantFor = 20 * time.Second
	// lostLease is in the log of the hub once for each lease that it loses.
	lostLease = "Lease lost"
)

// tenant is a ServiceAccount that saturates a priority level of the API server: a webhook that hangs holds each of
// its requests. They take all seats and next to no CPU time, which the hub would miss on the same machine.
type tenant struct {
	plane   *testbed.ControlPlane
	client  kubernetes.Interface // of the ServiceAccount
	webhook *httptest.Server
}

// prepareTenant makes all that the tenant needs.
func prepareTenant(ctx context.Context, s *stage) error {
	t := &tenant{plane: s.Plane}
	s.tenant = t
	t.webhook = httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = pause(r.Context(), webhookTimeout) // the API server gives up
	}))
	t.webhook.Config.ErrorLog = log.New(io.Discard, "", 0) // of requests that were given up
	t.webhook.EnableHTTP2 = true
	t.webhook.StartTLS()
	meta := metav1.ObjectMeta{Name: tenantName}
	_, namespace := s.client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
	_, account := s.client().CoreV1().ServiceAccounts(tenantName).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	_, rights := s.client().RbacV1().RoleBindings(tenantName).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenantName, Name: tenantName}}}, metav1.CreateOptions{})
	_, webhook := s.client().AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, t.webhookConfiguration(), metav1.CreateOptions{})
	kubeconfig := s.file(tenantName + ".kubeconfig")
	err := errors.Join(namespace, account, rights, webhook, s.Plane.WriteAccountKubeconfig(ctx, kubeconfig, tenantName, tenantName))
	if err != nil {
		return fmt.Errorf("make a noisy tenant: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read kubeconfig of the noisy tenant: %w", err)
	}
	config.QPS = -1 // no client-side limit
	t.client, err = kubernetes.NewForConfig(config)
	return err
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

// whileSaturated acts while requests of the tenant wait in queues, because others of them hold all seats of the priority level. It
// fails if none waits at the end. It blocks until none of the requests is left.
func (t *tenant) whileSaturated(ctx context.Context, act func(context.Context) error) (err error) {
	asks, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	for range tenantRequests {
		asking.Go(func() {
			for asks.Err() == nil {
				if err := t.ask(asks); err != nil { // after a while in a queue it is refused
					_ = pause(asks, tenantPause+rand.N(tenantPause))
				}
			}
		})
	}
	defer func() {
		cancel()
		asking.Wait()
		err = errors.Join(err, t.wait(ctx, "no request is left", func(l testbed.PriorityLevel) bool { return l.Executing+l.Waiting == 0 }))
	}()
	if err := t.wait(ctx, "requests wait in queues", func(l testbed.PriorityLevel) bool { return l.Waiting >= tenantWaiting }); err != nil {
		return err
	}
	if err := act(ctx); err != nil {
		return err
	}
	// Not at any moment: requests that were refused together come back a little later.
	return t.wait(ctx, "requests wait in queues again", func(l testbed.PriorityLevel) bool { return l.Waiting > 0 })
}

func (t *tenant) ask(ctx context.Context) error {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "noise-"}}
	return t.client.CoreV1().RESTClient().Post().Namespace(tenantName).Resource("configmaps").
		Param("dryRun", metav1.DryRunAll).Body(object).
		MaxRetries(0). // client-go would wait as long as a refusal asks for, up to half a minute
		Do(ctx).Error()
}

// wait blocks until the priority level is as it should be.
func (t *tenant) wait(ctx context.Context, what string, holds func(testbed.PriorityLevel) bool) error {
	return waitUntil(ctx, what, func(context.Context) error { // a busy API server makes its metrics for longer than a try may take
		level, err := t.plane.PriorityLevel(ctx, tenantLevel)
		if err == nil && !holds(level) {
			err = fmt.Errorf("noisy tenant: %+v", level)
		}
		return err
	})
}

func (t *tenant) close() {
	t.webhook.CloseClientConnections()
	t.webhook.Close()
}

// turnOfTenant measures how long volumes take to attach, without a noisy tenant and then beside it, and counts the leases that the hub
// loses meanwhile.
func turnOfTenant(ctx context.Context, s *stage, a *attacher) (Figures, error) {
	if _, err := s.burst(ctx, a, s.warmUp); err != nil {
		return nil, err
	}
	// The median: one burst of a busy machine says little.
	bursts := func(ctx context.Context) (p99 float64, err error) {
		var all []Figures
		for range s.c.Bursts {
			f, err := s.burst(ctx, a, s.volumes)
			if err != nil {
				return 0, err
			}
			all = append(all, f)
		}
		return medians(all)[AttachP99], nil
	}
	quiet, err := bursts(ctx)
	if err != nil {
		return nil, err
	}
	var noisy float64
	err = s.tenant.whileSaturated(ctx, func(ctx context.Context) (err error) {
		began := time.Now()
		if noisy, err = bursts(ctx); err != nil {
			return err
		}
		return pause(ctx, tenantFor-time.Since(began))
	})
	if err != nil {
		return nil, err
	}
	lost := 0
	for _, p := range a.processes {
		log, err := os.ReadFile(p.LogPath())
		if err != nil {
			return nil, fmt.Errorf("read log of the hub: %w", err)
		}
		lost += bytes.Count(log, []byte(lostLease))
	}
	s.say("%s: attach p99 %s, beside the noisy tenant %s", a.name, duration(quiet), duration(noisy))
	return Figures{QuietP99: quiet, TenantP99: noisy, TenantRatio: noisy / quiet, LeasesLost: float64(lost)}, nil
}
