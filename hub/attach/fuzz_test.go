package attach

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
)

// Whatever a driver answers, what is made of it can be stored, holds no secret that was
// sent along, and still says which error it is.
func FuzzErrorOfADriver(f *testing.F) {
	f.Add("login with hunter22 failed", "hunter22", "hunter22-long", int32(7))
	f.Add("login with hunter22 failed", "hunter22\n", "", int32(-1))
	f.Add("no\x00thing \x1b[31m \xff\xfe", "pass\x00word", "pass\xffword", int32(77))
	f.Add(strings.Repeat("ü", 5000), "key: \"quoted\"", "secret", int32(13))
	f.Add("\"key: \\\"quoted\\\"\"", "key: \"quoted\"", "", int32(13))
	f.Fuzz(func(t *testing.T, text, first, second string, code int32) {
		if code == 0 {
			return
		}
		secrets := []string{first, second}
		err := redactValues(errors.Join(errWhole, status.Error(codes.Code(uint32(code)), text)), secrets)
		if !errors.Is(err, errWhole) || status.Code(err) != codes.Code(uint32(code)) {
			t.Errorf("%v is another error", err)
		}
		if len(err.Error()) > csiclient.MaxText || !utf8.ValidString(err.Error()) {
			t.Errorf("%q of %d bytes", err, len(err.Error()))
		}
		message := Message(err)
		if len(message) > maxErrorMessage || !utf8.ValidString(message) || Text(message) != message {
			t.Errorf("message %q of %d bytes", message, len(message))
		}
		for _, secret := range secrets {
			for _, text := range []string{secret, strings.TrimSpace(secret)} {
				// What stands in the place of a secret may be one by chance.
				if len(text) >= shortestSecret && !strings.Contains("[secret]", text) && !strings.ContainsAny(text, "[]") && strings.Contains(err.Error(), text) {
					t.Errorf("%q has the secret %q", err, text)
				}
			}
		}
	})
}

var errWhole = errors.New("the whole of it")

// object decodes what the API server could hold: JSON, with all texts in UTF-8.
func object[T any](data []byte) (*T, bool) {
	o := new(T)
	return o, utf8.Valid(data) && json.Unmarshal(data, o) == nil
}

// unlike says that no object has such finalizers: the API server drops repeated ones.
func unlike(finalizers []string) bool {
	sorted := slices.Sorted(slices.Values(finalizers))
	return len(slices.Compact(sorted)) != len(finalizers)
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	must(t, err)
	return data
}

