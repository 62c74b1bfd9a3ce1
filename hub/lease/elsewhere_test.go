package lease

import (
	"net/http"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// elsewhere returns w with the leases of drivers in another namespace than the replicas.
func (w *world) elsewhere() *world {
	w.t.Helper()
	other := *w
	other.namespace, other.servers = w.makeNamespace(), newServers(w.t)
	return &other
}

// A Role with resourceNames grants list and watch only for requests that select the name.
func TestALeaseInAnotherNamespaceIsWatchedByItsNameAlone(t *testing.T) {
	w := newWorld(t)
	other := w.elsewhere()
	others := "/namespaces/" + other.namespace + "/leases"
	a := w.replica()
	b := w.replicaThat(forbidding(func(r *http.Request) bool {
		named := r.URL.Query().Get("fieldSelector") == "metadata.name="+other.lease("d").Name
		// Without get too: nothing is polled, so what is seen comes from the watch.
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, others) && !named
	}))
	a.w, b.w = other, other
	a.hold("d")
	a.term("d")
	b.hold("d")
	b.waitsFor("d", "held by "+a.options.Identity)
	a.stop()
	b.term("d")
}

func TestALeaseThatIsMissingAndMayNotBeCreatedIsNamed(t *testing.T) {
	w := newWorld(t)
	other := w.elsewhere()
	r := w.replicaThat(forbidding(func(r *http.Request) bool {
		return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/namespaces/"+other.namespace+"/leases")
	}))
	r.w = other
	r.hold("d")
	name := other.lease("d")
	r.waitsFor("d", "lease "+name.String()+" does not exist, and the hub may not create it; create the lease, or remove lease.namespace")
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name.Name}}
	if _, err := w.kube.CoordinationV1().Leases(name.Namespace).Create(w.ctx, lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.term("d")
}
