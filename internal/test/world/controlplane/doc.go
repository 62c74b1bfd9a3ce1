// Command controlplane runs a real Kubernetes control plane on the loopback
// interface of one machine: etcd and kube-apiserver. Tests, the demo and the sandbox of
// csi-attach-hub start it as a process.
//
//	controlplane --dir DIR [--unlimited-requests]
//
// The flow: lock DIR; read its state or make it (ports, token, certificate,
// kubeconfig); start etcd in this process; start kube-apiserver as a child and
// wait for /readyz; print
//
//	ready kubeconfig=DIR/kubeconfig
//
// and serve until SIGTERM or SIGINT, which ends kube-apiserver first and etcd
// last. If kube-apiserver ends by itself, the program ends with an error.
//
// kube-apiserver keeps feature gates, metrics, flags and logging in process
// globals, so it is a process of its own: this same binary, executed again
// with a hidden first argument. On Linux the kernel kills it when its
// parent is killed. Its log goes to stderr. With the first argument
// kube-controller-manager the binary is that, with its flags, beside a control plane
// that runs already.
//
// Under the name kubectl, as a link gives it, the same binary is kubectl, so that tests can run the commands that the
// product prints. It starts nothing then.
//
// API Priority and Fairness and the limits of requests in flight are the defaults of kube-apiserver, as in
// a cluster. With --unlimited-requests no request is queued or refused: for measurements of clients.
//
// Starting again on the same DIR gives the same objects, port, token and
// certificates, so clients of the first run go on with the second.
//
// What it does not do: run pods (there is no scheduler and no kubelet), talk
// to anything that is not on loopback, survive a crash of the machine (etcd
// does not fsync), or keep local users out of etcd, which listens on loopback
// without authentication. It is for tests and try-outs and holds no secrets.
package main
