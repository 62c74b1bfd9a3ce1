package explain

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/csi-attach-hub/csi-attach-hub/hub/diagnosis"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
	"github.com/csi-attach-hub/csi-attach-hub/internal/hubclient"
)

// cured returns the commands and the verdict that a remedy finds for a text.
func cured(w *walk, verdict diagnosis.Verdict, text string) (string, diagnosis.Verdict) {
	f := found(verdict, "driver d", text, "")
	w.cure(&f)
	return strings.Join(f.Commands, "; "), f.Verdict
}

// An error repeats the words of others: a webhook, for example. They must not have a reader grant them what they like.
func TestOnlyRightsThatAHubNeedsAreGranted(t *testing.T) {
	w := &walk{Facts: &Facts{Account: "h:hub"}, Volume: &Volume{Secret: Secret{Namespace: "a", Name: "login"}}}
	for _, tt := range []struct{ text, want string }{
		{`read secret a/login for the call: secrets "login" is forbidden: User "system:serviceaccount:h:hub" cannot get resource "secrets" in API group "" in the namespace "a"`,
			"kubectl -n a create role csi-attach-hub-get-secrets-login --verb=get --resource=secrets --resource-name=login; " +
				"kubectl -n a create rolebinding csi-attach-hub-get-secrets-login --role=csi-attach-hub-get-secrets-login --serviceaccount=h:hub"},
		{`read secret a/login for the call: secrets "login" is forbidden: User "system:serviceaccount:evil:evil" cannot get resource "secrets" in API group "" in the namespace "a"`, ""},
		{`volumeattachments.storage.k8s.io "csi-1" is forbidden: User "system:serviceaccount:evil:evil" cannot patch resource "volumeattachments" in API group "storage.k8s.io" at the cluster scope`, ""},
		{`secrets "other" is forbidden: User "system:serviceaccount:h:hub" cannot get resource "secrets" in API group "" in the namespace "a"`, ""},
		{`secrets "login" is forbidden: User "system:serviceaccount:h:hub" cannot list resource "secrets" in API group "" in the namespace "a"`, ""},
		{`csinodes.storage.k8s.io "n" is forbidden: User "somebody" cannot get resource "csinodes" in API group "storage.k8s.io" at the cluster scope`, ""},
		{`clusterroles.rbac.authorization.k8s.io "n" is forbidden: User "system:serviceaccount:h:hub" cannot escalate resource "clusterroles" in API group "rbac.authorization.k8s.io" at the cluster scope`, ""},
	} {
		if got, _ := cured(w, diagnosis.RightMissing, tt.text); got != tt.want {
			t.Errorf("%s\ngot  %q\nwant %q", tt.text, got, tt.want)
		}
		if got, _ := cured(&walk{Facts: &Facts{}, Volume: w.Volume}, diagnosis.RightMissing, tt.text); got != "" {
			t.Errorf("%s: the account of the hub is not known, got %q", tt.text, got)
		}
	}
}

func TestSecretOfTheSideWhoseCertificateExpiredIsDeletedIfItIsIssuedAgain(t *testing.T) {
	v := &Volume{Driver: "d"}
	v.Certificates.Driver, v.Certificates.Hub = CertificateSecret{"storage", "proxy-tls", true}, CertificateSecret{"h", "hub-tls", true}
	for text, want := range map[string]string{
		"the certificate of the server has expired or does not hold yet (it holds from A to B): renew it":               "kubectl -n storage delete secret proxy-tls",
		"read the TLS files of this side: the certificate in /tls/tls.crt expired at 2026-01-01T00:00:00Z: renew it":    "kubectl -n h delete secret hub-tls",
		"the server refuses the client certificate in /tls/tls.crt, it has expired: renew it: tls: expired certificate": "kubectl -n h delete secret hub-tls",
	} {
		verdict, _ := diagnosis.ParseRefusal(text, "tcp://driver:9443")
		v.Served = &hubclient.Driver{Driver: status.Driver{ConnectionError: status.Failure{Text: text}}}
		got, _ := cured(&walk{Facts: &Facts{}, Volume: v}, verdict, text)
		if verdict != diagnosis.CertificateExpired || got != want {
			t.Errorf("%s: got %s, %q, want %q", text, verdict, got, want)
		}
		byHand := *v
		byHand.Certificates.Driver.Issued, byHand.Certificates.Hub.Issued = false, false
		if got, _ := cured(&walk{Facts: &Facts{}, Volume: &byHand}, verdict, text); got != "" {
			t.Errorf("%s: nobody issues the certificate again, got %q", text, got)
		}
	}
}

