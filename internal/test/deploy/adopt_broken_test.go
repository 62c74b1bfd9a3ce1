package deploy_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
)

// Without these the rows of TestDriversAreMovedToTheHubAndBackByWhatAdoptWrites would be green for any user and file mode.
func TestProxyDoesNotServeADriverWithAnotherUserKeyOrSocket(t *testing.T) {
	a := newAdopters(t)
	if a.kubelet.setpriv == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("CI must not skip this test: users and file modes need root")
		}
		t.Skip("users and file modes need root")
	}
	a.startHub()
	ebs, vsphere := proxyRows[0], proxyRows[1]
	proxy := func(pod *corev1.Pod) *corev1.Container {
		for i, c := range pod.Spec.Containers {
			if strings.HasPrefix(c.Name, "attach-hub-") {
				return &pod.Spec.Containers[i]
			}
		}
		return nil
	}
	keyMode := func(pod *corev1.Pod, mode int32) {
		for _, v := range pod.Spec.Volumes {
			if strings.HasPrefix(v.Name, "attach-hub-") && v.Secret != nil {
				v.Secret.DefaultMode = &mode
			}
		}
	}
	prepared, workloads := map[string]*handover{}, map[string]*unstructured.Unstructured{}
	for _, row := range []adoptRow{ebs, vsphere} {
		folder, err := a.adopt(row)
		if err != nil {
			t.Fatal(err)
		}
		s, objects := a.begin(t, row, folder), build(t, folder+"/observe")
		s.applier.apply(objects...)
		s.prepare()
		prepared[row.manifest], workloads[row.manifest] = s, workloadOf(objects)
	}
	for _, test := range []struct {
		name   string
		row    adoptRow
		change func(*corev1.Pod)
		want   string
		log    []string // of the proxy
	}{
		{"another user", ebs, func(pod *corev1.Pod) { proxy(pod).SecurityContext.RunAsUser = new(int64(65532)) }, "csi.sock: permission denied",
			[]string{"Cannot open the driver's socket", "permission denied", "uid=65532", "owner=1000", "runAsUser of the proxy is its owner"}},
		{"root beside runAsNonRoot", ebs, func(pod *corev1.Pod) { proxy(pod).SecurityContext.RunAsUser = new(int64(0)) }, "CreateContainerConfigError", nil},
		{"no fsGroup", ebs, func(pod *corev1.Pod) { pod.Spec.SecurityContext.FSGroup = nil }, "permission denied", nil},
		{"key of root alone", vsphere, func(pod *corev1.Pod) { keyMode(pod, 0o400) }, "permission denied", nil},
		{"another socket", ebs, func(pod *corev1.Pod) {
			for i, arg := range proxy(pod).Args {
				proxy(pod).Args[i] = strings.ReplaceAll(arg, "csi.sock", "csi-provisioner.sock")
			}
		}, "csi-provisioner.sock: no such file or directory",
			[]string{"Cannot open the driver's socket", "csi-provisioner.sock", "no such file", "--target is its path"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := prepared[test.row.manifest]
			pod, err := s.applier.createPod(a.kubelet.client, workloads[test.row.manifest])
			s.must(err)
			test.change(pod)
			p, err := a.kubelet.start(a.ctx, pod, test.row.drivers)
			defer func() { _ = p.stop(context.Background()) }()
			if err != nil {
				if !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %s", err, test.want)
				}
				return
			}
			said, process := "", p.running[proxy(pod).Name]
			ctx, cancel := context.WithTimeout(a.ctx, stepTimeout)
			defer cancel()
			poll(ctx, t, "the proxy is ready or says why not", func() bool {
				said = p.readiness(t, proxy(pod)) + process.LastLines(5)
				return strings.Contains(said, test.want) || strings.HasPrefix(said, "ok")
			})
			if !strings.Contains(said, test.want) {
				t.Errorf("it said %s, want %s", said, test.want)
			}
			log := process.LastLines(20)
			for _, words := range test.log {
				if !strings.Contains(log, words) {
					t.Errorf("the proxy's log does not say %q:\n%s", words, log)
				}
			}
		})
	}
}

