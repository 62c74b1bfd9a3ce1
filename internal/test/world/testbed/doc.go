// Package testbed puts a whole world on one machine: a real Kubernetes control
// plane and hubs, each as a process, CSI drivers in the test's own process, and
// the Kubernetes objects that make work for them. The integration tests and cmd/testbed use it.
//
// The flow of a test:
//
//	func TestMain(m *testing.M) {
//		os.Exit(testbed.RunMain(m, testbed.ControlPlaneOptions{}))
//	}
//
//	func TestSomething(t *testing.T) {
//		plane := testbed.Shared(t)                              // started once per test process
//		cluster := testbed.NewCluster(plane.Clientset())
//		err := cluster.Create(t.Context(), testbed.Node{Name: "node-1"}, testbed.VolumeAttachment{...})
//		attachments, err := testbed.WatchVolumeAttachments(t.Context(), plane.Clientset(), nil)
//		defer attachments.Close()
//		err = attachments.WaitFor(ctx, "all attached", testbed.AllAttached(1))
//	}
//
// A World is all that a demo, a benchmark or a chaos run needs around its hubs: a control
// plane, drivers in this process that keep books, nodes, a watcher, and the hubs that
// StartHub adds:
//
//	world, err := testbed.StartWorld(ctx, testbed.WorldOptions{Dir: dir, Hub: binary, Drivers: ..., Nodes: ...})
//	defer world.Stop(ctx)
//	err = world.WriteConfig(world.Drivers, "{workers: 100}", nil)
//	hub, err := world.StartHub(ctx, testbed.HubOptions{})
//	err = hub.WaitReady(ctx, len(world.Drivers))
//
// The control plane is the program of internal/test/world/controlplane, which is built
// once and kept in a cache; no package of Kubernetes itself is linked here.
// Every process is killed by the kernel when the one that started it dies (on
// Linux), so an aborted test leaves nothing behind.
//
// The API server has API Priority and Fairness on, with its default limits. It exempts the administrator of Kubeconfig
// and Clientset. What acts by WriteAccountKubeconfig is a workload as in a cluster.
//
// What it does not do: judge. The books on which invariants are checked are
// kept by internal/test/fakecsi, and what must hold is said by the tests. It runs
// no pods and mounts nothing: a Pod here only makes the attach-detach
// controller want its volumes attached.
package testbed
