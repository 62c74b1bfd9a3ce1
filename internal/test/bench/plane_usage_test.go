package main

import (
	"os/exec"
	"syscall"
	"testing"
)

// A shell stands for the control plane, and its child, which works, for kube-apiserver.
func TestPlaneCPUIsOfTheProcessAndItsChild(t *testing.T) {
	shell := exec.Command("sh", "-c", "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo; exec sleep 60' & wait")
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to end the child too
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		_ = shell.Wait()
	}()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	cpu, err := readPlaneCPU(shell.Process.Pid)
	if err != nil || cpu.server <= cpu.etcd {
		t.Errorf("%+v, %v: want more CPU time of the child than of the parent", cpu, err)
	}
}

func TestPlaneCPUNeedsAChild(t *testing.T) {
	alone := exec.Command("sleep", "60")
	if err := alone.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = alone.Process.Kill()
		_ = alone.Wait()
	}()
	if _, err := readPlaneCPU(alone.Process.Pid); err == nil {
		t.Error("the CPU time of a control plane without kube-apiserver is no error")
	}
}