// Whatever the objects hold, a decision is made or an error says why not, nothing
// panics, and no object of a cache is changed.
func FuzzDecide(f *testing.F) {
	va := `{"metadata":{"name":"va","uid":"u"},"spec":{"attacher":"` + driverName + `","nodeName":"n","source":{"persistentVolumeName":"pv"}}}`
	node := `{"spec":{"drivers":[{"name":"` + driverName + `","nodeID":"id"},{"name":"pd.csi.storage.gke.io","nodeID":"projects/p/zones/z/instances/i"}]}}`
	for _, source := range []string{
		`"csi":{"driver":"d","volumeHandle":"h","controllerPublishSecretRef":{"name":"s","namespace":"n"}}`,
		`"gcePersistentDisk":{"pdName":"d","partition":1}`, `"awsElasticBlockStore":{"volumeID":"aws://z/vol-1"}`, `"cinder":{"volumeID":"c"}`,
		`"azureDisk":{"diskName":"d","diskURI":"u","kind":"Managed"}`, `"azureFile":{"secretName":"s","shareName":"x"},"claimRef":{"namespace":"n"}`,
		`"vsphereVolume":{"volumePath":"[ds] a"}`, `"portworxVolume":{"volumeID":"p"}`, `"hostPath":{"path":"/"}`, `"rbd":{"monitors":null,"image":"i"}`,
	} {
		pv := `{"metadata":{"name":"pv","labels":{"topology.kubernetes.io/zone":"us-a-1__us-a-2","failure-domain.beta.kubernetes.io/zone":"__"},"annotations":{"openstorage.io/auth-secret-name":"a","pv.kubernetes.io/migrated-to":"x"}},
			"spec":{"accessModes":["ReadWriteOnce","ReadOnlyMany"],"volumeMode":"Block",` + source +
			`,"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"topology.kubernetes.io/zone","operator":"In","values":["a"]}]}]}}}}`
		f.Add([]byte(va), []byte(pv), []byte(node), byte(0xff))
	}
	f.Add([]byte(`{"spec":{"source":{"inlineVolumeSpec":{"csi":null}}}}`), []byte(`{}`), []byte(`{}`), byte(1))
	f.Add([]byte(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["`+finalizer+`"],"annotations":{"csi.alpha.kubernetes.io/node-id":"old","attach-hub/volume-handle":"h"},
		"managedFields":[{"manager":"m","fieldsV1":{"f:status":{"f:attached":{}},"f:metadata":{"f:finalizers":{"v:\"`+finalizer+`\"":{}}}}},{"fieldsV1":null},{"fieldsV1":[]}]},"spec":{"source":{}},"status":{"attached":true,"detachError":{}}}`),
		[]byte(`{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"}}`), []byte(`{"spec":{"drivers":null}}`), byte(3))
	f.Add([]byte(`{"metadata":{"finalizers":["`+finalizer+`"],"managedFields":[{"manager":"csi-attach-hub","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:metadata":{"f:finalizers":{"v:\"`+finalizer+`\"":{}}}}},
		{"manager":"csi-attach-hub","subresource":"status","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:status":{"f:attached":{}}}}]},"spec":{"source":{}},"status":{"attached":true}}`),
		[]byte(`{}`), []byte(`{}`), byte(0))
	f.Fuzz(func(t *testing.T, attachment, volume, csiNode []byte, flags byte) {
		va, ok := object[storagev1.VolumeAttachment](attachment)
		pv, isVolume := object[corev1.PersistentVolume](volume)
		node, isNode := object[storagev1.CSINode](csiNode)
		if !ok || unlike(va.Finalizers) {
			return
		}
		if !isVolume {
			pv = nil
		}
		if !isNode || slices.ContainsFunc(node.Spec.Drivers, func(d storagev1.CSINodeDriver) bool { return d.NodeID == "" }) {
			node = nil // the API server takes no empty node ID
		}
		checkDecisions(t, Inputs{VolumeAttachment: va, PersistentVolume: VolumeOf(pv), CSINode: node}, flags)
	})
}

// checkDecisions checks what must hold of all that is decided from the Inputs. The flags are
// what else there is to know.
func checkDecisions(t *testing.T, inputs Inputs, flags byte) {
	t.Helper()
	va, v := inputs.VolumeAttachment, inputs.PersistentVolume
	bit := func(n int) bool { return flags>>n&1 == 1 }
	inputs.Lost = bit(0)
	before := Inputs{VolumeAttachment: va.DeepCopy(), PersistentVolume: wholeCopy(v), CSINode: inputs.CSINode.DeepCopy(), Lost: bit(0)}
	for _, name := range []string{driverName, "pd.csi.storage.gke.io", va.Spec.Attacher} {
		d := Driver{Name: name, NoAttach: bit(1), Capabilities: csiclient.Capabilities{
			PublishUnpublish: bit(2), PublishReadonly: bit(3), SingleNodeMultiWriter: bit(4), ListPublishedNodes: bit(5)}}
		plan, err := d.Decide(inputs)
		if err == nil {
			checkPlan(t, d, inputs, plan)
		} else if err.Error() == "" || !equality.Semantic.DeepEqual(plan, Plan{}) {
			t.Errorf("error %q and a plan %+v", err, plan)
		}
		for _, op := range []Operation{Attaching, Detaching} {
			if differs, err := d.Differences(op, inputs); differs != "" && err != nil {
				t.Errorf("%q differs, %v", differs, err)
			}
		}
		if may, sure := d.NamesTarget(inputs, plan.Target); sure && !may {
			t.Error("surely wants what it may not want")
		}
		recorded, ok := d.Recorded(inputs)
		last, lastOK := d.LastRecorded(inputs)
		if ok && !(lastOK && equality.Semantic.DeepEqual(recorded, last)) {
			t.Errorf("recorded %+v, and at last %+v, %t", recorded, last, lastOK)
		}
		if lastOK && (last.Target.VolumeHandle == "" || last.Target.NodeID == "") {
			t.Errorf("recorded at %+v", last.Target)
		}
		if v != nil {
			v.LosesFinalizer(d.Name)
		}
		checkWrites(t, va)
	}
	if !equality.Semantic.DeepEqual(inputs, before) {
		t.Errorf("objects of the cache were changed:\n%+v\nwere\n%+v", inputs, before)
	}
}

// wholeCopy returns a copy that shares no memory with v.
func wholeCopy(v *Volume) *Volume {
	if v == nil {
		return nil
	}
	c := *v
	c.Finalizers, c.MountOptions, c.AccessModes = slices.Clone(v.Finalizers), slices.Clone(v.MountOptions), slices.Clone(v.AccessModes)
	c.Attributes, c.Deleted, c.SecretRef = slices.Clone(v.Attributes), v.Deleted.DeepCopy(), v.SecretRef.DeepCopy()
	return &c
}

// checkPlan checks what must hold of every plan.
func checkPlan(t *testing.T, d Driver, f Inputs, p Plan) {
	t.Helper()
	va := f.VolumeAttachment
	if r := p.Publish; r != nil && (r.VolumeId != p.Target.VolumeHandle || r.NodeId != p.Target.NodeID || r.VolumeCapability.GetAccessMode() == nil) {
		t.Errorf("publishes %v, the target is %+v", r, p.Target)
	}
	if correction := p.StatusFirst && f.Unpublished; p.Operation == Detaching && p.Target == (Target{}) && !correction && d.Capabilities.PublishUnpublish {
		t.Error("lets go without a call")
	}
	if p.Publish != nil && !HasFinalizer(va.Finalizers, Finalizer(d.Name)) && p.AttachmentFinalizer == nil {
		t.Error("publishes what nothing guards")
	}
}

// checkWrites checks that a pruned object tells of the same writes of others.
func checkWrites(t *testing.T, va *storagev1.VolumeAttachment) {
	t.Helper()
	pruned := va.DeepCopy()
	pruned.ManagedFields = PruneManagedFields(va.ManagedFields)
	for _, earlier := range []*storagev1.VolumeAttachment{va, pruned, {}} {
		manager, at := ConflictingWriter(earlier, pruned)
		if again, atAgain := ConflictingWriter(earlier, va); manager != again || at != atAgain {
			t.Errorf("pruned, the last write is of %s at %v, it was of %s at %v", manager, at, again, atAgain)
		}
	}
}
