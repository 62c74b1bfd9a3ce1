// Package access asks the Kubernetes API who sends an HTTP request and whether they may:
// a bearer token is checked by a TokenReview, the path by a SubjectAccessReview for a
// nonResourceURL. So rights to look at the hub are given by the ClusterRoles that
// Prometheus and kubectl users have anyway:
//
//	rules:
//	- nonResourceURLs: ["/metrics", "/attach-hub/*"]
//	  verbs: ["get"]
//
// The metrics have the path that a Prometheus may read everywhere; all else stands below
// /attach-hub/.
//
// Who asks is found out by the library that kube-apiserver's own extensions use; what they
// may see is asked here, in reviews.go, which says why. Answers are believed for a while,
// and nobody gets in without one.
package access
