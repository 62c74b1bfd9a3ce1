package testbed

import (
	"context"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// WriteAccountKubeconfig writes a kubeconfig with a token of an existing ServiceAccount, good for an
// hour. API Priority and Fairness treats its requests as those of a workload; the user of Kubeconfig
// is exempt.
func (cp *ControlPlane) WriteAccountKubeconfig(ctx context.Context, path, namespace, account string) error {
	config, err := clientcmd.LoadFromFile(cp.Kubeconfig())
	if err != nil {
		return fmt.Errorf("read kubeconfig of the control plane: %w", err)
	}
	answer, err := cp.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create token of serviceaccount %s/%s: %w", namespace, account, err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: answer.Status.Token}
	}
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}
