package registry

import "encoding/json"

// schema is a JSON Schema of one value, as encoding/json writes it.
type schema map[string]any

// Schema returns the JSON Schema (draft 2020-12) of drivers.yaml, made from the tables that
// Parse reads by. Every file that Parse accepts satisfies it. A file that satisfies it can
// still be wrong: Parse alone checks what keys demand of each other, the ranges of
// durations, and names that occur twice.
func Schema() []byte {
	root := fileMapping.schema("configuration of csi-attach-hub")
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "drivers.yaml of csi-attach-hub"
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic(err) // it holds nothing but strings, numbers, lists and maps
	}
	return append(out, '\n')
}

func listOf(element schema) schema { return schema{"type": "array", "items": element} }

// distinct is a list without equal elements.
func distinct(description string, element schema) schema {
	s := listOf(element)
	s["description"], s["uniqueItems"] = description, true
	return s
}

// pattern is a string of a form.
func pattern(description, form string) schema {
	return schema{"type": "string", "description": description, "pattern": form}
}
