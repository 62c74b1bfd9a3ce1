// Command controlplane runs a real Kubernetes control plane on the loopback
// interface of one machine: etcd, kube-apiserver and, on request,
// kube-controller-manager with the controllers that attach volumes. Tests, the
// demo and the sandbox of csi-attach-hub start it as a process.
//
//	controlplane --dir DIR [--controller-manager] [--pod-gc] [--unlimited-requests]
//
// The flow: lock DIR; read its state or make it (ports, token, certificates,
// kubeconfig); start etcd in this process; start kube-apiserver as a child and
// wait for /readyz; the same for kube-controller-manager and /healthz; print
//
//	ready kubeconfig=DIR/kubeconfig server=https://127.0.0.1:PORT
//
// and serve until SIGTERM or SIGINT, which ends the children first and etcd
// last. A child that ends by itself ends the program with an error.
//
// Both components keep feature gates, metrics, flags and logging in process
// globals, so each is a process of its own: this same binary, executed again
// with a hidden first argument. On Linux the kernel kills them when their
// parent is killed. Their logs are files in DIR.
//
// Under the name kubectl, as a link gives it, the same binary is kubectl, so that tests can run the commands that the
// product prints. It starts nothing then.
//
// With --pod-gc kube-controller-manager also runs the Pod garbage collector, which deletes the Pods of nodes that are
// gone or out of service.
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