func TestServerNameIsChosenOnlyIfThereIsOneName(t *testing.T) {
	for names, want := range map[string]string{
		"a.storage.svc":                    "Write `serverName: a.storage.svc` under tls",
		"a, a.storage, driver.storage.svc": "Write `serverName: driver.storage.svc` under tls", // that of the endpoint
		"a, b":                             "",
		"*.storage.svc":                    "",
		"no name at all":                   "",
	} {
		text := "the certificate of the server is for " + names + ` and not for serverName "x": correct one of them`
		served := &hubclient.Driver{Driver: status.Driver{Endpoint: "tcp://driver.storage.svc:9443", ConnectionError: status.Failure{Text: text}}}
		f := found(diagnosis.CertificateName, "driver d", text, "")
		(&walk{Facts: &Facts{}, Volume: &Volume{Driver: "d", Served: served}}).cure(&f)
		if want == "" && f.Next != "" || !strings.HasPrefix(f.Next, want) {
			t.Errorf("%s: got %q, want %q", names, f.Next, want)
		}
	}
}

// The identity of a csi-attacher in the network of its node is the name of the node.
func TestHolderIsGoneOnlyIfNoPodCanBeIt(t *testing.T) {
	now := time.Now()
	for _, tt := range []struct {
		name    string
		pod     corev1.Pod
		renewed time.Duration
		gone    bool
	}{
		{"its Pod", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, time.Hour, false},
		{"its Pod has ended", corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}, time.Hour, true},
		{"a Pod in the network of the node", corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true, NodeName: "node-1.example.com"}}, time.Hour, false},
		{"a Pod on the node", corev1.Pod{Spec: corev1.PodSpec{NodeName: "node-1"}}, time.Hour, true},
		{"no Pod, renewed lately", corev1.Pod{}, time.Second, false},
	} {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "l"}, Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("node-1"),
			LeaseDurationSeconds: ptr.To(int32(7200)), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-tt.renewed)))}}
		v := &Volume{Driver: "d", Leases: Leases{All: Present(&[]coordinationv1.Lease{lease})}, Holders: Present(&[]corev1.Pod{tt.pod})}
		commands, verdict := cured(&walk{Facts: &Facts{Now: now}, Volume: v}, diagnosis.LeaseHeld, "held by another attacher (node-1)")
		if gone := verdict == diagnosis.LeaseHolderGone; gone != tt.gone || gone != (commands != "") {
			t.Errorf("%s: got %s, %q", tt.name, verdict, commands)
		}
	}
}

func TestSecretIsFoundByTheFileOfAContainer(t *testing.T) {
	pod := &corev1.PodSpec{
		Containers: []corev1.Container{{Args: []string{"proxy", "--tls-cert", "/tls/tls.crt", "--client-ca=/ca/ca.crt"},
			VolumeMounts: []corev1.VolumeMount{{Name: "both", MountPath: "/tls/"}, {Name: "ca", MountPath: "/ca"}, {Name: "all", MountPath: "/all"}}}},
		Volumes: []corev1.Volume{
			{Name: "both", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "other"}, Items: []corev1.KeyToPath{{Key: "x", Path: "x"}}}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "own"}, Items: []corev1.KeyToPath{{Key: "tls.crt", Path: "tls.crt"}}}}}}}},
			{Name: "ca", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}},
			{Name: "all", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "all"}}},
		},
	}
	byFlag := func(c corev1.Container) string { return flagValue(c, "tls-cert") }
	at := func(file string) func(corev1.Container) string {
		return func(corev1.Container) string { return file }
	}
	for i, tt := range []struct {
		file func(corev1.Container) string
		want string
	}{{byFlag, "own"}, {at("/ca/ca.crt"), ""}, {at("/all/tls.crt"), "all"}, {at("/elsewhere/tls.crt"), ""}, {at(""), ""}} {
		if got := mountedSecret(pod, tt.file); got != tt.want {
			t.Errorf("%d: got %q, want %q", i, got, tt.want)
		}
	}
}
