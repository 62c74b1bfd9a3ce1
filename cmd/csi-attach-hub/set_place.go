package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/util/retry"
)

// configMapKind begins the name of a ConfigMap.
const configMapKind = "configmap"

// placeOf returns the place of a drivers.yaml: a file, or configmap/NAMESPACE/NAME. A file that exists is never a
// ConfigMap.
func (f *clientFlags) placeOf(ctx context.Context, name string) (place, error) {
	kind, rest, _ := strings.Cut(name, "/")
	if kind != configMapKind && kind != "cm" {
		return filePlace(name), nil
	}
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return filePlace(name), nil
	}
	namespace, object, found := strings.Cut(rest, "/")
	if !found || namespace == "" || object == "" || strings.Contains(object, "/") {
		return nil, fmt.Errorf("%q does not name a ConfigMap: write configmap/NAMESPACE/NAME", name)
	}
	config, err := f.kube()
	if err != nil {
		return nil, err
	}
	kube, err := corev1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	return configMapPlace{ctx, kube.ConfigMaps(namespace), namespace, object}, nil
}

// filePlace is the path of a drivers.yaml.
type filePlace string

// change replaces the file by another one at once: a hub that follows it reads no half of it. The other one has its owner and
// mode: otherwise a hub that runs as another user could not read it. Of a link, change replaces the file that the link leads
// to. It fails if somebody else changes the file meanwhile.
func (p filePlace) change(edit func([]byte) ([]byte, error), dryRun bool) (before, after []byte, err error) {
	path, err := filepath.EvalSymlinks(string(p))
	if err != nil {
		return nil, nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if before, err = os.ReadFile(path); err != nil {
		return nil, nil, err
	}
	if after, err = edit(before); err != nil || dryRun || bytes.Equal(before, after) {
		return before, after, err
	}
	next, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, nil, err
	}
	defer os.Remove(next.Name()) // fails once it has the other name
	_, err = next.Write(after)
	if err = errors.Join(err, giveTo(next, info), next.Chmod(info.Mode().Perm()), next.Sync(), next.Close()); err != nil {
		return nil, nil, fmt.Errorf("write %s: %w", path, err)
	}
	if now, err := os.ReadFile(path); err != nil {
		return nil, nil, err
	} else if !bytes.Equal(now, before) {
		return nil, nil, fmt.Errorf("write %s: somebody else has changed it meanwhile, and nothing is written: repeat the command", path)
	}
	return before, after, os.Rename(next.Name(), path)
}

// configMapPlace is a ConfigMap of the cluster.
type configMapPlace struct {
	ctx             context.Context
	client          corev1client.ConfigMapInterface
	namespace, name string
}

// change updates the object that was read: if somebody else has changed it meanwhile, it begins again.
func (p configMapPlace) change(edit func([]byte) ([]byte, error), dryRun bool) (before, after []byte, err error) {
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		cm, err := p.client.Get(p.ctx, p.name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read ConfigMap %s/%s: %w", p.namespace, p.name, err)
		}
		key, err := driversKey(cm)
		if err != nil {
			return err
		}
		before = []byte(cm.Data[key])
		if after, err = edit(before); err != nil || dryRun || bytes.Equal(before, after) {
			return err
		}
		cm.Data[key] = string(after)
		if _, err = p.client.Update(p.ctx, cm, metav1.UpdateOptions{FieldManager: hubName}); err != nil {
			return fmt.Errorf("update ConfigMap %s/%s: %w", p.namespace, p.name, err)
		}
		return nil
	})
	return before, after, err
}

// driversKey returns the key under which a ConfigMap holds a drivers.yaml.
func driversKey(cm *corev1.ConfigMap) (string, error) {
	const usual = "drivers.yaml"
	if _, found := cm.Data[usual]; found {
		return usual, nil
	}
	if len(cm.Data) == 1 {
		for key := range cm.Data {
			return key, nil
		}
	}
	return "", fmt.Errorf("ConfigMap %s/%s has no key %s: name the ConfigMap that the hub's Pod mounts for --config", cm.Namespace, cm.Name, usual)
}
