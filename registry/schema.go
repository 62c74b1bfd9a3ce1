package registry

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// schema is a JSON Schema of one value, as encoding/json writes it.
type schema map[string]any

// Schema returns the JSON Schema (draft 2020-12) of drivers.yaml, made from what
// Parse reads by. Every file that Parse takes satisfies it. The reverse
// is not so: what keys demand of each other, the ranges of durations, and names that
// are there twice are left to Parse.
func Schema() []byte {
	root := mapping("what csi-attach-hub is to serve", map[string]schema{
		"apiVersion": {"const": apiVersion},
		"kind":       {"const": configKind},
		"defaults":   settingsSchema("settings of drivers whose entry does not say otherwise", defaultsKeys, nil),
		"discovery":  discoverySchema(),
		"drivers":    listOf(driverSchema()),
	}, "apiVersion", "kind", "drivers")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "drivers.yaml of csi-attach-hub"
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // it holds nothing but strings, numbers, lists and maps
	}
	return append(out, '\n')
}

// mapping is an object that has no other keys.
func mapping(description string, properties map[string]schema, required ...string) schema {
	s := schema{"type": "object", "additionalProperties": false, "properties": properties, "description": description}
	if len(required) > 0 {
		s["required"] = required
	}
	return s
}

func listOf(element schema) schema { return schema{"type": "array", "items": element} }

// pattern is a string of a form.
func pattern(description, form string) schema {
	return schema{"type": "string", "description": description, "pattern": form}
}

const endpointForm = `^(unix:///.|tcp://.*:[0-9]+$)`

func driverSchema() schema {
	name := pattern("the name by which the driver calls itself", nameForm.String())
	name["maxLength"] = maxNameLength
	s := settingsSchema("a driver", entryKeys, map[string]schema{
		"name":     name,
		"endpoint": pattern("where its controller listens: unix:///path/to/csi.sock or tcp://host:port", endpointForm),
		"tls":      tlsSchema("mutual TLS to a tcp:// endpoint"),
	})
	s["required"] = []string{"name", "endpoint"}
	return s
}

func tlsSchema(description string) schema {
	const file = "^/."
	return mapping(description, map[string]schema{
		"caFile":     pattern("file with the authorities that the driver's certificate must come from", file),
		"certFile":   pattern("file with the certificate of this side", file),
		"keyFile":    pattern("file with the key of that certificate", file),
		"serverName": pattern("name in the driver's certificate; the host of the endpoint if left out", `^[-0-9a-z.:]+$`),
	}, "caFile", "certFile", "keyFile")
}

func discoverySchema() schema {
	return mapping("where drivers are looked for that are not listed", map[string]schema{
		"csiDrivers": mapping("drivers from CSIDriver objects", map[string]schema{
			"enabled":          boolean().schema,
			"endpointTemplate": pattern("endpoint of objects without an annotation", `\{driver\}`),
			"tls":              tlsSchema("mutual TLS to all tcp:// endpoints that are found"),
			"allowedEndpoints": distinct("what an object can make the hub contact", pattern("an endpoint with * in it", `^(unix:///.|tcp://.)`)),
		}, "enabled"),
		"sockets": distinct("globs of sockets on which drivers answer", pattern("a glob like /csi/*/csi.sock", "^/.")),
	})
}

func distinct(description string, element schema) schema {
	s := listOf(element)
	s["description"], s["uniqueItems"] = description, true
	return s
}

// settingsSchema is a mapping of the settings that are among the keys, and more.
func settingsSchema(description string, k keys, more map[string]schema) schema {
	all := map[string]schema{}
	maps.Copy(all, more)
	for i := range settings {
		if !slices.Contains(k.known, settings[i].key) {
			continue
		}
		s := settings[i].schemaOf()
		group, key, nested := strings.Cut(settings[i].key, ".")
		if !nested {
			all[group] = s
			continue
		}
		if all[group] == nil {
			all[group] = schema{"type": "object", "additionalProperties": false, "properties": map[string]schema{}}
		}
		all[group]["properties"].(map[string]schema)[key] = s
	}
	return mapping(description, all)
}

// schemaOf is the schema of the value of a setting, with what a user is to write.
func (s *setting) schemaOf() schema {
	out := maps.Clone(s.schema)
	out["description"] = s.want + "; " + s.write(DefaultSettings()) + " if nothing is said"
	return out
}
