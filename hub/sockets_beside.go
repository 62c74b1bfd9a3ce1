package hub

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// mostLookedAt bounds the files of a folder that are looked at for sockets, mostBeside the sockets that are kept, and
	// mostReported those that are reported: the others are endpoints of drivers.
	mostLookedAt = 200
	mostBeside   = 20
	mostReported = 5
)

// sockets are the endpoints of sockets. Behind the last one are empty ones.
type sockets [mostBeside]registry.Endpoint

// socketsBeside returns the first sockets in the folder of a socket that does not exist: the driver may listen on one of
// them. A file whose name is no endpoint is left out.
func socketsBeside(missing registry.Endpoint) (found sockets) {
	if missing.Network() != "unix" {
		return found
	}
	folder, err := os.Open(filepath.Dir(missing.Address()))
	if err != nil {
		return found
	}
	defer folder.Close()
	entries, _ := folder.ReadDir(mostLookedAt) // what was read before an error
	var all []registry.Endpoint
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 {
			continue
		}
		if endpoint, err := registry.ParseEndpoint("unix://" + filepath.Join(folder.Name(), e.Name())); err == nil {
			all = append(all, endpoint)
		}
	}
	slices.Sort(all)
	copy(found[:], all)
	return found
}
