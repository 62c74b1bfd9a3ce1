package testbed

import (
	"context"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func TestGateIsSilentWhileShutAndLetsThroughWhatWasSentMeanwhile(t *testing.T) {
	plane := Shared(t)
	target, err := url.Parse(plane.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	gate, err := newGate(target.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := plane.WriteKubeconfig(path, gate.Address(), nil); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := ask(ctx); err != nil {
		t.Fatalf("through the open gate: %v", err)
	}
	gate.Shut()
	short, cancelShort := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancelShort()
	if err := ask(short); err == nil || short.Err() == nil {
		t.Errorf("through the shut gate: %v, want silence until the deadline", err)
	}
	answer := make(chan error)
	go func() { answer <- ask(ctx) }()
	gate.Open()
	if err := <-answer; err != nil {
		t.Errorf("asked while it was shut, answered after: %v", err)
	}
}
