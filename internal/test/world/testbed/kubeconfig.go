package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Kubeconfig is the path of a kubeconfig with all rights. It stays valid when
// the control plane is started again.
func (cp *ControlPlane) Kubeconfig() string { return filepath.Join(cp.dir, "kubeconfig") }

// writeKubeconfig writes a copy of the kubeconfig with a change.
func (cp *ControlPlane) writeKubeconfig(path string, change func(*clientcmdapi.Config)) error {
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig of the control plane: %w", err)
	}
	change(config)
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}

// WriteKubeconfig writes a copy of the kubeconfig that leads to another address, where something
// passes requests on to the API server. authority is the certificate, in PEM, that clients trust there.
func (cp *ControlPlane) WriteKubeconfig(path, address string, authority []byte) error {
	return cp.writeKubeconfig(path, func(config *clientcmdapi.Config) {
		for _, cluster := range config.Clusters {
			cluster.Server, cluster.CertificateAuthority, cluster.CertificateAuthorityData = "https://"+address, "", authority
		}
	})
}

// WriteAccountKubeconfig writes a kubeconfig with a token of an existing ServiceAccount, good for an
// hour. API Priority and Fairness treats its requests as those of a workload; the user of Kubeconfig
// is exempt.
func (cp *ControlPlane) WriteAccountKubeconfig(ctx context.Context, path, namespace, account string) error {
	answer, err := cp.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create token of serviceaccount %s/%s: %w", namespace, account, err)
	}
	return cp.writeKubeconfig(path, func(config *clientcmdapi.Config) {
		for name := range config.AuthInfos {
			config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: answer.Status.Token}
		}
	})
}

// LinkKubectl puts a kubectl into a folder that is to be on the PATH of a command, and returns the environment of that
// command: kubectl and csi-attach-hub then find the API server of this control plane. The kubectl is part of the program
// of internal/test/world/controlplane, in the version of the API server.
func (cp *ControlPlane) LinkKubectl(dir string) (env []string, err error) {
	if err := os.Symlink(cp.opts.Binary, filepath.Join(dir, "kubectl")); err != nil {
		return nil, fmt.Errorf("link kubectl: %w", err)
	}
	return []string{"KUBECONFIG=" + cp.Kubeconfig(), "PATH=" + dir + string(os.PathListSeparator) + os.Getenv("PATH")}, nil
}

// ApplyInstallation applies the objects of deploy/install.yaml that have one of the kinds, and its Namespace.
func (cp *ControlPlane) ApplyInstallation(ctx context.Context, kinds ...string) error {
	root, err := repositoryRoot()
	if err != nil {
		return err
	}
	manifest, err := os.ReadFile(filepath.Join(root, "deploy", "install.yaml"))
	if err != nil {
		return err
	}
	var chosen bytes.Buffer
	for _, kind := range append([]string{"Namespace"}, kinds...) {
		for object := range strings.SplitSeq(string(manifest), "\n---\n") {
			if strings.Contains("\n"+object, "\nkind: "+kind+"\n") {
				chosen.WriteString(object + "\n---\n")
			}
		}
	}
	kubectl := exec.CommandContext(ctx, cp.opts.Binary, "--kubeconfig", cp.Kubeconfig(), "apply", "--server-side", "-f", "-")
	kubectl.Args[0], kubectl.Stdin = "kubectl", &chosen
	if output, err := kubectl.CombinedOutput(); err != nil {
		return fmt.Errorf("apply deploy/install.yaml: %w: %s", err, output)
	}
	return nil
}
