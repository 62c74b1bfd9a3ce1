package main

import (
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes the one kubeconfig, with the CA inside, that clients
// and kube-controller-manager use.
func writeKubeconfig(s *state) error {
	ca, err := os.ReadFile(s.path("ca.crt"))
	if err != nil {
		return fmt.Errorf("read CA certificate: %w", err)
	}
	const name = "csi-attach-hub"
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[name] = &clientcmdapi.Cluster{Server: s.serverURL(), CertificateAuthorityData: ca}
	cfg.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: s.Token}
	cfg.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: "admin", Namespace: "default"}
	cfg.CurrentContext = name
	if err := clientcmd.WriteToFile(*cfg, s.path("kubeconfig")); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
