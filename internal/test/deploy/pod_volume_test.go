package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mount makes the volumes of a container that the Pod does not have yet.
func (p *runningPod) mount(ctx context.Context, c corev1.Container) error {
	for _, m := range c.VolumeMounts {
		if m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount" {
			continue // the token is in the kubeconfig
		}
		if p.folders[m.Name] == "" {
			i := slices.IndexFunc(p.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
			if i < 0 {
				return fmt.Errorf("there is no volume %s", m.Name)
			}
			if err := p.makeVolume(ctx, p.pod.Spec.Volumes[i]); err != nil {
				return fmt.Errorf("volume %s: %w", m.Name, err)
			}
		}
		if m.SubPath != "" {
			if err := p.makeFolder(filepath.Join(p.folders[m.Name], m.SubPath), 0o777); err != nil {
				return err
			}
		}
	}
	return nil
}

// makeVolume makes the folder of a volume, or its files anew, with the owners and modes that the kubelet gives.
func (p *runningPod) makeVolume(ctx context.Context, v corev1.Volume) error {
	folder := filepath.Join(p.dir, v.Name)
	p.folders[v.Name] = folder
	switch {
	case v.EmptyDir != nil:
		return p.makeFolder(folder, 0o777)
	case v.HostPath != nil: // of all Pods; an fsGroup does not change it
		p.folders[v.Name] = filepath.Join(p.kubelet.dir, "host", v.HostPath.Path)
		return os.MkdirAll(p.folders[v.Name], 0o755)
	case v.Secret != nil:
		return p.makeFiles(ctx, folder, v.Secret.DefaultMode, corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional}})
	case v.ConfigMap != nil:
		return p.makeFiles(ctx, folder, v.ConfigMap.DefaultMode, corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional}})
	case v.Projected != nil:
		return p.makeFiles(ctx, folder, v.Projected.DefaultMode, v.Projected.Sources...)
	}
	return errors.New("it is of a kind that these tests do not have")
}

// makeFiles writes the files of Secrets and ConfigMaps. Each file is replaced at once.
func (p *runningPod) makeFiles(ctx context.Context, folder string, mode *int32, sources ...corev1.VolumeProjection) error {
	if err := p.makeFolder(folder, 0o755); err != nil {
		return err
	}
	for _, s := range sources {
		data, items, err := p.read(ctx, s)
		if err != nil {
			return err
		}
		for key, content := range data {
			name := key
			if len(items) > 0 {
				i := slices.IndexFunc(items, func(item corev1.KeyToPath) bool { return item.Key == key })
				if i < 0 {
					continue
				}
				name = items[i].Path
			}
			if err := p.writeFile(filepath.Join(folder, name), content, fs.FileMode(*mode)); err != nil {
				return err
			}
		}
	}
	return nil
}

// read returns the content of one source of a volume.
func (p *runningPod) read(ctx context.Context, s corev1.VolumeProjection) (map[string][]byte, []corev1.KeyToPath, error) {
	data := map[string][]byte{}
	switch {
	case s.Secret != nil:
		secret, err := p.kubelet.client.CoreV1().Secrets(p.pod.Namespace).Get(ctx, s.Secret.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && s.Secret.Optional != nil && *s.Secret.Optional {
			return nil, nil, nil
		}
		return secret.Data, s.Secret.Items, err
	case s.ConfigMap != nil:
		object, err := p.kubelet.client.CoreV1().ConfigMaps(p.pod.Namespace).Get(ctx, s.ConfigMap.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) && s.ConfigMap.Optional != nil && *s.ConfigMap.Optional {
			return nil, nil, nil
		}
		for key, text := range object.Data {
			data[key] = []byte(text)
		}
		return data, s.ConfigMap.Items, err
	}
	return nil, nil, errors.New("a source is of a kind that these tests do not have")
}

// writeFile writes a file of root. With an fsGroup it is of that group, which may read it.
func (p *runningPod) writeFile(path string, content []byte, mode fs.FileMode) error {
	if p.fsGroup() != nil {
		mode |= 0o440
	}
	if err := os.WriteFile(path+".new", content, mode); err != nil {
		return err
	}
	if err := p.own(path+".new", mode); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// makeFolder makes a folder of root. With an fsGroup it is of that group, and so is what is made in it.
func (p *runningPod) makeFolder(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	if p.fsGroup() != nil {
		mode |= fs.ModeSetgid | 0o770
	}
	return p.own(path, mode)
}

// own gives a file its group and its mode. The mode comes last: a change of the group takes the setgid bit.
func (p *runningPod) own(path string, mode fs.FileMode) error {
	if group := p.fsGroup(); group != nil && p.kubelet.setpriv != "" {
		if err := syscall.Chown(path, -1, int(*group)); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}

func (p *runningPod) fsGroup() *int64 {
	if p.pod.Spec.SecurityContext == nil {
		return nil
	}
	return p.pod.Spec.SecurityContext.FSGroup
}
