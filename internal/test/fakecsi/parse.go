package fakecsi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// codeNames are the gRPC codes that a Fault may have, as its JSON spells them.
var codeNames = []string{
	"CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
	"RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
	"DATA_LOSS", "UNAUTHENTICATED",
}

// ParseKnobs decodes Knobs from JSON. An error about an unknown knob, field or value lists the valid ones.
func ParseKnobs(data []byte) (Knobs, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return Knobs{}, fmt.Errorf("invalid knobs: %w: write a JSON object such as %s", err, `{"releaseAll":true}`)
	}
	var k Knobs
	fields := fieldsByName(reflect.ValueOf(&k).Elem())
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		field, ok := fields[name]
		if !ok {
			return Knobs{}, fmt.Errorf("unknown knob %q: choose from %s", name, sortedNames(fields))
		}
		if err := decodeKnob(name, raw[name], field); err != nil {
			return Knobs{}, err
		}
	}
	if err := k.check(); err != nil {
		return Knobs{}, err
	}
	return k, nil
}

// decodeKnob decodes the value of one knob.
func decodeKnob(name string, data []byte, into reflect.Value) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into.Addr().Interface())
	if err == nil {
		return nil
	}
	text := err.Error()
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("knob %q: JSON %s does not fit the type %s", name, wrong.Value, wrong.Type)
	}
	if field, ok := strings.CutPrefix(text, "json: unknown field "); ok {
		return fmt.Errorf("knob %q: unknown field %s: choose from %s", name, field, sortedNames(fieldsByName(element(into))))
	}
	if strings.Contains(text, "invalid code") {
		return fmt.Errorf("knob %q: %s: choose from %s", name, text, strings.Join(codeNames, ", "))
	}
	if strings.Contains(text, "duration") {
		return fmt.Errorf(`knob %q: %s: write for example "1.5s"`, name, text)
	}
	return fmt.Errorf("knob %q: %s", name, text)
}

// element returns a value of the struct that a knob is a list or a map of.
func element(knob reflect.Value) reflect.Value {
	switch t := knob.Type(); {
	case t == reflect.TypeFor[map[Method]Latency]():
		return reflect.New(reflect.TypeFor[latencyJSON]()).Elem() // Latency has a form of its own in JSON
	case t.Kind() == reflect.Slice:
		return reflect.New(t.Elem()).Elem()
	}
	return knob
}

// fieldsByName returns the fields of a struct by their names in JSON.
func fieldsByName(v reflect.Value) map[string]reflect.Value {
	fields := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		fields[name] = v.Field(i)
	}
	return fields
}

func sortedNames(fields map[string]reflect.Value) string {
	return strings.Join(slices.Sorted(maps.Keys(fields)), ", ")
}
