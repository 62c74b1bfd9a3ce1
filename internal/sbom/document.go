package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
)

// document is the part of CycloneDX 1.5 that describes a Go program.
type document struct {
	BOMFormat    string      `json:"bomFormat"`
	SpecVersion  string      `json:"specVersion"`
	SerialNumber string      `json:"serialNumber"`
	Version      int         `json:"version"`
	Metadata     metadata    `json:"metadata"`
	Components   []component `json:"components"`
}

type metadata struct {
	Timestamp string    `json:"timestamp"`
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	BOMRef     string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	Hashes     []hash     `json:"hashes,omitempty"`
	PURL       string     `json:"purl"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// newDocument describes a binary. info is the build information in it.
func newDocument(info *debug.BuildInfo, binary []byte, version string, at time.Time) (document, error) {
	sum := sha256.Sum256(binary)
	program := newComponent("application", info.Main.Path, version)
	program.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	program.Properties = buildProperties(info.Settings)
	components := []component{newComponent("library", "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		c := newComponent("library", module.Path, module.Version)
		if module.Sum != "" {
			content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(module.Sum, "h1:"))
			if err != nil {
				return document{}, fmt.Errorf("checksum %q of module %s: %w", module.Sum, module.Path, err)
			}
			c.Hashes = []hash{{"SHA-256", hex.EncodeToString(content)}} // that of go.sum, as cyclonedx-gomod writes it
		}
		components = append(components, c)
	}
	return document{
		BOMFormat:    "CycloneDX",
		SpecVersion:  "1.5",
		SerialNumber: "urn:uuid:" + uuid(sum),
		Version:      1,
		Metadata:     metadata{Timestamp: at.UTC().Format(time.RFC3339), Component: program},
		Components:   components,
	}, nil
}

func newComponent(kind, path, version string) component {
	// The package URL specification has the paths of Go modules in lower case.
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + strings.ReplaceAll(url.PathEscape(version), "+", "%2B")
	return component{Type: kind, BOMRef: purl, Name: path, Version: version, PURL: purl}
}

// buildProperties returns the variables of the build, such as GOARCH and GOFIPS140, with the names of cyclonedx-gomod.
func buildProperties(settings []debug.BuildSetting) []property {
	var all []property
	for _, s := range settings {
		if strings.HasPrefix(s.Key, "GO") || strings.HasPrefix(s.Key, "CGO") {
			all = append(all, property{"cdx:gomod:build:env:" + s.Key, s.Value})
		}
	}
	return all
}

// uuid makes a UUID of version 8 from a hash.
func uuid(sum [sha256.Size]byte) string {
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
