// Package access authenticates and authorizes HTTP requests by the Kubernetes API: a bearer
// token by a TokenReview, the path by a SubjectAccessReview for a nonResourceURL. So access to
// the hub is granted by ClusterRoles, as Prometheus and kubectl users have them:
//
//	rules:
//	- nonResourceURLs: ["/metrics", "/attach-hub/*"]
//	  verbs: ["get"]
//
// The metrics have the path that a Prometheus may read everywhere; all other paths stand below
// /attach-hub/.
//
// The library of kube-apiserver's extensions authenticates; reviews authorizes, and says why
// not the library. Answers are cached for a while. Without an answer a request is refused.
package access
