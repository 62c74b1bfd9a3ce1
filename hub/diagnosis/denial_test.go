package diagnosis

import "testing"

func TestDenialsOfRBACAreToldFromWordsOfWebhooks(t *testing.T) {
	status := `volumeattachments.storage.k8s.io "csi-1" is forbidden: User "system:serviceaccount:h:hub" cannot patch resource "volumeattachments/status" in API group "storage.k8s.io" at the cluster scope`
	secret := `read secret a/b for the call: secrets "b" is forbidden: User "system:serviceaccount:h:hub" cannot get resource "secrets" in API group "" in the namespace "a": RBAC: clusterrole.rbac.authorization.k8s.io "x" not found`
	for text, want := range map[string]Denial{
		status:                      {User: "system:serviceaccount:h:hub", Verb: "patch", Resource: "volumeattachments", Subresource: "status", Group: "storage.k8s.io", Name: "csi-1"},
		"write the note: " + status: {User: "system:serviceaccount:h:hub", Verb: "patch", Resource: "volumeattachments", Subresource: "status", Group: "storage.k8s.io", Name: "csi-1"},
		secret:                      {User: "system:serviceaccount:h:hub", Verb: "get", Resource: "secrets", Name: "b", Namespace: "a"},
		`admission webhook "x" denied the request: ` + status:                                 {},
		`volumeattachments.storage.k8s.io "csi-1" is forbidden: quota exceeded`:               {},
		`x is forbidden: User "a" cannot * resource "*" in API group "" at the cluster scope`: {},
	} {
		if got, is := ParseDenial(text); got != want || is != (want != Denial{}) {
			t.Errorf("%s: got %+v, %t, want %+v", text, got, is, want)
		}
	}
}
