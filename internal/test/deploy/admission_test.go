package deploy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// target is a PersistentVolume and a VolumeAttachment to write to, and who writes.
type target struct {
	t      *testing.T
	ctx    context.Context
	hub    kubernetes.Interface // with the token of the hub's ServiceAccount
	name   string               // of both objects
	dryRun []string
}

// newTarget makes the objects. They have what the hub must not change.
func newTarget(d *deployed, name string) target {
	d.t.Helper()
	t := target{d.t, d.ctx, d.clientWith(d.token), d.prefix + "-" + name, nil}
	meta := metav1.ObjectMeta{Name: t.name, Finalizers: []string{"example.com/keep"}, Annotations: map[string]string{"example.com/note": "old"}}
	pv := &corev1.PersistentVolume{ObjectMeta: meta, Spec: corev1.PersistentVolumeSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
		PersistentVolumeSource:        corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "nobody", VolumeHandle: "v"}},
	}}
	if _, err := d.client.CoreV1().PersistentVolumes().Create(d.ctx, pv, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
	va := &storagev1.VolumeAttachment{ObjectMeta: meta, Spec: storagev1.VolumeAttachmentSpec{
		Attacher: "nobody", NodeName: "nowhere", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &pv.Name}}}
	if _, err := d.client.StorageV1().VolumeAttachments().Create(d.ctx, va, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
	applied := []byte(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"labels":{"tier":"a"}}}`)
	if _, err := d.client.CoreV1().PersistentVolumes().Patch(d.ctx, t.name, types.ApplyPatchType, applied, metav1.PatchOptions{FieldManager: "gitops"}); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		none := []byte(`{"metadata":{"finalizers":null}}`)
		pvs, vas, ctx := d.client.CoreV1().PersistentVolumes(), d.client.StorageV1().VolumeAttachments(), context.Background()
		_ = pvs.Delete(ctx, t.name, metav1.DeleteOptions{})
		_ = vas.Delete(ctx, t.name, metav1.DeleteOptions{})
		_, _ = pvs.Patch(ctx, t.name, types.MergePatchType, none, metav1.PatchOptions{})
		_, _ = vas.Patch(ctx, t.name, types.MergePatchType, none, metav1.PatchOptions{})
	})
	return t
}

// handOver is a JSON patch that has another manager own a label, in its first entry if that manager has one. The next apply by that
// manager, which does not name the label, removes it.
func handOver(apiVersion, manager, operation string) string {
	path, op := "/metadata/managedFields/-", "add"
	if manager == "gitops" {
		path, op = "/metadata/managedFields/0", "replace"
	}
	return fmt.Sprintf(`[{"op":%q,"path":%q,"value":{"manager":%q,"operation":%q,"apiVersion":%q,"fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{"f:team":{}}}}}}]`,
		op, path, manager, operation, apiVersion)
}

// pv and va return writes by a patch, lease a write of a Lease by its verb.
func (t target) pv(kind types.PatchType, body string, subresources ...string) func() error {
	return func() error {
		_, err := t.hub.CoreV1().PersistentVolumes().Patch(t.ctx, t.name, kind, []byte(body), t.options(kind), subresources...)
		return err
	}
}

func (t target) va(kind types.PatchType, body string, subresources ...string) func() error {
	return func() error {
		_, err := t.hub.StorageV1().VolumeAttachments().Patch(t.ctx, t.name, kind, []byte(body), t.options(kind), subresources...)
		return err
	}
}

func (t target) options(kind types.PatchType) metav1.PatchOptions {
	o := metav1.PatchOptions{DryRun: t.dryRun, FieldManager: "csi-attach-hub"}
	if kind == types.ApplyPatchType {
		force := true
		o.Force = &force
	}
	return o
}

func (t target) lease(verb, namespace, name string, changes ...func(*coordinationv1.Lease)) func() error {
	leases := t.hub.CoordinationV1().Leases(namespace)
	return func() (err error) {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if verb == "update" { // needs the resourceVersion
			if l, err = leases.Get(t.ctx, name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		for _, change := range changes {
			change(l)
		}
		switch verb {
		case "create":
			_, err = leases.Create(t.ctx, l, metav1.CreateOptions{DryRun: t.dryRun})
		case "update":
			_, err = leases.Update(t.ctx, l, metav1.UpdateOptions{DryRun: t.dryRun})
		case "delete":
			err = leases.Delete(t.ctx, name, metav1.DeleteOptions{DryRun: t.dryRun})
		}
		return err
	}
}

// byPolicy reports whether a policy of components/admission-policy refused the write. The error of a missing right
// does not name it.
func byPolicy(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'csi-attach-hub-")
}

// waitPolicies waits until all policies hold.
func (d *deployed) waitPolicies() {
	d.t.Helper()
	t := newTarget(d, "probe")
	t.dryRun = []string{metav1.DryRunAll}
	const label = `{"metadata":{"labels":{"a":"b"}}}`
	for what, write := range map[string]func() error{
		"leases":            t.lease("create", "csi-attach-hub", "other"),
		"PersistentVolumes": t.pv(types.MergePatchType, label),
		"VolumeAttachments": t.va(types.MergePatchType, label),
	} {
		poll(d.ctx, d.t, "the policy for "+what+" holds", func() bool { return byPolicy(write()) })
	}
}

// mayWriteAll gives the hub all rights on what the policies are for: RBAC refuses nothing then.
func (d *deployed) mayWriteAll() {
	d.t.Helper()
	name, roles := d.prefix+"-all", d.client.RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"},
		Resources: []string{"leases", "persistentvolumes", "persistentvolumes/status", "volumeattachments", "volumeattachments/status"}}}}
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "csi-attach-hub", Name: "csi-attach-hub"}}}
	d.t.Cleanup(func() {
		_ = roles.ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{})
		_ = roles.ClusterRoles().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	if _, err := roles.ClusterRoles().Create(d.ctx, role, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
	if _, err := roles.ClusterRoleBindings().Create(d.ctx, binding, metav1.CreateOptions{}); err != nil {
		d.t.Fatal(err)
	}
	hub := d.clientWith(d.token)
	poll(d.ctx, d.t, "all rights are granted", func() bool {
		_, err := hub.CoordinationV1().Leases("kube-system").List(d.ctx, metav1.ListOptions{})
		return err == nil
	})
}

// TestTheAdmissionPolicyRefusesWhatTheHubNeedNotWrite gives the hub's ServiceAccount more rights than any manifest does,
// so that what is refused is refused by the policies. TestHubNeedsEveryRightThatItIsGivenAndNoOther attaches and
// detaches under them.
func TestTheAdmissionPolicyRefusesWhatTheHubNeedNotWrite(t *testing.T) {
	d := deploy(t, "policy")
	d.mayWriteAll()
	all := newTarget(d, "written")
	driver := registry.LeaseName("policy-driver")
	for namespace, name := range map[string]string{"kube-system": "kube-controller-manager", "kube-node-lease": "node-1", "storage": driver} {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/keep"}, Annotations: map[string]string{"a": "b"}}}
		if _, err := d.client.CoordinationV1().Leases(namespace).Create(d.ctx, l, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}

	t.Cleanup(func() {
		_, _ = d.client.CoordinationV1().Leases("storage").Patch(context.Background(), driver, types.MergePatchType,
			[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	owner := func(l *coordinationv1.Lease) {
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}}
	}
	finalizer := func(l *coordinationv1.Lease) { l.Finalizers = append(l.Finalizers, "example.com/for-ever") }
	noFinalizer := func(l *coordinationv1.Lease) { l.Finalizers = nil }
	annotation := func(l *coordinationv1.Lease) { metav1.SetMetaDataAnnotation(&l.ObjectMeta, "new", "") }
	label := func(l *coordinationv1.Lease) { metav1.SetMetaDataLabel(&l.ObjectMeta, "new", "") }
	const replica = "csi-attach-hub-replica-policy"

	dry := all
	dry.dryRun = []string{metav1.DryRunAll}
	merge, owners := types.MergePatchType, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`
	const (
		reclaim     = `"spec":{"persistentVolumeReclaimPolicy":"Delete"}`
		applyPrefix = `{"apiVersion":"v1","kind":"PersistentVolume",`
	)
	for name, write := range map[string]func() error{
		"reclaim policy, merge patch":     dry.pv(merge, `{`+reclaim+`}`),
		"reclaim policy, strategic patch": dry.pv(types.StrategicMergePatchType, `{`+reclaim+`}`),
		"reclaim policy, apply":           dry.pv(types.ApplyPatchType, applyPrefix+reclaim+`}`),
		"reclaim policy, JSON patch":      dry.pv(types.JSONPatchType, `[{"op":"replace","path":"/spec/persistentVolumeReclaimPolicy","value":"Delete"}]`),
		"claim of a volume":               dry.pv(merge, `{"spec":{"claimRef":{"kind":"PersistentVolumeClaim","namespace":"default","name":"mine"}}}`),
		"label of a volume":               dry.pv(merge, `{"metadata":{"labels":{"a":"b"}}}`),
		"annotation of a volume":          dry.pv(merge, `{"metadata":{"annotations":{"example.com/note":"new"}}}`),
		"owner of a volume":               dry.pv(merge, owners),
		"finalizer of others on a volume": dry.pv(merge, `{"metadata":{"finalizers":null}}`),
		"status of a volume":              dry.pv(merge, `{"status":{"phase":"Failed"}}`, "status"),

		"field of a volume given to an applier":                  dry.pv(types.JSONPatchType, handOver("v1", "gitops-2", "Apply")),
		"field of a volume given to one that applies it already": dry.pv(types.JSONPatchType, handOver("v1", "gitops", "Apply")),
		"field of a volume given to kubectl, which migrates it":  dry.pv(types.JSONPatchType, handOver("v1", "kubectl-client-side-apply", "Update")),
		"field of an attachment given to an applier":             dry.va(types.JSONPatchType, handOver("storage.k8s.io/v1", "gitops-2", "Apply")),

		"label of an attachment":                dry.va(merge, `{"metadata":{"labels":{"a":"b"}}}`),
		"new annotation of an attachment":       dry.va(merge, `{"metadata":{"annotations":{"a":"b"}}}`),
		"changed annotation of an attachment":   dry.va(merge, `{"metadata":{"annotations":{"example.com/note":"new"}}}`),
		"removed annotation of an attachment":   dry.va(merge, `{"metadata":{"annotations":null}}`),
		"owner of an attachment":                dry.va(merge, owners),
		"finalizer of others on an attachment":  dry.va(merge, `{"metadata":{"finalizers":["external-attacher/nobody"]}}`),
		"lease of the control plane":            dry.lease("update", "kube-system", "kube-controller-manager"),
		"new lease in the control plane":        dry.lease("create", "kube-system", "other"),
		"lease of a node":                       dry.lease("update", "kube-node-lease", "node-1"),
		"lease of a replica elsewhere":          dry.lease("create", "storage", "csi-attach-hub-replica-x"),
		"end of the lease of a driver":          dry.lease("delete", "storage", driver),
		"end of a lease of the control plane":   dry.lease("delete", "kube-system", "kube-controller-manager"),
		"other lease in the namespace of a hub": dry.lease("create", "csi-attach-hub", "other"),
		"owner of the lease of a driver":        dry.lease("update", "storage", driver, owner),
		"finalizer of the lease of a driver":    dry.lease("update", "storage", driver, finalizer),
		"its removal":                           dry.lease("update", "storage", driver, noFinalizer),
		"annotation of the lease of a driver":   dry.lease("update", "storage", driver, annotation),
		"new lease of a driver, with owner":     dry.lease("create", "csi-attach-hub", registry.LeaseName("policy-new"), owner),
		"with finalizer":                        dry.lease("create", "csi-attach-hub", registry.LeaseName("policy-new"), finalizer),
		"with annotation":                       dry.lease("create", "csi-attach-hub", registry.LeaseName("policy-new"), annotation),
		"owner of the lease of a replica":       dry.lease("create", "csi-attach-hub", replica, owner),
		"finalizer of the lease of a replica":   dry.lease("create", "csi-attach-hub", replica, finalizer),
	} {
		if err := write(); !byPolicy(err) {
			t.Errorf("%s: not refused by a policy: %v", name, err)
		}
	}

	for _, c := range []struct {
		name  string
		write func() error
	}{
		{"finalizer of a volume", all.pv(types.JSONPatchType, `[{"op":"add","path":"/metadata/finalizers/1","value":"external-attacher/nobody"}]`)},
		{"its removal", all.pv(types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers/1"}]`)},
		{"finalizer and annotations of an attachment", all.va(types.JSONPatchType, `[{"op":"add","path":"/metadata/finalizers/-","value":"external-attacher/nobody"},`+
			`{"op":"add","path":"/metadata/annotations/csi.alpha.kubernetes.io~1node-id","value":"i-1"},{"op":"add","path":"/metadata/annotations/attach-hub~1volume-handle","value":"v"}]`)},
		{"status of an attachment", all.va(types.JSONPatchType, `[{"op":"replace","path":"/status","value":{"attached":true}}]`, "status")},
		{"removal of the finalizer", all.va(types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers/1"}]`)},
		{"lease of a driver", all.lease("update", "storage", driver, label)},
		{"new lease of a driver", all.lease("create", "csi-attach-hub", registry.LeaseName("policy-new"))},
		{"new lease of a replica", all.lease("create", "csi-attach-hub", replica, annotation)},
		{"lease of a replica", all.lease("update", "csi-attach-hub", replica, label, func(l *coordinationv1.Lease) { l.Annotations = nil })},
		{"its end", all.lease("delete", "csi-attach-hub", replica)},
	} {
		if err := c.write(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}

	// What others applied does not keep the hub from its own finalizer, and neither do so many writers that the API server
	// merges the oldest of them into one.
	const attacher = `{"op":"add","path":"/metadata/finalizers/-","value":"external-attacher/nobody"}`
	shared := newTarget(d, "shared")
	applied := []byte(`{"apiVersion":"v1","kind":"PersistentVolume","metadata":{"finalizers":["external-attacher/nobody"],"labels":{"team":"a"}}}`)
	if _, err := d.client.CoreV1().PersistentVolumes().Patch(d.ctx, shared.name, types.ApplyPatchType, applied, metav1.PatchOptions{FieldManager: "gitops"}); err != nil {
		t.Fatal(err)
	}
	for i := range 12 {
		writer := metav1.PatchOptions{FieldManager: fmt.Sprint("writer-", i)}
		label := fmt.Appendf(nil, `{"metadata":{"labels":{"l%d":""}}}`, i)
		if _, err := d.client.StorageV1().VolumeAttachments().Patch(d.ctx, shared.name, merge, label, writer); err != nil {
			t.Fatal(err)
		}
	}
	for name, write := range map[string]func() error{
		"removal of a finalizer that is applied": shared.pv(types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers/1"}]`),
		"finalizer beside many writers":          shared.va(types.JSONPatchType, `[`+attacher+`]`),
	} {
		if err := write(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The policies hold for the hub alone.
	others := dry
	others.hub = d.client
	for name, write := range map[string]func() error{"volume": others.pv(merge, `{`+reclaim+`}`), "lease": others.lease("update", "kube-system", "kube-controller-manager")} {
		if err := write(); err != nil {
			t.Errorf("%s, by an administrator: %v", name, err)
		}
	}
}
