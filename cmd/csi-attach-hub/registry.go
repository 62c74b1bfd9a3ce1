package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// source returns the source of the configuration, and a function that makes it read the
// configuration again. It only reads the file.
func (s hubSettings) source() (source registry.ConfigSource, reload func(), err error) {
	if s.csiAddress != "" {
		driver := registry.Driver{Endpoint: s.csiAddress, Settings: s.driver, Source: "--csi-address " + s.csiAddress.Address()}
		single, err := registry.NewSingle(driver, csiclient.AskName)
		return single, func() {}, err
	}
	file, err := registry.NewFile(registry.FileOptions{Path: s.config, Defaults: s.driver})
	if _, missing := os.Stat(s.config); errors.Is(missing, fs.ErrNotExist) && s.config == defaultConfig {
		return nil, nil, fmt.Errorf("%w, name another folder or file with --config, or set --csi-address to replace the csi-attacher of one driver", err)
	}
	if err != nil {
		return nil, nil, err
	}
	return file, file.Reload, nil
}
