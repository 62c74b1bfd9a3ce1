package deploy_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/fakecsi"
	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

// startContainer starts a container of the images of this project or of csi-attacher; others it leaves out.
func (p *runningPod) startContainer(ctx context.Context, c corev1.Container) error {
	image := imageName(c.Image)
	program := ""
	switch {
	case image == "csi-attach-proxy":
		program = p.kubelet.proxy
	case strings.HasPrefix(image, "csi-attach-hub"):
		program = p.kubelet.hub
	case regexp.MustCompile(`(csi|external)-attacher$`).MatchString(image):
		program = p.kubelet.attacher
	default:
		return nil
	}
	if err := p.mount(ctx, c); err != nil {
		return err
	}
	env := p.environment(c)
	args := p.local(c, expandAll(slices.Concat(c.Command[min(1, len(c.Command)):], c.Args), env))
	if program != p.kubelet.proxy { // which is no client of the API server
		config, err := p.kubeconfig(ctx, c.Name)
		if err != nil {
			return err
		}
		// The retries are quick, for quick tests. The namespace is that of a mounted token.
		args = append(args, "--kubeconfig="+config, "--leader-election-lease-duration=15s", "--leader-election-renew-deadline=10s",
			"--leader-election-retry-period=500ms")
		env["POD_NAMESPACE"] = p.pod.Namespace
		if c.Name == "hub" { // whose default is the port on all addresses of the machine
			args = append(args, "--http-endpoint="+p.ip+":8080")
		}
		if err := p.localize(c); err != nil {
			return err
		}
	}
	return p.run(ctx, c, c.Name, testbed.ProcessOptions{Path: program, Args: args, Env: assignments(env)})
}

// startDriver serves a fake driver in the place of a container, on a socket of the container's user. Its storage outlives the Pod.
func (p *runningPod) startDriver(ctx context.Context, c corev1.Container, d standIn) error {
	var withSocket []corev1.VolumeMount // the vendor's other volumes are not there
	for _, m := range c.VolumeMounts {
		if strings.HasPrefix(d.socket, path.Clean(m.MountPath)+"/") {
			withSocket = append(withSocket, m)
		}
	}
	c.VolumeMounts = withSocket
	if err := p.mount(ctx, c); err != nil {
		return err
	}
	u, err := userOf(p.pod.Spec, c)
	if err != nil {
		return err
	}
	backend, err := p.kubelet.storage(d.driver)
	if err != nil {
		return err
	}
	endpoint := p.local(c, []string{"unix://" + d.socket})[0]
	server, err := fakecsi.NewServer(fakecsi.ServerOptions{Backend: backend, Endpoint: endpoint})
	if err != nil {
		return err
	}
	p.served = append(p.served, server)
	if err := server.Start(); err != nil || p.kubelet.setpriv == "" {
		return err
	}
	return os.Chown(strings.TrimPrefix(endpoint, "unix://"), int(u.uid), int(u.gid))
}

func (p *runningPod) run(ctx context.Context, c corev1.Container, name string, o testbed.ProcessOptions) error {
	u, err := userOf(p.pod.Spec, c)
	if err != nil {
		return err
	}
	if p.kubelet.setpriv != "" {
		o.Args = slices.Concat(u.setpriv(), []string{o.Path}, o.Args)
		o.Path = p.kubelet.setpriv
	}
	o.Name = fmt.Sprintf("%s of Pod %s", name, p.pod.Name)
	o.LogPath = filepath.Join(p.dir, strings.ReplaceAll(name, " ", "-")+".log")
	process, err := testbed.StartProcess(ctx, o)
	if err == nil {
		p.running[name] = process
	}
	return err
}

// imageName returns the name of an image without its registry, tag and digest.
func imageName(image string) string {
	image, _, _ = strings.Cut(image, "@")
	image, _, _ = strings.Cut(path.Base(image), ":")
	return image
}

// environment returns the variables of a container that its arguments may name. Those of Secrets and ConfigMaps are for
// drivers.
func (p *runningPod) environment(c corev1.Container) map[string]string {
	env := map[string]string{}
	fields := map[string]string{"metadata.namespace": p.pod.Namespace, "metadata.name": p.pod.Name, "spec.nodeName": "node",
		"status.podIP": p.ip, "spec.serviceAccountName": p.pod.Spec.ServiceAccountName}
	for _, e := range c.Env {
		switch {
		case e.ValueFrom == nil:
			env[e.Name] = expandAll([]string{e.Value}, env)[0]
		case e.ValueFrom.FieldRef != nil:
			env[e.Name] = fields[e.ValueFrom.FieldRef.FieldPath]
		}
	}
	return env
}

func assignments(env map[string]string) []string {
	var all []string
	for name, value := range env {
		all = append(all, name+"="+value)
	}
	return all
}

// expandAll replaces $(NAME) as the kubelet does.
func expandAll(texts []string, env map[string]string) []string {
	var expanded []string
	for _, text := range texts {
		for name, value := range env {
			text = strings.ReplaceAll(text, "$("+name+")", value)
		}
		expanded = append(expanded, text)
	}
	return expanded
}

var listens = regexp.MustCompile(`=(?:0\.0\.0\.0|127\.0\.0\.1|localhost)?:(\d+)$`)

// local replaces what is the Pod's alone in texts of a container: mount paths by folders, and its addresses by the
// Pod's.
func (p *runningPod) local(c corev1.Container, texts []string) []string {
	mounts := slices.Clone(c.VolumeMounts)
	slices.SortFunc(mounts, func(a, b corev1.VolumeMount) int { return cmp.Compare(len(b.MountPath), len(a.MountPath)) })
	var paths []string
	folders := map[string]string{}
	for _, m := range mounts { // the deepest first
		at := path.Clean(m.MountPath)
		paths, folders[at] = append(paths, regexp.QuoteMeta(at)), filepath.Join(p.folders[m.Name], m.SubPath)
	}
	var local []string
	for _, text := range texts {
		if len(paths) > 0 {
			mounted := regexp.MustCompile(`(^|[=:, ]|//)(` + strings.Join(paths, "|") + `)(/|$)`)
			text = mounted.ReplaceAllStringFunc(text, func(m string) string {
				part := mounted.FindStringSubmatch(m)
				return part[1] + folders[part[2]] + part[3]
			})
		}
		local = append(local, listens.ReplaceAllString(text, "="+p.ip+":$1"))
	}
	return local
}

// localize replaces mount paths in the files of drivers of a hub.
func (p *runningPod) localize(c corev1.Container) error {
	if p.folders["drivers"] == "" {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(p.folders["drivers"], "*.yaml"))
	for _, file := range files {
		content, readErr := os.ReadFile(file)
		if err = errors.Join(err, readErr); err == nil {
			err = p.writeFile(file, []byte(strings.Join(p.local(c, strings.Split(string(content), "\n")), "\n")), 0o644)
		}
	}
	return err
}

// kubeconfig writes one with the token of the Pod's ServiceAccount for a container.
func (p *runningPod) kubeconfig(ctx context.Context, container string) (string, error) {
	file := filepath.Join(p.dir, container+".kubeconfig")
	if err := p.kubelet.plane.WriteAccountKubeconfig(ctx, file, p.pod.Namespace, p.pod.Spec.ServiceAccountName); err != nil {
		return "", err
	}
	return file, os.Chmod(file, 0o644)
}