// readiness returns the answer of a container to its readiness probe, "" if there is none.
func (p *runningPod) readiness(t *testing.T, c *corev1.Container) string {
	get := c.ReadinessProbe.HTTPGet
	response, err := http.Get(fmt.Sprintf("http://%s:%s%s", p.ip, get.Port.String(), get.Path))
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode == http.StatusOK {
		return "ok"
	}
	return string(text)
}

func TestPrepareCanBeRepeatedAndLeavesAloneWhatIsOfOthers(t *testing.T) {
	a := newAdopters(t)
	row := proxyRows[0]
	row.flags = []string{"--hub-namespace=without-a-hub"}
	folder, err := a.adopt(row)
	if err != nil {
		t.Fatal(err)
	}
	s := a.begin(t, row, folder)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "without-a-hub"}}
	_, err = a.kubelet.client.CoreV1().Namespaces().Create(a.ctx, namespace, metav1.CreateOptions{})
	s.must(err)
	ofDriver := a.kubelet.client.CoreV1().ConfigMaps("kube-system")
	_ = ofDriver.Delete(a.ctx, "attach-hub-ca", metav1.DeleteOptions{}) // of another test
	if err := s.runPrepare(); err == nil || !strings.Contains(err.Error(), `"csi-attach-hub-ca" not found`) {
		t.Errorf("without the CA of the hub: %v", err)
	}
	if _, err := ofDriver.Get(a.ctx, "attach-hub-ca", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a ConfigMap without a CA: %v", err)
	}
	theirs := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "attach-hub-ca", Labels: map[string]string{"trust.cert-manager.io/bundle": "attach-hub-ca"}}, Data: map[string]string{"ca.crt": "theirs"}}
	_, err = ofDriver.Create(a.ctx, theirs, metav1.CreateOptions{})
	s.must(err)
	cas := a.kubelet.client.CoreV1().ConfigMaps(namespace.Name)
	other := applycorev1.ConfigMap("csi-attach-hub-driver-cas", namespace.Name).WithData(map[string]string{"other.crt": "of another driver"})
	_, err = cas.Apply(a.ctx, other, metav1.ApplyOptions{FieldManager: "attach-hub-other"})
	s.must(err)
	for _, run := range []struct {
		args []string
		want []string
	}{{nil, []string{"ebs.csi.aws.com.crt", "other.crt"}}, {nil, []string{"ebs.csi.aws.com.crt", "other.crt"}}, {[]string{"remove"}, []string{"other.crt"}}} {
		s.prepare(run.args...)
		got, err := cas.Get(a.ctx, "csi-attach-hub-driver-cas", metav1.GetOptions{})
		s.must(err)
		if keys := slices.Sorted(maps.Keys(got.Data)); !slices.Equal(keys, run.want) {
			t.Errorf("prepare.sh %q: the hub has the CAs %q, want %q", run.args, keys, run.want)
		}
	}
	got, err := ofDriver.Get(a.ctx, "attach-hub-ca", metav1.GetOptions{})
	s.must(err)
	if got.Data["ca.crt"] != "theirs" {
		t.Errorf("the CA of trust-manager has become %v", got.Data)
	}
	s.must(ofDriver.Delete(a.ctx, "attach-hub-ca", metav1.DeleteOptions{}))

	// Without cert-manager the hub has no CA in a Secret.
	row.flags = append(row.flags, "--own-certificates")
	s.folder, err = a.adopt(row)
	s.must(err)
	s.must(os.WriteFile(filepath.Join(s.folder, "ebs.csi.aws.com.crt"), []byte("of the proxy"), 0o600))
	if err := s.runPrepare(); err == nil || !strings.Contains(err.Error(), `configmaps "attach-hub-ca" not found`) {
		t.Errorf("without the user's CA of the hub: %v", err)
	}
	theirs.Labels = nil
	_, err = ofDriver.Create(a.ctx, theirs, metav1.CreateOptions{})
	s.must(err)
	s.prepare()
	got, err = cas.Get(a.ctx, "csi-attach-hub-driver-cas", metav1.GetOptions{})
	s.must(err)
	if keys := slices.Sorted(maps.Keys(got.Data)); !slices.Equal(keys, []string{"ebs.csi.aws.com.crt", "other.crt"}) {
		t.Errorf("with certificates of the user the hub has the CAs %q", keys)
	}
	s.prepare("remove")
	s.must(ofDriver.Delete(a.ctx, "attach-hub-ca", metav1.DeleteOptions{}))
}
