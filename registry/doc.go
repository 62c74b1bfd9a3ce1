// Package registry says which CSI drivers should be served, and how.
package registry
