package attach

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// An API server that ends in the middle of an answer has refused nothing: the driver was
// asked again for a volume that was attached, and the user was told of a read error.
func TestAnswerThatIsCutOffSaysNothingOfTheVolume(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"kind":`))
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(api.Close)
	kube, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	_, err = kube.CoreV1().PersistentVolumes().Get(t.Context(), "v", metav1.GetOptions{})
	var answer apierrors.APIStatus
	if err == nil || errors.As(err, &answer) || !NotReady(err) {
		t.Errorf("%v: want an error that passes by itself", err)
	}
	for _, other := range []error{context.Canceled, apierrors.NewServiceUnavailable("x")} {
		if !NotReady(other) {
			t.Errorf("%v does not pass by itself", other)
		}
	}
	if NotReady(apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PersistentVolume").GroupKind(), "v", nil)) {
		t.Error("an object that is refused passes by itself")
	}
}
