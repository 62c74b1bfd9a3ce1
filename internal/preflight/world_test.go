package preflight

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/internal/certtest"
	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/rights"
	"github.com/csi-attach-hub/csi-attach-hub/internal/testbed"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsfiles"
	"github.com/csi-attach-hub/csi-attach-hub/internal/tlsproxy"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

func TestMain(m *testing.M) {
	os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
}

const (
	serverName        = "driver.storage.svc"
	hub, elsewhere    = "preflight-hub", "preflight-drivers" // namespaces
	account           = "preflight"
	testTimeout       = 2 * time.Minute
	quarter           = 90 * 24 * time.Hour
	holder, heldFor   = "csi-attacher-0", 15 * time.Second
	grantedSecret     = "granted"
	notGrantedSecret  = "not-granted"
	nodeName, nodeTwo = "preflight-node", "preflight-node-2"
)

// world is a real API server with drivers on sockets and on TCP ports with TLS.
type world struct {
	t               *testing.T
	ctx             context.Context
	dir             string
	admin           kubernetes.Interface
	driverCA, hubCA *certtest.Authority
	tls             registry.TLS
	granted         []rights.Right
}

func newWorld(t *testing.T) *world {
	t.Helper()
	plane := testbed.Shared(t)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, dir: testbed.ShortTempDir(t), admin: plane.Clientset(), driverCA: certtest.NewAuthority(t, "driver CA"), hubCA: certtest.NewAuthority(t, "hub CA")}
	w.tls = w.files("hub", w.driverCA, w.hubCA.Issue(certtest.Request{Names: []string{"hub"}, To: time.Now().Add(quarter)}))
	for _, name := range []string{hub, elsewhere} {
		if _, err := w.admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w.granted = append(rights.Needed(rights.Features{ReplicaNamespace: hub}), rights.Right{Verb: "get", Resource: "secrets", Namespace: elsewhere, Name: grantedSecret})
	return w
}

// files writes TLS files of the hub's side into a folder.
func (w *world) files(folder string, trusted *certtest.Authority, own certtest.Pair) registry.TLS {
	w.t.Helper()
	dir := filepath.Join(w.dir, folder)
	if err := os.Mkdir(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	f := certtest.Write(w.t, dir, trusted, own)
	return registry.TLS{CAFile: f.CA, CertFile: f.Cert, KeyFile: f.Key, ServerName: serverName}
}

// onSocket is a driver on a socket, whose lease is elsewhere and which has VolumeAttachments on nodeName.
func (w *world) onSocket(name string, knobs fakecsi.Knobs) registry.Driver {
	w.t.Helper()
	d := testbed.DriverForTest(w.t, name, filepath.Join(w.dir, name))
	if err := d.Backend.Set(knobs); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = d.Backend.Set(fakecsi.Knobs{ReleaseAll: true}) })
	return w.entry(name, registry.Endpoint(d.Endpoint()))
}

func (w *world) entry(name string, e registry.Endpoint) registry.Driver {
	return registry.Driver{Name: name, Endpoint: e, Settings: registry.Settings{Mode: registry.ModeObserve, Lease: registry.Lease{Namespace: elsewhere}}, Source: "drivers.yaml:3"}
}

// onTCP is a driver on a port with TLS, whose certificate is as asked for.
func (w *world) onTCP(name string, issuer *certtest.Authority, r certtest.Request) registry.Driver {
	w.t.Helper()
	backend, err := fakecsi.New(fakecsi.Options{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: "tcp://127.0.0.1:0", TLS: &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{issuer.Issue(r).TLS()}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: w.hubCA.Pool()}})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(server.Crash)
	d := w.entry(name, registry.Endpoint(server.Endpoint()))
	d.TLS = w.tls
	return d
}

// behindProxy is a driver on a socket with the proxy beside it.
func (w *world) behindProxy(name string) registry.Driver {
	w.t.Helper()
	d := w.onSocket(name, fakecsi.Knobs{})
	files := w.files("proxy", w.hubCA, w.driverCA.Issue(certtest.Request{Names: []string{serverName}, To: time.Now().Add(quarter)}))
	proxy, err := tlsproxy.New(tlsproxy.Options{Target: d.Endpoint.Address(), Files: tlsfiles.Files{CA: files.CAFile, Cert: files.CertFile, Key: files.KeyFile},
		AllowedSANs: []string{"hub"}, MaxConnections: 10, IdleTimeout: time.Hour, HandshakeTimeout: 10 * time.Second, ProbeTimeout: 10 * time.Second, Grace: time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- proxy.Serve(ctx, listener) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, net.ErrClosed) {
			w.t.Error(err)
		}
	})
	d.Endpoint, d.TLS = registry.Endpoint("tcp://"+listener.Addr().String()), w.tls
	return d
}

// lease makes the lease of a driver and grants the rights on it.
func (w *world) lease(d registry.Driver, holder string, renewed time.Time) {
	w.t.Helper()
	name := d.LeaseOf().Name
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To(int32(heldFor.Seconds()))}}
	if holder != "" {
		l.Spec.HolderIdentity, l.Spec.RenewTime = &holder, &metav1.MicroTime{Time: renewed}
	}
	if _, err := w.admin.CoordinationV1().Leases(elsewhere).Create(w.ctx, l, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.grantLease(name)
}

func (w *world) grantLease(name string) {
	for _, verb := range []string{"get", "list", "watch", "update"} {
		w.granted = append(w.granted, rights.Right{Verb: verb, Group: "coordination.k8s.io", Resource: "leases", Namespace: elsewhere, Name: name})
	}
}

// kube returns a client of an account that has what was granted, in the namespaces of the rights.
func (w *world) kube() kubernetes.Interface {
	w.t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range w.granted {
		resource := r.Resource
		if r.Subresource != "" {
			resource += "/" + r.Subresource
		}
		rule := rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{resource}, Verbs: []string{r.Verb}}
		if r.Name != "" {
			rule.ResourceNames = []string{r.Name}
		}
		rules[r.Namespace] = append(rules[r.Namespace], rule)
	}
	meta, user := metav1.ObjectMeta{Name: account}, []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}}
	for namespace, rules := range rules {
		var errs [2]error
		if namespace == "" {
			_, errs[0] = w.admin.RbacV1().ClusterRoles().Create(w.ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
			_, errs[1] = w.admin.RbacV1().ClusterRoleBindings().Create(w.ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: user,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account}}, metav1.CreateOptions{})
		} else {
			_, errs[0] = w.admin.RbacV1().Roles(namespace).Create(w.ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
			_, errs[1] = w.admin.RbacV1().RoleBindings(namespace).Create(w.ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: user,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account}}, metav1.CreateOptions{})
		}
		if err := errors.Join(errs[:]...); err != nil {
			w.t.Fatal(err)
		}
		last := w.granted[len(w.granted)-1]
		for _, r := range w.granted {
			if r.Namespace == namespace {
				last = r
			}
		}
		testbed.WaitAllowed(w.t, w.admin, authorizationv1.SubjectAccessReviewSpec{User: account, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: last.Verb, Group: last.Group, Resource: last.Resource, Subresource: last.Subresource, Namespace: namespace, Name: last.Name}})
	}
	config := testbed.Shared(w.t).RESTConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: account, Groups: []string{"system:authenticated"}}
	config.QPS = -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return kube
}
