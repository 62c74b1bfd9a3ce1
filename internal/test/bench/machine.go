package main

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"
)

// Machine describes the machine on which bench ran.
type Machine struct {
	Cores       int    `json:"cores"`
	Processor   string `json:"processor,omitempty"`
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	Kernel      string `json:"kernel,omitempty"`
	Go          string `json:"go"`
}

// thisMachine describes this machine, and leaves out what it cannot read.
func thisMachine() Machine {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return m
	}
	if memory, err := fs.Meminfo(); err == nil && memory.MemTotalBytes != nil {
		m.MemoryBytes = *memory.MemTotalBytes
	}
	if processors, err := fs.CPUInfo(); err == nil && len(processors) > 0 {
		m.Processor = strings.TrimSpace(processors[0].ModelName)
	}
	if release, err := fs.SysctlStrings("kernel/osrelease"); err == nil && len(release) > 0 {
		m.Kernel = release[0]
	}
	return m
}

// String returns the description as a line of text.
func (m Machine) String() string {
	parts := []string{fmt.Sprintf("%d cores", m.Cores)}
	if m.Processor != "" {
		parts[0] += " (" + m.Processor + ")"
	}
	if m.MemoryBytes > 0 {
		parts = append(parts, fmt.Sprintf("%.0f GiB", float64(m.MemoryBytes)/(1<<30)))
	}
	if m.Kernel != "" {
		parts = append(parts, "Linux "+m.Kernel)
	}
	return strings.Join(append(parts, m.Go), ", ")
}
