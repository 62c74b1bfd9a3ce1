package main

import (
	"slices"

	"github.com/csi-attach-hub/csi-attach-hub/internal/chart"
)

// drawn are the competitors, which have the same ink and dashes in all pictures.
var drawn = []string{hubName, baselineName, sidecarName, tunedSidecarName}

// dashes tell lines apart where colours do not.
var dashes = []string{"", "6 3", "2 3", "8 3 2 3"}

// legend collects the names that a picture shows.
type legend struct {
	names  []string // as they came
	others []string // those that are not in drawn
}

// place returns the position of a name among all inks, and adds a new one.
func (l *legend) place(name string) int {
	if !slices.Contains(l.names, name) {
		l.names = append(l.names, name)
	}
	if i := slices.Index(drawn, name); i >= 0 {
		return i
	}
	if !slices.Contains(l.others, name) {
		l.others = append(l.others, name)
	}
	return len(drawn) + slices.Index(l.others, name)
}

func (l *legend) ink(name string) chart.Ink { return chart.Data + chart.Ink(l.place(name)) }
func (l *legend) dash(name string) string   { return dashes[l.place(name)%len(dashes)] }

// areas returns the legend of bars.
func (l *legend) areas() []chart.Key {
	var keys []chart.Key
	for _, name := range l.names {
		keys = append(keys, chart.Key{Name: name, Ink: l.ink(name)})
	}
	return keys
}

// lines returns the legend of lines.
func (l *legend) lines() []chart.Key {
	keys := l.areas()
	for i, key := range keys {
		keys[i].Line = &chart.Line{Dash: l.dash(key.Name)}
	}
	return keys
}
