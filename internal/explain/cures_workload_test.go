package explain_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/internal/fakecsi"
)

// playEvery is how often a player looks at its objects.
const playEvery = 50 * time.Millisecond

// program is what runs in a container: it starts, and returns what stops it.
type program func() (stop func())

// workloadPlayer does for the Deployment of a driver what kubelet and controllers do: it runs the programs of the
// containers in its Pod template, in one Pod, unless it has no replicas. It starts them again for another template and if
// the Pod was deleted. Its object and its Pod are on the API server.
type workloadPlayer struct {
	s          *cureScene
	deployment string
	programs   map[string]program // by the name of the container

	// Only the player's goroutine uses these.
	running map[string]func() // what stops each program, by container
	played  *corev1.PodTemplateSpec

	mu     sync.Mutex
	starts map[string]int // of each container; guarded by mu
	pod    string         // name of the Pod, "" without one; guarded by mu
}

// playWorkload makes the driver's Deployment csi-controller, whose container csi-driver is the scene's driver, and plays
// it until the test ends. The driver runs when it returns.
func playWorkload(s *cureScene) *workloadPlayer {
	s.t.Helper()
	s.driver.Server.Crash() // from now on the Deployment says whether it runs
	p := &workloadPlayer{s: s, deployment: "csi-controller", running: map[string]func(){}, starts: map[string]int{}, programs: map[string]program{"csi-driver": s.runDriver}}
	labels := map[string]string{"app": s.name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: p.deployment}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "csi-driver", Image: "registry.example/driver:v1", Args: []string{"--drivername=" + s.driver.Name}}}}},
	}}
	_, err := s.kube.AppsV1().Deployments(s.name).Create(s.ctx, d, metav1.CreateOptions{})
	s.must(err)
	s.play(p.step, p.stopAll)
	s.until("the driver runs", func() bool { return p.started("csi-driver") > 0 }, func() string { return "it does not" })
	return p
}

// runDriver starts the driver. A restart ends what makes its calls hang or fail.
func (s *cureScene) runDriver() (stop func()) {
	if err := s.driver.Backend.Set(fakecsi.Knobs{ReleaseAll: true, ClearFaults: true}); err != nil {
		s.t.Error(err)
	}
	if err := s.driver.Server.Start(); err != nil {
		s.t.Error(err)
	}
	return s.driver.Server.Crash
}

// play takes steps until the test ends, and then calls end.
func (s *cureScene) play(step func(context.Context), end func()) {
	ctx, cancel := context.WithCancel(s.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer end()
		tick := time.NewTicker(playEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			step(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	}()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
}

// started returns how often a container was started.
func (p *workloadPlayer) started(container string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.starts[container]
}

// podName returns the name of the Pod, "" without one.
func (p *workloadPlayer) podName() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pod
}

// change changes the Deployment as somebody with kubectl does.
func (p *workloadPlayer) change(change func(*appsv1.Deployment)) {
	p.s.t.Helper()
	deployments := p.s.kube.AppsV1().Deployments(p.s.name)
	d, err := deployments.Get(p.s.ctx, p.deployment, metav1.GetOptions{})
	p.s.must(err)
	change(d)
	_, err = deployments.Update(p.s.ctx, d, metav1.UpdateOptions{})
	p.s.must(err)
}

// step does what is due. What the API server refuses is tried again in the next step.
func (p *workloadPlayer) step(ctx context.Context) {
	d, err := p.s.kube.AppsV1().Deployments(p.s.name).Get(ctx, p.deployment, metav1.GetOptions{})
	if err != nil {
		return
	}
	pods := p.s.kube.CoreV1().Pods(p.s.name)
	if pod := p.podName(); pod != "" {
		_, err := pods.Get(ctx, pod, metav1.GetOptions{})
		gone := err != nil && ctx.Err() == nil
		if !gone && ptr.Deref(d.Spec.Replicas, 1) > 0 && reflect.DeepEqual(p.played, &d.Spec.Template) {
			return
		}
		p.stopAll()
		if !gone && pods.Delete(ctx, pod, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}) != nil {
			return
		}
		p.note("")
	}
	if ptr.Deref(d.Spec.Replicas, 1) == 0 {
		return
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: p.deployment + "-7d9f8b6c5d-", Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec}
	made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
	if err != nil {
		return
	}
	p.played = &d.Spec.Template
	for _, c := range d.Spec.Template.Spec.Containers {
		if run := p.programs[c.Name]; run != nil {
			p.running[c.Name] = run()
		}
	}
	ready := []byte(`{"status":{"replicas":1,"readyReplicas":1,"availableReplicas":1}}`)
	_, err = p.s.kube.AppsV1().Deployments(p.s.name).Patch(ctx, p.deployment, types.MergePatchType, ready, metav1.PatchOptions{}, "status")
	if err != nil && ctx.Err() == nil {
		p.s.t.Error(err)
	}
	p.note(made.Name)
}

// note keeps the books.
func (p *workloadPlayer) note(pod string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pod = pod
	for _, container := range slices.Collect(maps.Keys(p.running)) {
		p.starts[container]++
	}
}

func (p *workloadPlayer) stopAll() {
	for container, stop := range p.running {
		stop()
		delete(p.running, container)
	}
}

// configMapName is that of the hub's ConfigMap.
const configMapName = "csi-attach-hub-drivers"

// playConfigMap makes the hub's ConfigMap and Pod, and writes drivers.yaml as the kubelet does while it changes.
func playConfigMap(s *cureScene) {
	s.t.Helper()
	const volume = "config"
	maps := s.kube.CoreV1().ConfigMaps(s.hubSpace)
	_, err := maps.Create(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMapName}, Data: map[string]string{"drivers.yaml": s.config}}, metav1.CreateOptions{})
	s.must(err)
	account := ""
	if s.kubeconfig != s.world.Plane.Kubeconfig() {
		account = hubAccount
	}
	host, err := os.Hostname() // the identity of a hub begins with it
	s.must(err)
	_, err = s.kube.CoreV1().Pods(s.hubSpace).Create(s.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(host), Labels: map[string]string{"app.kubernetes.io/name": "csi-attach-hub"}},
		Spec: corev1.PodSpec{ServiceAccountName: account,
			Containers: []corev1.Container{{Name: "hub", Image: "csi-attach-hub:test", Args: []string{"--config=/etc/csi-attach-hub/drivers.yaml"},
				VolumeMounts: []corev1.VolumeMount{{Name: volume, MountPath: "/etc/csi-attach-hub"}}}},
			Volumes: []corev1.Volume{{Name: volume, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMapName}}}}},
		}}, metav1.CreateOptions{})
	s.must(err)
	written := ""
	write := func(ctx context.Context) {
		cm, err := maps.Get(ctx, configMapName, metav1.GetOptions{})
		if err != nil || cm.Data["drivers.yaml"] == written {
			return
		}
		written = cm.Data["drivers.yaml"]
		next := filepath.Join(s.world.Dir, "drivers.next")
		if err := os.WriteFile(next, []byte(written), 0o600); err != nil {
			s.t.Error(err)
		}
		if err := os.Rename(next, s.world.ConfigPath()); err != nil {
			s.t.Error(err)
		}
	}
	write(s.ctx)
	s.play(write, func() {})
}
