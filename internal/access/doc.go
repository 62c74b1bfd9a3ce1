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
// The flow: tokens and reviews ask for their answers, which cache yes for a minute and no for ten seconds. Without an answer
// a request is refused. The gate bounds what is asked: the API server has to answer for the volumes too.
// At most four reviews run at once. A client has a quota of new questions: by address for tokens, by user for paths. More are
// refused with 429 at once. Questions that were answered yes in the last hour have places of their own and no quota,
// so that a flood of made-up tokens does not keep Prometheus out.
//
// The webhook authenticator and the token cache of k8s.io/apiserver would ask for each token at once, and cache no refusal that
// has a reason.
package access
