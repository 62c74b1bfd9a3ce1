// Package access authenticates and authorizes HTTP requests by the Kubernetes API: a bearer
// token by a TokenReview, the path by a SubjectAccessReview for a nonResourceURL. So
// ClusterRoles grant access to the hub, as they do for Prometheus and for users of kubectl:
//
//	rules:
//	- nonResourceURLs: ["/metrics", "/attach-hub/*"]
//	  verbs: ["get"]
//
// The metrics have the usual path, which a Prometheus may read in most clusters. The paths of all
// other requests get the prefix /attach-hub.
//
// The library k8s.io/apiserver authenticates. The type reviews authorizes; its comment says why the
// library does not. Answers are cached for up to a minute. Without an answer a request is refused.
package access
