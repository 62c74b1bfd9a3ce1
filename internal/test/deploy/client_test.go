package deploy_test

import (
	"bufio"
	"bytes"
	"encoding/json"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/csi-attach-hub/csi-attach-hub/internal/test/world/testbed"
)

func newToken(d *deployed, namespace, account string) string {
	d.t.Helper()
	request, err := d.client.CoreV1().ServiceAccounts(namespace).CreateToken(d.ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		d.t.Fatal(err)
	}
	return request.Status.Token
}

// clientWith returns a client with a token.
func (d *deployed) clientWith(token string) kubernetes.Interface {
	d.t.Helper()
	config := rest.AnonymousClientConfig(testbed.Shared(d.t).RESTConfig())
	config.BearerToken, config.QPS = token, -1
	return newClient(d.t, config)
}

// address waits until the hub serves, and returns the URL.
func (d *deployed) address() (url string) {
	d.t.Helper()
	poll(d.ctx, d.t, "the hub serves HTTP", func() bool {
		lines := bufio.NewScanner(bytes.NewReader(readFile(d.t, d.hub.LogPath())))
		for lines.Scan() {
			var line struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "Serving HTTP" {
				url = "http://" + line.Address
			}
		}
		return url != ""
	})
	return url
}
