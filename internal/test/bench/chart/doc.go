// Package chart draws measurements as SVG pictures: bars in groups. internal/test/bench uses it.
//
// A Picture has Panels in columns below a title and a legend. A picture names colours by
// Ink, so that the same one can be drawn for light and for dark pages. It has a title and a description for screen readers,
// and neither scripts nor links.
package chart
